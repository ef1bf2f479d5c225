//! A copy of the tree, and what its tests say.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::mutant::{Change, Mutant};

pub(crate) struct Tree {
    folder: TempDir,
}

/// What became of a mutant.
pub(crate) enum Outcome {
    Noticed(String),
    /// A mistake that the compiler finds is none.
    DoesNotBuild,
    Alive,
}

/// Puts the files back as they were.
pub(crate) struct Changed<'a>(&'a Tree);

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        for part in ["src", "lua", "macros"] {
            restore(&kit::root().join(part), &self.0.folder.path().join(part));
        }
    }
}

impl Tree {
    pub(crate) fn copy() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listed = Command::new("git")
            .current_dir(kit::root())
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
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
                    .args([
                        "--strip=1",
                        "--force",
                        "--quiet",
                        "--reject-file=-",
                        "--input",
                    ])
                    .arg(patch)
                    .output();
                let is_patched = patched.expect("`patch` is installed").status.success();
                let changed = Changed(self);
                return is_patched.then_some(changed);
            }
        }
        Some(Changed(self))
    }

    /// Panics if one of the tests that know these mutants fails without them, with what it says.
    pub(crate) fn assert_passes(&self, mutants: &[Mutant]) {
        let mut commands: Vec<_> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
        commands.sort();
        commands.dedup();
        for tests in commands {
            let said = self.run(tests).expect("the tree builds");
            assert!(failed(&said).next().is_none(), "without a mutant: {said}");
            let ran = said.lines().any(|line| line.ends_with(" ... ok"));
            assert!(ran, "no such test: {tests}");
        }
    }

    /// What the first tests that notice it say.
    pub(crate) fn outcome(&self, mutant: &Mutant) -> Outcome {
        for tests in &mutant.tests {
            let Some(said) = self.run(tests) else {
                return Outcome::DoesNotBuild;
            };
            if let Some(first) = failed(&said).next() {
                return Outcome::Noticed(first.to_owned());
            }
        }
        Outcome::Alive
    }

    /// What the tests say; options may begin with settings, as in `TIDEGATE_HISTORIES=4000 --test
    /// histories`. `None` if the tree does not build.
    fn run(&self, tests: &str) -> Option<String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let packages: &[&str] = match tests.contains("--test macros") {
            true => &["-p", "tidegate-macro-tests"],
            false => &["-p", "tidegate", "-p", "tidegate-tests"],
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
        // Whatever hangs is ended.
        let output = Command::new("timeout")
            .args(["600", env!("CARGO"), "test"])
            .args(["--all-features", "--no-fail-fast"])
            .current_dir(self.folder.path())
            .args(packages)
            .args(options)
            .args(separator)
            .args(without_examples)
            .env("CARGO_TARGET_DIR", target)
            .env("TIDEGATE_HISTORIES", "800")
            .envs(settings)
            .env_remove("RUSTFLAGS")
            .output()
            .expect("cargo starts");
        let said = String::from_utf8_lossy(&output.stdout);
        // Tests that never end have noticed it.
        if output.status.code() == Some(124) {
            return Some(format!("{said}\ntest {tests} (it never ends) ... FAILED"));
        }
        said.contains("test result:").then(|| said.into_owned())
    }
}

fn failed(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?;
        name.strip_suffix(" ... FAILED")
    })
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
