//! Four processes and one key: some lease units, others ask Redis for each one. No window holds
//! more than max.
//!
//! All processes and the server are on one machine, so one clock says when each unit was used. The
//! demand comes in steps, from a fifth of the quota to three times as much.
//!
//! With `TIDEGATE_LEASED_GRANTS` the test goes on until there are as many grants, in a release
//! build.

mod role;
mod windows;
mod worker;

use crate::*;
use role::Role;
use windows::{read_all, windows_of};
use worker::Step;

/// What a part of the test found.
#[derive(Debug, Default)]
struct Found {
    grants: u64,
    leased: u64,
    above: u64,
    /// In thousandths of max.
    fullest: u64,
}

/// Runs one process for each role, and checks all windows.
fn run(roles: &[Role], window: Duration, per_second: u64, lasts: Duration) -> Found {
    let server = Redis::start();
    let folder = tempfile::tempdir().expect("a folder");
    let micros = u64::try_from(window.as_micros()).expect("a short window");
    let max = per_second * micros / 1_000_000;
    // By then all processes have connected.
    let begin = unix_micros() + 500_000;
    let file = |at: usize| folder.path().join(at.to_string());
    let workers = start_workers("leased::worker::worker_uses_units", roles.len(), |at| {
        let step = Step {
            url: server.url.clone(),
            file: file(at),
            role: roles[at],
            window,
            max,
            begin,
            lasts,
        };
        step.to_words()
    });
    let outputs = outputs(workers);
    let windows = windows_of((0..roles.len()).flat_map(|at| read_all(&file(at))), micros);
    let fullest = windows.iter().max().copied().unwrap_or(0);
    let found = Found {
        grants: windows.len() as u64,
        leased: sum(&outputs, "leased "),
        above: windows.iter().filter(|units| **units > max).count() as u64,
        fullest: fullest * 1_000 / max,
    };
    assert_eq!(
        found.grants,
        sum(&outputs, "granted "),
        "every grant is in a file"
    );
    let by_role = roles.iter().zip(&outputs);
    let by_role = by_role.map(|(role, output)| (role, number(output, "granted ")));
    let by_role: Vec<_> = by_role.collect();
    println!(
        "max {max} in {window:?}: {} grants, {:.1} % of them leased; fullest window {fullest}; \
         {} windows above max; {by_role:?}",
        found.grants,
        found.leased as f64 * 100.0 / found.grants as f64,
        found.above,
    );
    found
}

/// The same with fewer units per second, where the machine is too busy to ask for all of them.
fn run_saturated(roles: &[Role], window: Duration, per_second: u64, lasts: Duration) -> Found {
    let mut found = Found::default();
    for slower in [1, 2, 4, 8] {
        found = run(roles, window, per_second / slower, lasts);
        if found.fullest >= 900 {
            return found;
        }
    }
    panic!("{found:?}: asked for too little");
}

/// Law 1, for processes that lease, that count for leases, and that know of none.
#[test]
fn no_window_is_above_max_with_leases() {
    let _machine = MACHINE.blocking_lock();
    let wanted = from_env("TIDEGATE_LEASED_GRANTS", 1);
    let (per_second, parts) = match wanted {
        1 => (20_000, vec![(200, 6 * SECOND), (1_000, 10 * SECOND)]),
        _ => {
            let windows = [100, 300, 1_000, 10_000];
            let parts = windows.map(|window| (window, 10 * SECOND + millis(3 * window)));
            (100_000, parts.to_vec())
        }
    };
    let mut all = Found::default();
    while all.grants < wanted {
        for &(window, lasts) in &parts {
            let found = run_saturated(&role::fleet(), millis(window), per_second, lasts);
            all.grants += found.grants;
            all.leased += found.leased;
            all.above += found.above;
        }
    }
    println!("{all:?}");
    assert!(all.leased * 50 > all.grants, "leased too little");
    assert_eq!(all.above, 0, "windows above max");
}

/// The check is sharp enough to see two percent.
#[test]
fn a_process_with_two_percent_more_is_noticed() {
    let _machine = MACHINE.blocking_lock();
    let roles = [Role::Leases, Role::Leases, Role::Plain, Role::Above];
    for window in [200, 1_000].map(millis) {
        // With fewer units where the machine is too busy to use them up.
        let found = [1, 2, 4, 8].map(|slower| 20_000 / slower).into_iter();
        let mut found = found.map(|rate| run(&roles, window, rate, 4 * SECOND));
        assert!(found.any(|found| found.above > 0), "{window:?}");
    }
}
