//! A copy of the tree, and what its tests say.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::mutant::{Change, Mutant};

pub(crate) struct Tree {
    folder: TempDir,
}

/// What became of a mutant.
pub(crate) enum Outcome {
    Noticed(String),
    /// None of the tests that should know it has, but this one.
    NoticedElsewhere(String),
    /// A mistake that the compiler finds is none.
    DoesNotBuild,
    Alive,
}

/// Puts the files back as they were.
pub(crate) struct Changed<'a>(&'a Tree);

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        for part in ["src", "lua", "crates", "macros"] {
            restore(&kit::root().join(part), &self.0.folder.path().join(part));
        }
    }
}

impl Tree {
    pub(crate) fn copy() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listed = Command::new("git")
            .current_dir(kit::root())
            .args("ls-files -z --cached --others --exclude-standard".split(' '))
            .output()
            .expect("git");
        let names = String::from_utf8(listed.stdout).expect("names");
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (kit::root().join(name), folder.path().join(name));
            // Of a removed file git knows until the next commit.
            if from.is_file() {
                fs::create_dir_all(to.parent().expect("a folder")).expect("a new folder");
                fs::copy(from, to).expect("is copied");
            }
        }
        Self { folder }
    }

    /// `None` if there is no place for it any more.
    pub(crate) fn apply(&self, mutant: &Mutant) -> Option<Changed<'_>> {
        match &mutant.change {
            Change::Text { file, from, to } => {
                let path = self.folder.path().join(file);
                let original = fs::read_to_string(&path).ok()?;
                assert_eq!(original.matches(from.as_str()).count(), 1, "{mutant}");
                fs::write(path, original.replace(from, to)).expect("is written");
            }
            Change::Patch(patch) => {
                let patched = Command::new("patch")
                    .current_dir(self.folder.path())
                    .args("--strip=1 --force --quiet --reject-file=- --input".split(' '))
                    .arg(patch)
                    .output();
                let is_patched = patched.expect("`patch` is installed").status.success();
                let changed = Changed(self);
                return is_patched.then_some(changed);
            }
        }
        Some(Changed(self))
    }

    /// What the first test that notices it says.
    pub(crate) fn outcome(&self, mutant: &Mutant) -> Outcome {
        for tests in &mutant.tests {
            match self.run(tests) {
                Said::DoesNotBuild => return Outcome::DoesNotBuild,
                Said::Failed(test) => return Outcome::Noticed(test),
                Said::Passed(0) => panic!("no such test: {tests}"),
                Said::Passed(_) => {}
            }
        }
        // A row that lacks a test costs time, and says nothing wrong. First the binaries of its tests.
        let of_row = |binary: &&str| {
            let mut tests = mutant.tests.iter();
            tests.any(|it| it.split_whitespace().any(|word| word == *binary))
        };
        let (own, others): (Vec<_>, Vec<_>) = BINARIES.split_whitespace().partition(of_row);
        for binary in own.into_iter().chain(others) {
            let tests = match binary {
                "--lib" => binary.to_owned(),
                // The rest takes minutes.
                "fleet" => "--test fleet -- --skip soak:: --skip starved::".to_owned(),
                name => format!("--test {name}"),
            };
            if let Said::Failed(test) = self.run(&tests) {
                return Outcome::NoticedElsewhere(test);
            }
        }
        Outcome::Alive
    }

    /// Whether a test passes without a mutant: else it has noticed none.
    pub(crate) fn passes(&self, test: &str) -> bool {
        let tests = match test.split_once(' ') {
            Some(("lib", name)) => format!("--lib -- --exact {name}"),
            Some((binary, name)) => format!("--test {binary} -- --exact {name}"),
            None => return false,
        };
        matches!(self.run(&tests), Said::Passed(1..))
    }

    /// What the tests say, until the first that fails; options may begin with settings, as in
    /// `TIDEGATE_HISTORIES=4000 --test histories`.
    fn run(&self, tests: &str) -> Said {
        const AFRESH: &str = "CARGO_INCREMENTAL=0";
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let packages = match tests.contains("--test macros") {
            true => "-p tidegate-macro-tests",
            false => "-p tidegate -p tidegate-base -p tidegate-redisson -p tidegate-tests",
        };
        let (settings, options): (Vec<_>, Vec<_>) = tests
            .split_whitespace()
            .partition(|word| word.contains('='));
        let settings = settings.iter().filter_map(|word| word.split_once('='));
        // The copy has no examples that were built.
        let without_examples: &[&str] = match options.contains(&"layer") {
            true => &["--skip", "examples::", "--skip", "web_app::"],
            false => &[],
        };
        let separator = (!options.contains(&"--")).then_some("--");
        // Whatever hangs is ended. `timeout` leads the group of all processes behind it.
        let mut child = Command::new("timeout")
            .args(["1200", env!("CARGO"), "test"])
            .args(["--all-features", "--no-fail-fast"])
            .current_dir(self.folder.path())
            .args(packages.split(' '))
            .args(&options)
            .args(separator)
            .args(without_examples)
            .env("CARGO_TARGET_DIR", target)
            .env("TIDEGATE_HISTORIES", "800")
            .envs(settings)
            .env_remove("RUSTFLAGS")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("cargo starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (mut passed, mut has_built) = (0, false);
        for line in said.map_while(Result::ok) {
            has_built |= line.starts_with("running ");
            passed += usize::from(line.ends_with(" ... ok"));
            let Some(name) = failed(&line) else {
                continue;
            };
            // Its servers, too.
            let group = format!("-{}", child.id());
            let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
            killed.expect("`kill` is installed");
            child.wait().expect("it ends");
            return Said::Failed(format!("{} {name}", binary_of(&options)));
        }
        match child.wait().expect("it ends").code() {
            // Tests that never end have noticed it.
            Some(124) if has_built => Said::Failed(format!("{tests} (it never ends)")),
            _ if has_built => Said::Passed(passed),
            // The compiler itself may fail where it builds on what it built before.
            _ if !tests.contains(AFRESH) => self.run(&format!("{AFRESH} {tests}")),
            _ => Said::DoesNotBuild,
        }
    }
}

/// Those of both tiers, without this one and what looks at texts.
const BINARIES: &str = "--lib laws histories store layer limiter lock topologies hostile_faults \
    hostile_store hostile_layer hostile_limiter hostile_lock hostile_topologies faults fleet";

/// What a command of tests says.
enum Said {
    Passed(usize),
    Failed(String),
    DoesNotBuild,
}

fn binary_of<'a>(options: &[&'a str]) -> &'a str {
    let at = options.iter().position(|&one| one == "--test");
    at.and_then(|at| options.get(at + 1)).unwrap_or(&"lib")
}

fn failed(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.trim_end_matches(" - should panic"))
}

/// Writes what differs: an equal file keeps its time, and is not built again.
fn restore(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            restore(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    let original = fs::read(from).expect("a file");
    if fs::read(to).ok().as_ref() != Some(&original) {
        fs::write(to, original).expect("is written");
    }
}
