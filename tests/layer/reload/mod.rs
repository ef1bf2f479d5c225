//! A file whose rules are replaced while requests run.

mod files;
mod kept;
mod load;
mod task;
mod writes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use tempfile::TempDir;
use tidegate::Limits;

use crate::send;
use kit::app_of;

/// Two readings that confirm each other take 2.25 s at most.
const SETTLED: Duration = Duration::from_millis(2_500);

/// The rules of two routes, and one that no layer uses. All maxima have one digit, and `window` has
/// quotes: whatever part of a file is valid, it has these quotas.
fn rules(max: u64) -> String {
    let rule = |path| format!("[rules.{path}]\nmax-count = {max}\nwindow = \"1h\"\n");
    format!(
        "# limits\nenabled = true\n{}{}{}",
        rule("getId"),
        rule("search"),
        rule("unused")
    )
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
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("limits.toml");
        fs::write(&file, text).expect("is written");
        Self::of(folder, file)
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

    /// Checks that both routes are limited to this maximum.
    async fn check(&self, max: u64) {
        for path in ["/getId", "/search"] {
            assert_eq!(quota(&self.app, path).await, Some(max), "{path}");
        }
    }

    /// Checks that a file is refused, with an error that contains this, and that the rules stay.
    async fn check_refused(&self, max: u64, error: &str) {
        let failures = self.limits.status().failures;
        self.check(max).await;
        settle().await;
        self.check(max).await;
        assert!(self.error().contains(error), "{}", self.error());
        assert!(self.error().contains("limits.toml"), "{}", self.error());
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
    let response = send(app, path).await;
    let limited = response.headers().get("ratelimit-policy").map(|field| {
        let field = field.to_str().expect("printable");
        let max = field.split(';').find_map(|part| part.strip_prefix("q="));
        max.expect("a maximum").parse().expect("a number")
    });
    match (response.status(), limited) {
        (StatusCode::OK, None) => None,
        (StatusCode::OK | StatusCode::TOO_MANY_REQUESTS, Some(max)) => Some(max),
        other => panic!("{other:?}"),
    }
}

/// Waits in real time until this is true.
async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn remove(file: &Path) {
    fs::remove_file(file).expect("is removed");
}
