//! A file whose rules are replaced while requests run.

mod files;
mod kept;
mod load;
mod task;
mod writes;

use crate::*;

/// Two readings that confirm each other take 2.25 s at most.
const SETTLED: Duration = Duration::from_millis(2_500);

/// The rules of two routes, and one that no layer uses. All maxima have one digit, and `window` has
/// quotes: whatever part of a file is valid, it has these quotas.
fn rules(max: u64) -> String {
    let rule = |path| format!("[rules.{path}]\nmax-count = {max}\nwindow = \"1h\"\n");
    let rules = ["getId", "search", "unused"].map(rule).concat();
    format!("# limits\nenabled = true\n{rules}")
}

/// A file with rules, and the application that they limit.
struct Service {
    folder: TempDir,
    file: PathBuf,
    limits: Limits,
    app: Router,
}

impl Service {
    /// Its file is not watched.
    fn start() -> Self {
        Self::with_text(&rules(5))
    }

    fn with_text(text: &str) -> Self {
        let LimitsFile { folder, path } = LimitsFile::new(text);
        Self::of(folder, path)
    }

    fn of(folder: TempDir, file: PathBuf) -> Self {
        let limits = Limits::from_file(&file).expect("valid");
        let app = app_of(&limits, &["getId", "search"]);
        Self {
            folder,
            file,
            limits,
            app,
        }
    }

    /// Its file is watched, and was read for the first time.
    async fn watched() -> Self {
        let service = Self::start();
        service.watch().await;
        service
    }

    async fn watch(&self) {
        self.limits.watch(&self.file).expect("a runtime");
        settle().await;
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(&self.file, text).expect("is written");
    }

    /// A file beside the watched one.
    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a new file, and renames it to the watched one.
    fn rename_over(&self, text: &str) {
        let new = self.beside("new");
        fs::write(&new, text).expect("is written");
        fs::rename(&new, &self.file).expect("is renamed");
    }

    fn error(&self) -> String {
        self.limits.status().error.unwrap_or_default().to_owned()
    }

    fn version(&self) -> u64 {
        self.limits.status().version
    }

    fn reload(&self, text: impl AsRef<[u8]>) {
        self.write(text);
        self.limits.reload(&self.file).expect("valid");
    }

    /// Writes a text, and waits until it applies if it ever does.
    async fn apply(&self, text: impl AsRef<[u8]>) {
        self.write(text);
        settle().await;
    }

    /// Writes new rules of this maximum, and checks that they apply in time.
    async fn check_applies(&self, max: u64) {
        self.apply(rules(max)).await;
        self.check(max).await;
    }

    async fn check_one(&self, path: &str, max: Option<u64>) {
        assert_eq!(quota(&self.app, path).await, max, "{path}");
    }

    /// Checks that both routes are limited to this maximum.
    async fn check(&self, max: u64) {
        for path in ["/getId", "/search"] {
            self.check_one(path, Some(max)).await;
        }
    }

    /// Checks that a file is refused, with an error that contains this, and that the rules stay.
    async fn check_refused(&self, max: u64, error: &str) {
        let failures = self.limits.status().failures;
        self.check(max).await;
        settle().await;
        self.check(max).await;
        for part in [error, "limits.toml"] {
            assert!(self.error().contains(part), "{}", self.error());
        }
        assert!(self.limits.rules().load().get("unused").is_some());
        settle().await;
        settle().await;
        let status = self.limits.status();
        assert_eq!(status.failures, failures + 1, "{:?}", status.error);
    }
}

async fn settle() {
    tokio::time::sleep(SETTLED).await;
}

/// The maximum that a request was limited by. `None` if it passed without a limit.
///
/// # Panics
///
/// If the request was neither allowed nor denied.
async fn quota(app: &Router, path: &str) -> Option<u64> {
    let answer = ask(app, path, "").await;
    let limited = answer.field("ratelimit-policy").map(|field| {
        let max = field.split(';').find_map(|part| part.strip_prefix("q="));
        max.expect("a maximum").parse().expect("a number")
    });
    match (answer.status, limited) {
        (200, None) => None,
        (200 | 429, Some(max)) => Some(max),
        other => panic!("{other:?}"),
    }
}

fn remove(file: &Path) {
    fs::remove_file(file).expect("is removed");
}
