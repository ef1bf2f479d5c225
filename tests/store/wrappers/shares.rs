//! What a fallback admits of a share, whatever requests cost, in whatever order, and under whatever
//! max: random histories beside a plain account of what was admitted.

use kit::random::Random;
use tidegate::rule::{Period, Policy};

use super::*;

const HOUR: u64 = 3_600_000_000;
const MONTH: u64 = 31 * 24 * HOUR;

/// What was admitted, and of which less may count after a refund.
struct Admitted {
    at: u64,
    units: u64,
    receipt: Receipt,
}

/// A fallback that decides, and what it admitted of one key.
struct Outage {
    store: Resilient<FlakyStore>,
    clock: ManualClock,
    admitted: Vec<Admitted>,
}

impl Outage {
    fn new(processes: u32) -> Self {
        let clock = clock_at(1_000_000_000_777);
        let flaky = FlakyStore::new(Mode::Fails(Kind::Timeout));
        let store = Resilient::bare(flaky).processes(processes);
        Self {
            store: store.fallback_store(MemoryStore::new().clock(clock.clone())),
            clock,
            admitted: Vec::new(),
        }
    }

    fn advance(&self, micros: u64) {
        self.clock.set(self.clock.now() + micros);
    }

    async fn is_admitted(&mut self, take: &Take) -> bool {
        let decision = ask(&self.store, take).await;
        let receipt = decision.receipt();
        self.admitted.extend(receipt.map(|receipt| Admitted {
            at: self.clock.now(),
            units: take.cost(),
            receipt,
        }));
        decision.is_allowed()
    }

    async fn refund(&mut self, take: &Take, at: usize, units: u64) {
        let it = &mut self.admitted[at];
        let units = units.min(it.units);
        let refund = take.clone().with_cost(units);
        it.units -= refunds(&self.store, &refund, &it.receipt).await.min(units);
    }

    /// The units that were admitted within this time, and how many requests those were.
    fn within(&self, micros: u64) -> (u64, usize) {
        let since = |it: &&Admitted| it.at + micros > self.clock.now() && it.units > 0;
        let inside = self.admitted.iter().filter(since);
        (inside.clone().map(|it| it.units).sum(), inside.count())
    }

    /// Whether each span holds no more than this at once, or one request, and what this rate refills.
    fn is_smooth(&self, at_once: u64, rate: f64) -> bool {
        let Some(last) = self.admitted.last() else {
            return true;
        };
        let (mut units, mut largest) = (0, at_once);
        self.admitted.iter().rev().all(|it| {
            (units, largest) = (units + it.units, largest.max(it.units));
            let refilled = (last.at - it.at) as f64 * rate;
            units as f64 <= largest as f64 + refilled + 1e-6
        })
    }
}

/// A rule of these windows in seconds, each with this max.
fn rule_of(algorithm: Algorithm, windows: &[u64], max: u64) -> Take {
    let quotas = windows.iter().enumerate().map(|(at, seconds)| {
        let max = max * (1 + at as u64);
        quota(max, Duration::from_secs(*seconds))
    });
    let rule = Rule::new("p", quotas.collect::<Vec<_>>()).expect("valid");
    take_of(rule.with_algorithm(algorithm))
}

/// No choice of costs, of their order, or of another max of the same windows (a plan, a raise, a
/// reload) gives a key more of a window than the share, or than one request where that is more.
#[tokio::test]
async fn no_costs_and_no_max_give_more_than_a_share() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let algorithm = Algorithm::ALL[seed as usize % 4];
        let processes = 1 + random.below(6);
        let windows = &[60, 240, 3_600][..1 + random.below(3) as usize];
        let max = [1, 3, 50, 1_000][random.below(4) as usize];
        let rules = [max, max, 1 + max / 3, 5 * max].map(|max| rule_of(algorithm, windows, max));
        let mut it = Outage::new(processes as u32);
        // The running window of each fixed window, and what it holds.
        let mut fixed = vec![(0, 0); windows.len()];
        let mut descending = max;
        for step in 0..400 {
            it.advance([0, 1, 900_000, 7_000_000, 61_000_000][random.below(5) as usize]);
            let of = random.below(4) as usize;
            let take = &rules[of];
            if random.is(5) && !it.admitted.is_empty() && algorithm != Algorithm::FixedWindow {
                let at = random.below(it.admitted.len() as u64) as usize;
                it.refund(take, at, 1 + random.below(max)).await;
                continue;
            }
            descending = if descending <= 10 {
                max
            } else {
                descending - 10
            };
            let cost = [1, 1 + random.below(max), descending][random.below(3) as usize];
            let is_admitted = it.is_admitted(&take.clone().with_cost(cost)).await;
            let now = it.clock.now();
            for (at, (quota, running)) in take.quotas().iter().zip(&mut fixed).enumerate() {
                let window = u64::try_from(quota.window().as_micros()).expect("hours");
                let max = quota.max();
                let part = (max / processes).max(1);
                let context =
                    format!("seed {seed}, step {step}, {algorithm:?}, {cost} of {quota:?}");
                let (in_window, number) = it.within(window);
                let (in_longer, _) = it.within(window * processes);
                if !is_admitted {
                    let (in_later, _) = it.within(window * processes * 65 / 64 + 1_000);
                    let is_full = in_window > 0 && in_window + cost > part;
                    let is_reason = is_full || in_later + cost > max;
                    let others = take.quotas().len() > 1 || algorithm != Algorithm::SlidingLog;
                    assert!(is_reason || others, "denied: {context}");
                    continue;
                }
                match algorithm {
                    Algorithm::Gcra => {
                        let largest = rules[3].quotas()[at].max();
                        let rate = largest as f64 / (window * processes) as f64;
                        let at_once = (largest / processes).max(1);
                        assert!(it.is_smooth(at_once, rate), "{context}");
                    }
                    Algorithm::FixedWindow => {
                        if running.0 + window <= now {
                            *running = (now, 0);
                        }
                        running.1 += cost;
                        assert!(running.1 <= part.max(cost), "{context}: {running:?}");
                        // A share of the whole is the quota itself, also at the edge of a window.
                        let is_bounded = in_longer <= max || processes == 1;
                        assert!(is_bounded, "{context}: {in_longer} in W / share");
                    }
                    _ => {
                        assert!(in_window <= part || number == 1, "{context}: {in_window}");
                        assert!(in_longer <= max, "{context}: {in_longer} in W / share");
                    }
                }
            }
        }
    }
}

/// A month's share: in any 31 days no more than that, and above an hour's part what comes evenly.
#[tokio::test]
async fn no_month_has_more_than_its_share() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let processes = 1 + random.below(4);
        let max = [5, 500, 2_000, 100_000][random.below(4) as usize];
        let (share, mut it) = ((max / processes).max(1), Outage::new(processes as u32));
        let policy = Policy::calendar(Period::MONTH, max);
        let take = take_of(Rule::with_policies("budget", [policy]).expect("valid"));
        for step in 0..300 {
            it.advance([0, 1, HOUR / 50, HOUR, 30 * HOUR][random.below(5) as usize]);
            let below = [1, share, share, 9][random.below(4) as usize];
            let cost = 1 + random.below(below);
            it.is_admitted(&take.clone().with_cost(cost)).await;
            let (units, _) = it.within(MONTH);
            assert!(
                units <= share,
                "seed {seed}, step {step}: {units} of {share}"
            );
            let part = (share / (31 * 24)).max(1);
            let is_smooth = it.is_smooth(part, share as f64 / MONTH as f64);
            assert!(is_smooth, "seed {seed}, step {step}: {cost} of {share}");
        }
    }
}

/// The smallest inputs: what one key is admitted by one of four processes, or of five.
#[tokio::test]
async fn costs_that_differ_are_counted_together() {
    for algorithm in Algorithm::ALL {
        let mut it = Outage::new(4);
        let take = rule_of(algorithm, &[60], 1_000);
        for cost in (1..=991).rev().step_by(10).chain((1..=1_000).rev()) {
            it.is_admitted(&take.clone().with_cost(cost)).await;
        }
        assert_eq!(it.within(60_000_000), (991, 1), "{algorithm:?}");
    }
    let mut it = Outage::new(2);
    let policy = Policy::calendar(Period::MONTH, 1_000);
    let take = take_of(Rule::with_policies("budget", [policy]).expect("valid"));
    for _ in 0..31 * 24 - 1 {
        it.is_admitted(&take.clone().with_cost(450)).await;
        it.advance(HOUR);
    }
    assert_eq!(it.within(MONTH), (450, 1));
}

/// Where the longer window, or the time that refills a burst, would be more than ten years.
#[tokio::test]
async fn the_longest_window_admits_a_request() {
    let year = Duration::from_secs(365 * 86_400);
    for algorithm in Algorithm::ALL {
        for (max, window, processes, cost) in
            [(1, year, 11, 1), (22, year, 11, 22), (1, 10 * year, 2, 1)]
        {
            let mut it = Outage::new(processes);
            let take = take_of(rule(quota(max, window)).with_algorithm(algorithm)).with_cost(cost);
            let context = format!("{algorithm:?} {max} {window:?} {cost}");
            assert!(it.is_admitted(&take).await, "{context}");
            assert!(!it.is_admitted(&take).await, "{context}");
        }
    }
    let bursts = Quota::per_day(1).with_burst(1_000).expect("valid");
    let take = take_of(rule(bursts).with_algorithm(Algorithm::Gcra)).with_cost(914);
    assert!(Outage::new(4).is_admitted(&take).await);
}

/// Requests of one unit are admitted as if each process had its part alone: as the store's own
/// algorithm admits of it. `--nocapture` shows the ratios.
#[tokio::test]
async fn units_are_admitted_as_by_the_part_alone() {
    for algorithm in Algorithm::ALL {
        for (max, processes) in [(1_000, 4), (100, 3), (7, 2), (2, 4), (60, 1)] {
            let (part, seconds) = match max / processes {
                0 => (1, 60 * processes / max),
                part => (part, 60),
            };
            let take = rule_of(algorithm, &[60], max);
            let mut it = Outage::new(processes as u32);
            let alone = MemoryStore::new().clock(it.clock.clone());
            let take_of_part = rule_of(algorithm, &[seconds], part);
            let mut expected = 0;
            // Twelve times the longer window.
            for _ in 0..12_000 {
                it.advance(60_000_000 * processes / 1_000);
                for _ in 0..4 {
                    it.is_admitted(&take).await;
                }
                expected += allowed(&alone, &take_of_part, 4).await;
            }
            let ratio = it.admitted.len() as f64 / expected as f64;
            println!("{algorithm:?}: {max} for {processes}: {ratio:.3}");
            assert!(
                ratio >= 0.97,
                "{algorithm:?}, {max} for {processes}: {ratio}"
            );
        }
    }
}
