//! What must not grow.

use std::{fmt, fs};

/// What is measured, and by how much it may grow besides a tenth.
const KINDS: [(&str, u64); 4] = [
    ("resident KiB", 8_192),
    ("open files", 8),
    ("tasks", 8),
    ("redis KiB", 2_048),
];

#[derive(Clone, Copy)]
pub(crate) struct Gauges([u64; KINDS.len()]);

impl Gauges {
    /// Of this process, where the system shows it, and of the server.
    pub(crate) fn read(server: &kit::Redis) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|value| value.trim().strip_suffix(" kB"));
        let resident = resident.map_or(0, |kib| kib.trim().parse().expect("a number"));
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let runtime = tokio::runtime::Handle::current().metrics();
        let info: redis::InfoDict = server.run("INFO memory");
        let memory: u64 = info.get("used_memory").expect("a number");
        let tasks = runtime.num_alive_tasks() as u64;
        Self([resident, files as u64, tasks, memory / 1_024])
    }

    /// Of several, the one in the middle for each.
    pub(crate) fn median(of: &[Self]) -> Self {
        Self(std::array::from_fn(|kind| {
            let mut values: Vec<_> = of.iter().map(|gauges| gauges.0[kind]).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        }))
    }

    /// Complains of what is larger than it was by more than a tenth and a bit.
    pub(crate) fn assert_not_above(&self, before: &Self) {
        for ((what, slack), (before, now)) in KINDS.iter().zip(before.0.iter().zip(self.0)) {
            let most = before + before / 10 + slack;
            assert!(now <= most, "{what}: {before}, later {now}");
        }
    }
}

impl fmt::Display for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.map(|value| value.to_string()).join(" | "))
    }
}
