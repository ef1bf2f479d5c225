//! A copy of the tree, and what its tests say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::list::Mutant;

pub(crate) struct Tree {
    folder: TempDir,
}

/// Puts the file back as it was.
pub(crate) struct Mutated {
    path: PathBuf,
    original: String,
}

/// Which tests, and how many histories each tries.
type Tests = (&'static [&'static str], &'static str);
const LAWS: Tests = (&["--test", "laws", "--", "--skip", "fuzz::"], "800");
const HISTORIES: Tests = (
    &["--test", "store", "history", "--", "--skip", "attacks::"],
    "4000",
);
const LIMITER: Tests = (
    &[
        "--test",
        "limiter",
        "--",
        "dropped",
        "evicted",
        "exact",
        "expiry",
        "grants",
        "history",
        "layout",
        "surface",
        "waiting",
        "faults",
        "--skip",
        "attacks::",
    ],
    "400",
);
const LOCK: Tests = (
    &[
        "--lib",
        "--test",
        "lock",
        "--",
        "waiters",
        "wait_queue::",
        "turn::",
        "neighbours",
        "basics",
        "dropped",
        "network",
        "owners",
        "watchdog",
        "--skip",
        "attacks::",
    ],
    "0",
);

/// Takes over several counts.
const JOINT: Tests = (&["--test", "store", "--", "joint::history"], "200");

/// Keys that a partner's answer holds.
const HOLDS: Tests = (
    &["--lib", "--test", "store", "--", "holds::", "partner::"],
    "200",
);

/// Requests at a time.
const AT_A_TIME: [Tests; 2] = [
    JOINT,
    (
        &["--test", "layer", "--", "permits::", "--skip", "attacks::"],
        "0",
    ),
];

/// A deadline, by the server's clock.
const DEADLINE: Tests = (
    &[
        "--lib",
        "--test",
        "store",
        "--",
        "deadline",
        "clock",
        "--skip",
        "wrappers::",
        "--skip",
        "attacks::",
    ],
    "0",
);
/// Flights, redirections, and how a connection is judged; what is quick comes first.
const CONNECTION: [Tests; 4] = [
    (&["--lib", "--", "connection"], "0"),
    (
        &[
            "--test",
            "store",
            "--",
            "deadline::",
            "flights",
            "outage",
            "--skip",
            "wrappers::",
            "--skip",
            "attacks::",
        ],
        "0",
    ),
    (
        &[
            "--test",
            "topologies",
            "--",
            "connects",
            "quiet",
            "resharding",
            "twice",
            "--skip",
            "attacks::",
        ],
        "0",
    ),
    (&["--test", "store", "--", "in_the_order_of_arrival"], "0"),
];
/// What bounds a store that fails: alone, and around a store, where who is never answered waits for
/// ever.
const BOUNDS_ALONE: Tests = (&["--lib", "--", "breaker", "share"], "0");
const BOUNDS: Tests = (
    &[
        "--test",
        "store",
        "--",
        "wrappers::fallback",
        "wrappers::half_open",
        "wrappers::in_flight",
        "wrappers::layer",
        "wrappers::once",
    ],
    "0",
);

/// Answers to gRPC requests.
const GRPC: Tests = (
    &["--test", "layer", "--", "grpc", "--skip", "attacks::"],
    "0",
);

/// Takes that their callers send.
const DIRECT: Tests = (
    &[
        "--test",
        "store",
        "--",
        "direct",
        "flights",
        "--skip",
        "attacks::",
    ],
    "0",
);
const LONE_ORDER: Tests = (&["--test", "store", "--", "attacks::lone::order"], "0");

/// Several layers around one handler, and what a handler finds behind them.
const SEVERAL: Tests = (
    &[
        "--test",
        "layer",
        "--test",
        "store",
        "--",
        "several",
        "charges",
        "fields",
        "wrappers::layer",
        "wrappers::resilient",
        "--skip",
        "attacks::",
    ],
    "0",
);

/// What wrappers answer without the store: cached denials and leases, also in a simulated fleet.
const SHORTCUTS: Tests = (
    &[
        "--lib",
        "--test",
        "store",
        "--",
        "denial_cache",
        "unit_leases",
        "simulation",
        "--skip",
        "attacks::",
    ],
    "400",
);

/// What is given back by the outcome of a request, and by its handler.
const OUTCOMES: Tests = (
    &[
        "--test",
        "layer",
        "--",
        "outcomes",
        "charges",
        "--skip",
        "attacks::",
    ],
    "0",
);

/// Takes under several rules in one call.
const FLIGHTS_ALIKE: Tests = (&["--test", "store", "--", "flights_alike"], "0");

/// Which quotas a request has.
const PLANS: Tests = (
    &["--test", "layer", "--", "plans", "--skip", "attacks::"],
    "0",
);

/// Who is shown, who is let through, and who may change something.
const PAGE_COUNTS: Tests = (
    &["--lib", "--", "page::rates", "metrics::limited_keys"],
    "0",
);
const PAGE: Tests = (
    &[
        "--test",
        "layer",
        "--",
        "page::",
        "--skip",
        "web_app",
        "--skip",
        "attacks::",
    ],
    "0",
);
const PAGE_ATTACKS: Tests = (&["--test", "layer", "--", "attacks::page::"], "0");

impl Tree {
    pub(crate) fn copy() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = kit::root();
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "README.md",
            "src",
            "lua",
            "macros",
            "tests",
            "docs",
            "benches",
            "examples",
            // `laws` holds the targets; their corpus is not used here.
            "fuzz/src",
        ] {
            copy(&root.join(name), &folder.path().join(name));
        }
        Self { folder }
    }

    pub(crate) fn mutate(&self, mutant: &Mutant) -> Mutated {
        let (path, mutated) = mutant.put_into(self.folder.path());
        let original = fs::read_to_string(&path).expect("a file of the tree");
        fs::write(&path, mutated).expect("is written");
        Mutated { path, original }
    }

    /// Panics if one of the tests that know these mutants fails without them, with what it says.
    pub(crate) fn assert_passes(&self, mutants: &[&Mutant]) {
        let mut passed = Vec::new();
        for tests in mutants.iter().flat_map(|mutant| tests_of(mutant)) {
            if passed.contains(&tests) {
                continue;
            }
            let said = self.run(tests.0, tests.1);
            assert_eq!(
                failed(&said),
                Vec::<String>::new(),
                "without a mutant: {said}"
            );
            passed.push(tests);
        }
    }

    /// The tests that fail with a mutant. What does not compile is a mistake in the list, not a
    /// kill.
    pub(crate) fn killers(&self, mutant: &Mutant) -> Vec<String> {
        let tests = tests_of(mutant).into_iter();
        let mut failures = tests.map(|tests| failed(&self.run(tests.0, tests.1)));
        failures.find(|some| !some.is_empty()).unwrap_or_default()
    }

    fn run(&self, tests: &[&str], histories: &str) -> String {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let output = Command::new(env!("CARGO"))
            .current_dir(self.folder.path())
            .args(["test", "--all-features", "--no-fail-fast"])
            .args(tests)
            .env("CARGO_TARGET_DIR", target)
            .env("TIDEGATE_HISTORIES", histories)
            .env_remove("RUSTFLAGS")
            .output()
            .expect("cargo starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("test result:"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said.into_owned()
    }
}

/// The tests that know what a mutant changes; what is quick comes first. A script is nothing to
/// those that know the pure functions alone.
fn tests_of(mutant: &Mutant) -> Vec<Tests> {
    let is_of = |names: &[&str]| names.iter().any(|name| mutant.file.contains(name));
    let is_rust = mutant.file.ends_with(".rs");
    if mutant.part == "at a time" {
        return AT_A_TIME.to_vec();
    }
    if mutant.part.starts_with("limiter") || is_of(&["limiter", "permits"]) {
        return vec![LIMITER];
    }
    // Also of what lies below the lock: the subscriber of its channel.
    if mutant.part.starts_with("lock") {
        return vec![LOCK];
    }
    match mutant.part {
        "joint" | "joint, Lua" => vec![JOINT],
        "cache" | "leases" if is_rust => vec![SHORTCUTS, HISTORIES],
        "deadline" => vec![DEADLINE],
        "connection" => CONNECTION.to_vec(),
        "bounds" => vec![BOUNDS_ALONE, BOUNDS],
        "grpc" => vec![GRPC],
        "holds" => vec![HOLDS],
        "several" => vec![SEVERAL],
        "direct" => vec![DIRECT, LONE_ORDER],
        "outcome" => vec![OUTCOMES],
        "page" => vec![PAGE, PAGE_ATTACKS],
        "page, counts" => vec![PAGE_COUNTS],
        "plans of requests" => vec![PLANS],
        "plans in calls" => vec![FLIGHTS_ALIKE],
        "refunds, calls" => vec![DIRECT],
        _ if is_rust => vec![LAWS, HISTORIES],
        _ => vec![HISTORIES],
    }
}

fn failed(said: &str) -> Vec<String> {
    let failed = said.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?;
        name.strip_suffix(" ... FAILED").map(str::to_owned)
    });
    failed.collect()
}

impl Drop for Mutated {
    fn drop(&mut self) {
        fs::write(&self.path, &self.original).expect("is written");
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).expect("is copied");
        return;
    }
    fs::create_dir_all(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
