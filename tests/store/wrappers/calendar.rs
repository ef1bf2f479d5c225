//! Wrappers around takes of calendar quotas.

use tidegate::rule::{Period, Policy};
use tidegate::store::Capabilities;

use super::*;

const MONTH_HOURS: u64 = 31 * 24;
const HOUR: Duration = Duration::from_secs(3_600);
const MONTH: Duration = Duration::from_secs(31 * 24 * 3_600);

fn month(max: u64) -> Take {
    take_of(Period::MONTH, max)
}

fn take_of(period: Period, max: u64) -> Take {
    let policy = Policy::calendar(period, max);
    let rule = Rule::with_policies("budget", [policy]).expect("a rule");
    Take::new(rule.into(), Key::default())
}

/// A store, and a fallback that admits a part of its quotas, on one clock beside tokio's.
struct Wrapped {
    flaky: FlakyStore,
    store: Resilient<FlakyStore>,
    clock: ManualClock,
}

impl Wrapped {
    /// On the 12th of January 1970.
    fn new(processes: u32) -> Self {
        let clock = clock_at(1_000_000_000_777);
        let memory = || MemoryStore::new().clock(clock.clone());
        let flaky = FlakyStore::around(memory(), Mode::Works);
        let store = Resilient::bare(flaky.clone()).processes(processes);
        Self {
            store: store.fallback_store(memory()),
            flaky,
            clock,
        }
    }

    fn fails(&self) {
        self.flaky.set(Mode::Fails(Kind::Timeout));
    }

    async fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).expect("years");
        self.clock.set(self.clock.now() + micros);
        tokio::time::advance(time).await;
    }

    /// The month of this instant.
    fn month(&self) -> std::ops::Range<std::time::SystemTime> {
        Period::MONTH.around(self.now())
    }

    fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_micros(self.clock.now())
    }
}

/// It is denied for some seconds, after which the store may have room.
fn is_for_now(denied: &Decision) {
    let verdict = denied.verdict();
    assert!(matches!(verdict, Verdict::Denied { .. }), "{verdict:?}");
    assert!(denied.retry_after() <= Some(6 * SECOND), "{verdict:?}");
}

/// What a request used beyond its reservation is charged, up to a share more.
#[tokio::test(start_paused = true)]
async fn a_settlement_above() {
    let it = Wrapped::new(2);
    it.fails();
    let take = month(2 * 3 * MONTH_HOURS);
    let receipt = ask(&it.store, &take).await.receipt();
    let receipt = receipt.expect("it was allowed");
    for (asked, charged) in [(7, 7), (9_000, 3 * MONTH_HOURS + 3 - 8)] {
        let owed = it.store.owe(&take.clone().with_cost(asked), &receipt).await;
        assert_eq!(owed.expect("an answer"), charged);
        is_for_now(&ask(&it.store, &take).await);
    }
    it.advance(HOUR).await;
    is_for_now(&ask(&it.store, &take).await);
    it.advance(MONTH + HOUR).await;
    assert_eq!(allowed(&it.store, &take, 9).await, 3);
}

/// What an hour's part is taken from: it drains by a share in 31 days.
#[derive(Clone, Copy, Default)]
struct Bucket {
    start: u64,
    units: u64,
}

impl Bucket {
    fn used(&self, now: u64, share: u64) -> u64 {
        let drained = u128::from(now - self.start) * u128::from(share) / MONTH.as_micros();
        self.units
            .saturating_sub(u64::try_from(drained).expect("few"))
    }

    fn charge(&mut self, now: u64, share: u64, units: u64) {
        if self.used(now, share) == 0 {
            (self.start, self.units) = (now, 0);
        }
        self.units += units;
    }
}

/// Outages come and go: a fallback admits an hour's part of its share at once, or one request, and
/// what comes evenly; none above the share, nor above what the last answer left, where that had no
/// room for another one; and it denies nothing else.
#[tokio::test(start_paused = true)]
async fn outages_come_and_go() {
    for seed in 0..40 {
        let mut random = kit::random::Random::new(seed);
        let max = [1, 10, 500, 10_000, 100_000][random.below(5) as usize];
        let processes = 1 + random.below(5);
        let share = (max / processes).max(1);
        let part = (share / MONTH_HOURS).max(1);
        let it = Wrapped::new(u32::try_from(processes).expect("few"));
        // Until when, and how much the store left of what was asked for.
        let mut spent: Option<(std::time::SystemTime, u64)> = None;
        let mut charged: Vec<(std::time::SystemTime, u64, Receipt)> = Vec::new();
        // How full it is if all that was given back is counted no more; and if nothing is.
        let mut bucket = [Bucket::default(); 2];
        let mut is_up = true;
        for _ in 0..600 {
            if random.is(10) {
                is_up = !is_up;
                it.flaky.set(if is_up {
                    Mode::Works
                } else {
                    Mode::Fails(Kind::Timeout)
                });
            }
            let minutes = [0, 1, 50, 60, 600, 9_000][random.below(6) as usize];
            it.advance(Duration::from_micros(60_000_000 * minutes + 2_777))
                .await;
            spent = spent.filter(|(end, _)| *end > it.now());
            let now = it.now();
            let since = |at: std::time::SystemTime| now.duration_since(at).expect("before");
            if random.is(10) && !charged.is_empty() {
                let (at, units, receipt) =
                    charged.swap_remove(random.below(charged.len() as u64) as usize);
                let take = month(max).with_cost(units);
                let refunded = it.store.refund(&take, &receipt).await;
                let refunded = refunded.expect("an answer");
                assert!(refunded == units || since(at) >= MONTH, "seed {seed}");
                bucket[0].units -= units.min(bucket[0].used(it.clock.now(), share));
                continue;
            }
            let up_to = [1, 1 + part, 1 + share, 1 + max / 3];
            let up_to = up_to[random.below(4) as usize];
            let cost = 1 + random.below(up_to);
            let decision = ask(&it.store, &month(max).with_cost(cost)).await;
            if is_up {
                let left = decision.quotas()[0].remaining();
                spent = (left < cost).then_some((it.month().end, left));
                continue;
            }
            let used = |within: Duration| {
                let charged = charged.iter().filter(|(at, ..)| since(*at) < within);
                charged.map(|(_, units, _)| *units).sum::<u64>()
            };
            let room = part.max(cost);
            let is_spent = spent.is_some_and(|(_, left)| cost > left);
            let [least, most] = bucket
                .each_ref()
                .map(|it_is| it_is.used(it.clock.now(), share));
            let context = format!("seed {seed}: {cost} of {max}, {spent:?}");
            match decision.receipt() {
                Some(receipt) => {
                    assert!(cost <= share && !is_spent, "{context}");
                    assert!(least + cost <= room, "{context}");
                    assert!(used(MONTH) + cost <= share, "{context}");
                    charged.push((now, cost, receipt));
                    for bucket in &mut bucket {
                        bucket.charge(it.clock.now(), share, cost);
                    }
                }
                None => {
                    match cost > max {
                        true => assert_eq!(decision.verdict(), Verdict::Never),
                        false => is_for_now(&decision),
                    }
                    let is_used = most + cost > room || used(MONTH * 65 / 64) + cost > share;
                    assert!(is_used || is_spent, "{context}");
                }
            }
        }
    }
}

/// A budget of a month of which the store has left a little, and twenty days without it: one process
/// of four admits its share evenly, however little is left, unless the last answer had no room.
#[tokio::test(start_paused = true)]
async fn the_last_units_in_an_outage() {
    for (used, cost, expected) in [(7_000, 1, 1_201), (7_000, 40, 1_200), (7_440, 1, 36)] {
        let it = Wrapped::new(4);
        ask(&it.store, &month(7_440).with_cost(used)).await;
        ask(&it.store, &month(7_440).with_cost(cost)).await;
        it.fails();
        let mut admitted = 0;
        for _ in 0..20 * 24 * 6 {
            it.advance(HOUR / 6).await;
            let take = month(7_440).with_cost(cost);
            while ask(&it.store, &take).await.is_allowed() {
                admitted += cost;
            }
        }
        assert_eq!(
            admitted, expected,
            "{cost} at a time, of which {used} are used"
        );
    }
}

/// A denial is cached until the end of the month.
#[tokio::test]
async fn a_denial_is_cached() {
    let store = Resilient::bare(FlakyStore::new(Mode::Works)).denial_cache(Duration::MAX);
    let take = month(1);
    assert_eq!(allowed(&store, &take, 3).await, 1);
    let denied = ask(&store, &take).await;
    assert_eq!(denied.source(), Source::Cache);
    let reset = denied.reset_after();
    assert!(denied.retry_after() <= Some(reset) && reset > Duration::ZERO);
}

/// A store that cannot is not asked.
#[tokio::test]
async fn a_store_without_calendars_is_a_mistake() {
    let plain = Stub::around(MemoryStore::new()).capabilities_fn(|_| Capabilities::default());
    let limits = Limits::new([Rule::clone(month(1).rule())]).store(plain);
    let refused = limits.check("budget", Key::default()).await;
    let refused = refused.expect_err("no decision");
    let error = refused.error().expect("an error");
    assert_eq!(error.kind(), Kind::Configuration);
    let is_so = error.to_string().contains("Capabilities::calendar");
    assert!(is_so, "{error}");
}
