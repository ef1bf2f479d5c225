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

impl Tree {
    pub(crate) fn copy() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "README.md",
            "src",
            "lua",
            "tests",
            "docs",
            "benches",
            "examples",
        ] {
            copy(&root.join(name), &folder.path().join(name));
        }
        Self { folder }
    }

    pub(crate) fn mutate(&self, mutant: &Mutant) -> Mutated {
        let path = self.folder.path().join(mutant.file);
        let original = fs::read_to_string(&path).expect("a file of the tree");
        fs::write(&path, mutant.put_into(&original)).expect("is written");
        Mutated { path, original }
    }

    /// The tests that fail without a mutant, which have to be none.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = self.laws();
        failures.extend(self.histories());
        failures
    }

    /// The tests that fail with a mutant. A script is nothing to those that know the pure functions alone. What
    /// does not compile is a mistake in the list, not a kill.
    pub(crate) fn killers(&self, mutant: &Mutant) -> Vec<String> {
        let failures = match mutant.file.ends_with(".rs") {
            true => self.laws(),
            false => Vec::new(),
        };
        match failures.is_empty() {
            true => self.histories(),
            false => failures,
        }
    }

    fn laws(&self) -> Vec<String> {
        self.run(&["--test", "laws"], "800")
    }

    fn histories(&self) -> Vec<String> {
        self.run(&["--test", "store", "history"], "4000")
    }

    fn run(&self, tests: &[&str], histories: &str) -> Vec<String> {
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
        let failed = said.lines().filter_map(|line| {
            let name = line.strip_prefix("test ")?;
            name.strip_suffix(" ... FAILED").map(str::to_owned)
        });
        failed.collect()
    }
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
    fs::create_dir(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
