//! Reloading attacked: how the file comes and goes, and who else replaces the rules meanwhile. What
//! may stand in its place is refused by `tests/layer/reload/files.rs`. Whatever happens, the old
//! rules stay or whole new ones apply.

use std::fs::{self, FileTimes, OpenOptions};
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use tidegate::live::ReloadStatus;

use crate::*;

/// A change applies after 2.25 s at most.
const SETTLED: Duration = Duration::from_millis(2_500);
const LARGEST: u64 = 16 << 20;

fn table(path: &str, max: u64) -> String {
    format!("[rules.{path}]\nmax-count = {max}\nwindow = \"1h\"\n")
}

fn rules(max: u64) -> Rules {
    Rules::from_iter([per_hour("a", max)])
}

/// A file, the limits that began with it, and a layer for the rule `a`.
struct Service {
    folder: TempDir,
    file: PathBuf,
    limits: Limits,
    _layer: RateLimitLayer,
}

impl Service {
    fn start(text: &str) -> Self {
        let file = LimitsFile::new(text);
        let limits = file.limits();
        let _layer = limits.layer("a");
        let LimitsFile { folder, path: file } = file;
        Self {
            folder,
            file,
            limits,
            _layer,
        }
    }

    /// Has the file read at once.
    fn reload(&self) {
        self.limits.reload(&self.file).expect("valid");
    }

    /// The maximum of the rule, and the version.
    fn seen(&self) -> (Option<u64>, u64) {
        (self.max(), self.status().version)
    }

    /// Waits until a change applies, and then there is no error.
    async fn settle(&self, case: &str) {
        settle().await;
        assert_eq!(self.status().error, None, "{case}");
    }

    async fn watched(text: &str) -> Self {
        let service = Self::start(text);
        service.limits.watch(&service.file).expect("a runtime");
        settle().await;
        service
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(&self.file, text).expect("is written");
    }

    /// Writes another file, and renames it.
    fn rename_over(&self, text: impl AsRef<[u8]>) {
        let new = self.beside("new");
        fs::write(&new, text).expect("is written");
        fs::rename(&new, &self.file).expect("is renamed");
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn status(&self) -> ReloadStatus {
        self.limits.status()
    }

    fn max(&self) -> Option<u64> {
        max(&self.limits, "a")
    }
}

/// The maximum that limits a path. `None` if nothing does.
fn max(limits: &Limits, path: &str) -> Option<u64> {
    let rules = limits.rules().load();
    Some(rules.get(path)?.quotas()[0].max())
}

async fn settle() {
    sleep(SETTLED).await;
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

/// One thread puts a named pipe and a file in turns into the place: no reading hangs, whichever it
/// finds when it looks, and when it opens.
#[test]
fn a_named_pipe_that_comes_and_goes() {
    static READINGS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let readings = || {
        READINGS
            .each_ref()
            .map(|number| number.load(Ordering::Relaxed))
    };
    let service = Service::start(&table("a", 5));
    let (pipe, file) = (service.beside("pipe"), service.beside("file"));
    make_fifo(&pipe);
    fs::write(&file, table("a", 5)).expect("is written");
    let (limits, path) = (service.limits.clone(), service.file.clone());
    // A scope would wait for a thread that hangs.
    std::thread::spawn(move || {
        while !IS_OVER.load(Ordering::Relaxed) {
            let outcome = usize::from(limits.reload(&path).is_ok());
            READINGS[outcome].fetch_add(1, Ordering::Relaxed);
        }
    });
    let link = service.beside("link");
    let (mut last, mut since) = (readings(), Instant::now());
    while readings().iter().any(|number| *number < 5_000) {
        for target in [&pipe, &file] {
            symlink(target, &link).expect("is linked");
            fs::rename(&link, &service.file).expect("is renamed");
        }
        if readings() != last {
            (last, since) = (readings(), Instant::now());
        }
        assert!(since.elapsed() < PATIENT, "a reading hangs after {last:?}");
    }
    IS_OVER.store(true, Ordering::Relaxed);
    assert_eq!(service.max(), Some(5));
}

/// A call of `reload` that the file system does not answer holds up no watcher: the watched file
/// applies, or the status says after ten seconds that it does not.
#[test]
fn a_call_that_hangs_holds_up_no_watcher() {
    // Who opens a file with a lease waits for its holder, who does not hear of it here: 45 s.
    const HOLD: &str = "import fcntl, signal, sys, time\n\
        signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
        file = open(sys.argv[1], 'r+')\n\
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
        open(sys.argv[1] + '.held', 'w')\n\
        time.sleep(60)\n";
    let service = Service::start(&table("a", 5));
    let mut holder = Command::new("python3");
    let holder = holder.args(["-c", HOLD]).arg(&service.file).spawn();
    let mut holder = holder.expect("python runs");
    let runtime = still_runtime();
    let is_seen = runtime.block_on(async {
        let held = service.beside("limits.toml.held");
        eventually("the file is held", async || held.exists()).await;
        let (limits, path) = (service.limits.clone(), service.file.clone());
        std::thread::spawn(move || limits.reload(&path));
        sleep(millis(500)).await;
        let other = service.beside("other.toml");
        fs::write(&other, table("a", 7)).expect("is written");
        service.limits.watch(&other).expect("a runtime");
        let is_seen = async || service.max() == Some(7) || service.status().error.is_some();
        timeout(Duration::from_secs(15), eventually("it is seen", is_seen)).await
    });
    runtime.shutdown_background();
    holder.kill().expect("is ours");
    holder.wait().expect("has ended");
    assert!(is_seen.is_ok(), "{:?}", service.status());
}

/// The time of the last write goes back, stays, or lies ahead: the content decides.
#[tokio::test(start_paused = true)]
async fn times_of_writes_that_mean_nothing() {
    let set = |service: &Service, time: SystemTime| {
        let file = OpenOptions::new().write(true).open(&service.file);
        let times = FileTimes::new().set_modified(time);
        file.expect("opens").set_times(times).expect("is set");
    };
    let start = SystemTime::now();
    let times = [
        SystemTime::UNIX_EPOCH,
        start,
        start,
        start - HOUR,
        start + 1_000 * HOUR,
        start + 1_000 * HOUR,
        SystemTime::UNIX_EPOCH,
    ];
    let service = Service::watched(&table("a", 5)).await;
    for (number, time) in times.into_iter().enumerate() {
        // As long as the content before.
        let wanted = 6 - number as u64 % 2;
        service.write(table("a", wanted));
        set(&service, time);
        settle().await;
        assert_eq!(service.max(), Some(wanted), "{number}");
        let version = service.status().version;
        for other in times {
            set(&service, other);
            sleep(millis(700)).await;
        }
        service.settle("only the time").await;
        assert_eq!(service.status().version, version, "only the time");
    }
    // A time before 1970, where the file system has it.
    set(&service, SystemTime::UNIX_EPOCH - HOUR);
    service.settle("before 1970").await;
}
/// More layers than paths are remembered elsewhere: a rule in use stays, whichever it is.
#[tokio::test]
async fn every_one_of_many_rules_in_use_stays() {
    let paths: Vec<_> = (0..10_100).map(|number| format!("p{number:05}")).collect();
    let text: String = paths.iter().map(|path| table(path, 5)).collect();
    let service = Service::start(&(text + &table("a", 5)));
    let layers = paths.iter().map(|path| service.limits.layer(path));
    let _layers: Vec<_> = layers.collect();
    service.write(table("z", 1));
    service.reload();
    let is_gone = |path: &&String| max(&service.limits, path) != Some(5);
    let gone: Vec<_> = paths.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "{} rules: {gone:.3?}", gone.len());
    assert_eq!(service.status().kept_rules.len(), paths.len() + 1);
}

/// Called, watched and replaced by code at once: each change is one version, a status is of one
/// moment, and in the end the last one to speak is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn everybody_replaces_rules_at_once() {
    let service = Service::start(&table("a", 5));
    service.limits.watch(&service.file).expect("a runtime");
    let is_over = AtomicBool::new(false);
    let change = |thread: u64| {
        for number in 0..600 {
            match (number + thread) % 3 {
                0 => service.limits.rules().replace(rules(7)),
                1 => {
                    let new = service.beside(&format!("new{thread}"));
                    fs::write(&new, table("a", 8 + number % 2)).expect("is written");
                    fs::rename(&new, &service.file).expect("is renamed");
                }
                _ => service.reload(),
            }
        }
    };
    let look = || {
        let mut last = service.status();
        while !is_over.load(Ordering::Relaxed) {
            let now = service.status();
            assert!(now.version >= last.version, "{last:?} then {now:?}");
            assert!(now.reloads >= last.reloads, "{last:?} then {now:?}");
            if now.version == last.version {
                assert_eq!(now.content_hash, last.content_hash);
                assert_eq!(now.applied_at, last.applied_at);
            }
            assert!(matches!(service.max(), Some(5 | 7 | 8 | 9)));
            last = now;
        }
    };
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let changes = [0, 1].map(|thread| scope.spawn(move || change(thread)));
            scope.spawn(look);
            for change in changes {
                change.join().expect("no panic");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    service.rename_over(table("a", 3));
    service.reload();
    let status = service.status();
    assert_eq!((service.max(), &status.error), (Some(3), &None));
    // The watcher finds what is in force.
    sleep(2 * SETTLED).await;
    assert_eq!(service.seen(), (Some(3), status.version));
    assert!(status.version > 400, "{status:?}");
}

/// A file that is just as large as may be, and one byte more.
#[tokio::test]
async fn the_largest_file() {
    let service = Service::start(&table("a", 5));
    let text = table("a", 6);
    let filled = |length: u64| {
        let comment = "#".repeat(length as usize - text.len());
        text.clone() + &comment
    };
    service.write(filled(LARGEST + 1));
    assert!(service.limits.reload(&service.file).is_err());
    assert_eq!(service.max(), Some(5));
    service.write(filled(LARGEST));
    service.reload();
    assert_eq!(service.max(), Some(6));
}

/// A rule that was kept has the key and the prefix that it had, also if the tables that they came
/// from are gone.
#[tokio::test(start_paused = true)]
async fn a_kept_rule_is_whole() {
    let text = "prefix = \"p:\"\n[client-ip]\ntrusted = [\"10.0.0.0/8\"]\n[rules.a]\n\
                max-count = 5\nwindow = \"1h\"\nkey = [\"client-ip\", \"header:x-tenant\"]\n\
                cost = 2\n";
    let service = Service::watched(text).await;
    // All but what the file says for all of its rules.
    let whole = |rule: &Rule| {
        let text = format!("{rule:?}");
        let (own, rest) = text.split_once("file: ").expect("is printed");
        let (_, rest) = rest.split_once("refund_on: ").expect("is printed");
        format!("{own}{rest}")
    };
    let before = service.limits.rules().load().get("a").cloned();
    let before = whole(&before.expect("a rule"));
    for switch in ["", "shadow = true\n", "shadow = false\n"] {
        service.write(format!("{switch}prefix = \"q:\"\n{}", table("b", 1)));
        settle().await;
        assert_eq!(service.status().kept_rules, ["a"]);
        let now = service.limits.rules().load();
        let after = now.get("a").expect("is kept");
        let is_shadow = switch.contains("true");
        let kept = (after.prefix(), after.cost(), after.is_shadow());
        assert_eq!(kept, (Some("p:"), 2, is_shadow));
        assert!(is_shadow || before == whole(after), "{after:?}");
    }
}

/// A name that is relative to the working directory, which changes later, leads to the same file.
/// Runs in a process of its own: tests share the working directory.
#[test]
fn a_relative_name_and_another_working_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut worker = Command::new(std::env::current_exe().expect("a test"));
    worker.args([
        "--ignored",
        "--exact",
        "reload::worker_in_another_directory",
    ]);
    let worker = worker.env(WORKER_FOLDER, folder.path()).output();
    let worker = worker.expect("the worker runs");
    let said = String::from_utf8_lossy(&worker.stdout);
    assert!(worker.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

const WORKER_FOLDER: &str = "TIDEGATE_TEST_WORKING_DIRECTORY";

#[test]
#[ignore = "a worker process"]
fn worker_in_another_directory() {
    let Some(folder) = std::env::var_os(WORKER_FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    std::env::set_current_dir(&folder).expect("is there");
    fs::create_dir(folder.join("other")).expect("is made");
    fs::write("limits.toml", table("a", 5)).expect("is written");
    fs::write("other/limits.toml", table("a", 1)).expect("is written");
    paused_runtime().block_on(async {
        let limits = Limits::from_file("limits.toml").expect("valid");
        let _layer = limits.layer("a");
        limits.watch("limits.toml").expect("a runtime");
        settle().await;
        std::env::set_current_dir(folder.join("other")).expect("is there");
        settle().await;
        assert_eq!(max(&limits, "a"), Some(5));
        fs::write(folder.join("limits.toml"), table("a", 7)).expect("is written");
        settle().await;
        assert_eq!(max(&limits, "a"), Some(7));
        let watched = limits.status().watched;
        assert!(watched.is_some_and(|file| file.is_absolute()));
    });
}
