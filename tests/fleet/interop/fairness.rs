//! Who gets a lock that processes of both languages want.

use std::time::Duration;

use super::fleet::Language::{Java, Rust};
use super::fleet::{Language, Process};
use super::is_long;
use kit::Redis;
use kit::workers::number;

const WAITERS: u64 = 8;

/// What the processes of one language had of a lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Had {
    processes: u64,
    holds: u64,
    pub(crate) longest: Duration,
}

#[derive(Debug)]
pub(crate) struct Contest {
    pub(crate) java: Had,
    pub(crate) rust: Had,
    lasted: Duration,
}

impl Contest {
    pub(crate) fn run(url: &str, lock: &str, fleet: &[Language], hold_micros: u64) -> Self {
        let lasted = Duration::from_secs(if is_long() { 12 } else { 4 });
        let words = format!("{lock} {WAITERS} {} {hold_micros}", lasted.as_millis());
        let mut fleet = Process::start_all(fleet, "contend", url, &words);
        fleet.iter_mut().for_each(|process| process.tell("go"));
        let (mut java, mut rust) = (Had::default(), Had::default());
        for process in fleet {
            let had = match process.who {
                Java => &mut java,
                Rust => &mut rust,
            };
            let output = process.rest().join("\n");
            had.processes += 1;
            had.holds += number(&output, "holds ");
            let longest = Duration::from_micros(number(&output, "longest "));
            had.longest = had.longest.max(longest);
        }
        Self { java, rust, lasted }
    }

    fn holds_per_second(&self) -> u64 {
        let holds = self.java.holds + self.rust.holds;
        holds * 1_000 / u64::try_from(self.lasted.as_millis()).expect("seconds")
    }

    /// What of its share of the holds this one had, in percent.
    pub(crate) fn share(&self, of: Had) -> u64 {
        let processes = self.java.processes + self.rust.processes;
        let holds = self.java.holds + self.rust.holds;
        of.holds * processes * 100 / (holds * of.processes.max(1))
    }

    pub(crate) fn print(&self, hold_micros: u64) {
        let had = |of: Had| {
            let (share, longest) = (self.share(of), of.longest);
            format!(
                "{} processes, {share:>3} % of their share, waits to {longest:.1?}",
                of.processes
            )
        };
        let (rust, java, holds) = (had(self.rust), had(self.java), self.holds_per_second());
        println!("held {hold_micros:>4} us: {holds:>5} holds/s; Rust {rust}; Java {java}");
    }
}

/// Whoever waits in one language has half of its share at least, and nobody waits for long.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn each_language_has_its_share() {
    println!();
    let fleets: [&[Language]; 4] = [
        &[Java, Java, Java],
        &[Rust, Rust, Rust],
        &[Rust, Java, Java],
        &[Rust, Rust, Java],
    ];
    let holds: &[u64] = if is_long() { &[0, 1_000] } else { &[1_000] };
    let all = holds.iter().map(|&hold_micros| {
        fleets.map(|fleet| {
            let server = Redis::start();
            let contest = Contest::run(&server.url, "contended", fleet, hold_micros);
            contest.print(hold_micros);
            contest
        })
    });
    for [java, rust, mixed @ ..] in all.collect::<Vec<_>>() {
        assert!(rust.holds_per_second() > java.holds_per_second());
        // A pause of a busy machine is none of anybody's doing.
        let bound = 3 * java.java.longest.max(Duration::from_millis(300));
        for contest in mixed {
            for had in [contest.java, contest.rust] {
                assert!(contest.share(had) >= 50, "{contest:?}");
                assert!(had.longest <= bound, "{contest:?}, expected {bound:?}");
            }
        }
    }
}
