//! Clocks of other processes that a test sets, by libfaketime, where that is installed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// What a process takes for the time of day: this machine's time with an offset. How long things
/// take stays true.
pub struct FakeClock {
    library: &'static str,
    folder: TempDir,
}

impl FakeClock {
    /// A clock that is right for now; `None` where libfaketime is not installed.
    pub fn find() -> Option<Self> {
        let library = LIBRARIES
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Self { library, folder };
        clock.set(0.0);
        Some(clock)
    }

    /// The same if `redis-server` also runs by it: one that contains an allocator which asks for
    /// the time does not. Otherwise it says that the test is skipped.
    pub fn find_for_redis() -> Option<Self> {
        static IS_USABLE: LazyLock<bool> = LazyLock::new(|| {
            FakeClock::find().is_some_and(|clock| {
                let mut command = Command::new("redis-server");
                let command = command.arg("--version").envs(clock.environment());
                succeeds_soon(command.stdout(Stdio::null()).stderr(Stdio::null()))
            })
        });
        let clock = IS_USABLE.then(Self::find).flatten();
        if clock.is_none() {
            println!("skipped: redis-server does not run under libfaketime here");
        }
        clock
    }

    /// As of now it is ahead of this machine's by so many seconds.
    pub fn set(&self, ahead: f64) {
        // In one step: a process reads the file whenever it asks for the time.
        let file = tempfile::NamedTempFile::new_in(&self.folder).expect("a file");
        std::fs::write(&file, format!("{ahead:+.6}\n")).expect("is written");
        file.persist(self.file()).expect("replaces the other");
    }

    /// What a process needs that has this clock.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        // Debian's Redis takes memory from jemalloc, which asks for the time before the library is
        // ready; with libc in front it does not.
        let preload = format!("{} libc.so.6", self.library);
        vec![
            ("LD_PRELOAD", preload),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // What steps is the time of day.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("offset")
    }
}

fn succeeds_soon(command: &mut Command) -> bool {
    let (mut child, began) = (command.spawn().expect("it starts"), Instant::now());
    while began.elapsed() < Duration::from_secs(20) {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
    false
}
