//! What must not grow.

use std::{fmt, fs};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauges {
    pub(crate) resident_kib: u64,
    pub(crate) files: u64,
    pub(crate) tasks: u64,
    pub(crate) redis_kib: u64,
}

impl Gauges {
    /// Of this process, where the system shows it, and of the server.
    pub(crate) fn read(redis: &mut redis::Connection) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|value| value.trim().strip_suffix(" kB"));
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let info = redis::cmd("INFO").arg("memory").query(redis);
        let info: redis::InfoDict = info.expect("facts");
        Self {
            resident_kib: resident.map_or(0, |kib| kib.trim().parse().expect("a number")),
            files: files as u64,
            tasks: tasks as u64,
            redis_kib: info.get::<u64>("used_memory").expect("a number") / 1_024,
        }
    }

    /// Of several, the one in the middle for each.
    pub(crate) fn median(of: &[Self]) -> Self {
        let middle = |value: fn(&Self) -> u64| {
            let mut values: Vec<_> = of.iter().map(value).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self {
            resident_kib: middle(|gauges| gauges.resident_kib),
            files: middle(|gauges| gauges.files),
            tasks: middle(|gauges| gauges.tasks),
            redis_kib: middle(|gauges| gauges.redis_kib),
        }
    }

    /// Complains of what is larger than it was by more than a tenth and a bit.
    pub(crate) fn assert_not_above(&self, before: &Self) {
        let rows = [
            (
                "resident KiB",
                before.resident_kib,
                self.resident_kib,
                8_192,
            ),
            ("open files", before.files, self.files, 8),
            ("tasks", before.tasks, self.tasks, 8),
            ("redis KiB", before.redis_kib, self.redis_kib, 2_048),
        ];
        for (what, before, now, slack) in rows {
            let most = before + before / 10 + slack;
            assert!(now <= most, "{what}: {before}, later {now}");
        }
    }
}

impl fmt::Display for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resident_kib,
            files,
            tasks,
            redis_kib,
        } = self;
        write!(f, "{resident_kib} | {files} | {tasks} | {redis_kib}")
    }
}
