//! The scenarios of docs/evidence/scale.md.

use crate::simulation::{Demand, Faults, Mode, Outcome, Scenario, Upset, run};

pub(crate) const MODES: [Mode; 4] = [Mode::Plain, Mode::Leased, Mode::OwnPart, Mode::OwnWhole];
const PROCESSES: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];

/// One demand, through each mode, in fleets of several sizes.
pub(crate) struct Sweep {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<(Mode, usize, Outcome)>,
}

/// What the server of one of the sweeps can do: an assumption, 200,000 decisions per second.
const SERVER_PER_TICK: u64 = 200;

pub(crate) fn sweeps() -> [Sweep; 2] {
    [
        Sweep::new(
            "above",
            "1.2 times the quota is asked for; the server has no bounds",
            1.2,
            u64::MAX,
        ),
        Sweep::new(
            "saturated",
            "0.8 times the quota is asked for; the server decides 200,000 per second",
            0.8,
            SERVER_PER_TICK,
        ),
    ]
}

impl Sweep {
    fn new(name: &'static str, title: &'static str, times: f64, server_per_tick: u64) -> Self {
        let cells = MODES
            .iter()
            .flat_map(|mode| PROCESSES.map(|processes| (*mode, processes)));
        let rows = cells.map(|(mode, processes)| {
            let scenario = Scenario {
                server_per_tick,
                ..Scenario::new(mode, processes, Demand::Skewed(times))
            };
            (mode, processes, run(&scenario))
        });
        Self {
            name,
            title,
            rows: rows.collect(),
        }
    }

    pub(crate) fn table(&self) -> String {
        let rows = self.rows.iter();
        let rows = rows.map(|(mode, processes, outcome)| row(*mode, *processes, outcome));
        format!("{}\n{HEAD}{}", self.title, rows.collect::<String>())
    }
}

const HEAD: &str = "\
| mode | processes | most in a window / max | used share | leased | questions per request | \
in the busiest 100 ms | p99, ms | failed |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";

fn row(mode: Mode, processes: usize, outcome: &Outcome) -> String {
    format!(
        "| {mode:?} | {processes} | {:.3} | {:.4} | {:.3} | {:.3} | {:.2} | {} | {:.3} |\n",
        outcome.most(),
        outcome.used_share(),
        outcome.leased_share(),
        outcome.questions_per_request(),
        outcome.busiest(),
        outcome.p99(),
        outcome.failed_share(),
    )
}

/// A thousand processes that lease: what the window, the demand and the server change.
pub(crate) fn with_a_thousand() -> String {
    let unbounded = u64::MAX;
    let cases = [
        (1_000, 8, Demand::Steady(1.2), unbounded, 0),
        (1_000, 8, Demand::Steady(1.2), unbounded, 4_000),
        (10_000, 1, Demand::Steady(1.2), unbounded, 0),
        (10_000, 1, Demand::Steady(1.2), unbounded, 4_000),
        (1_000, 2, Demand::Skewed(0.8), unbounded, 0),
        (1_000, 2, Demand::Skewed(0.8), SERVER_PER_TICK, 0),
        (1_000, 2, Demand::Skewed(0.8), SERVER_PER_TICK, 4_000),
        (2_500, 1, Demand::Skewed(0.8), unbounded, 0),
        (2_500, 1, Demand::Skewed(0.8), SERVER_PER_TICK, 0),
        (2_500, 1, Demand::Skewed(0.8), SERVER_PER_TICK, 4_000),
    ];
    let mut text = String::from("a thousand processes that lease\n");
    for (window, cycles, demand, server_per_tick, ramp) in cases {
        let scenario = Scenario {
            window,
            cycles,
            server_per_tick,
            ramp,
            ..Scenario::new(Mode::Leased, 1_000, demand)
        };
        let server = match server_per_tick {
            u64::MAX => "without bounds".to_owned(),
            per_tick => format!("{per_tick} per ms"),
        };
        text += &format!("{window} ms, {demand:?}, server {server}, begins in {ramp} ms\n");
        text += &row(Mode::Leased, 1_000, &run(&scenario));
        let mode = Mode::Cached;
        text += &row(mode, 1_000, &run(&Scenario { mode, ..scenario }));
    }
    text + "\n"
}

const FAULTS: Faults = Faults {
    losses: 0.01,
    delays: 0.02,
    partitions: 0.3,
    crashes: 0.3,
    pauses: 0.5,
};

/// What is lost with messages and processes counts and is not used: many losses would hide a
/// small excess.
const FEW_LOSSES: Faults = Faults {
    losses: 0.000_1,
    delays: 0.001,
    partitions: 0.02,
    crashes: 0.02,
    pauses: 0.2,
};

/// Messages are lost and late, processes crash, pause and are cut off.
pub(crate) fn with_faults() -> Result<String, String> {
    let mut text = format!("with faults\n{HEAD}");
    for mode in [Mode::Plain, Mode::Leased, Mode::Cached, Mode::Mixed] {
        for (faults, demand) in [
            (FAULTS, Demand::Bursts(2.0)),
            (FEW_LOSSES, Demand::Steady(1.2)),
        ] {
            for (processes, seeds) in [(1, 1..=10), (10, 1..=10), (100, 1..=3), (1_000, 1..=1)] {
                for seed in seeds {
                    let scenario = Scenario {
                        faults,
                        seed,
                        ..Scenario::new(mode, processes, demand)
                    };
                    text += &hurt(&scenario)?;
                }
            }
        }
    }
    Ok(text + "\n")
}

fn hurt(scenario: &Scenario) -> Result<String, String> {
    let outcome = run(scenario);
    if outcome.windows_above_max() > 0 {
        return Err(format!("a window above max: {scenario:?}"));
    }
    let (crashes, partitions, pauses) = (outcome.crashes, outcome.partitions, outcome.pauses);
    let row = row(scenario.mode, scenario.processes, &outcome);
    Ok(match scenario.seed {
        1 => format!("{crashes} crashes, {partitions} partitions, {pauses} pauses\n{row}"),
        _ => String::new(),
    })
}

/// One upset, for plain and leased.
pub(crate) struct Upsets {
    pub(crate) title: &'static str,
    pub(crate) outcomes: [(Mode, Outcome); 2],
}

/// When the server is upset: the quota of its cycle is used up.
pub(crate) const UPSET_AT: u64 = 2_637;

/// The figures of the upsets.
pub(crate) fn table(upsets: &[Upsets]) -> String {
    let mut text = String::from("| upset | mode | forgotten | excess |\n|---|---|--:|--:|\n");
    for Upsets { title, outcomes } in upsets {
        for (mode, outcome) in outcomes {
            let (forgotten, excess) = (outcome.forgotten, outcome.excess());
            text += &format!("| {title} | {mode:?} | {forgotten} | {excess} |\n");
        }
    }
    text + "\n"
}

pub(crate) fn upsets() -> Result<Vec<Upsets>, String> {
    let cases = [
        ("a failover that loses the last second", Upset::Failover),
        ("the clock steps 300 ms ahead", Upset::Step(300)),
        ("the clock steps 300 ms back", Upset::Step(-300)),
    ];
    let mut upsets = Vec::new();
    for (title, upset) in cases {
        let outcome = |mode| {
            let scenario = Scenario {
                upset: Some((UPSET_AT, upset)),
                cycles: 4,
                ..Scenario::new(mode, 30, Demand::Steady(2.0))
            };
            let outcome = run(&scenario);
            match outcome.excess() <= outcome.forgotten {
                true => Ok((mode, outcome)),
                false => Err(format!("more than was forgotten: {scenario:?}")),
            }
        };
        let outcomes = [outcome(Mode::Plain)?, outcome(Mode::Leased)?];
        upsets.push(Upsets { title, outcomes });
    }
    Ok(upsets)
}
