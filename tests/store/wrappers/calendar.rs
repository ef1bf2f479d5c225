//! Wrappers around takes of calendar quotas.

use tidegate::rule::{Period, Policy};
use tidegate::store::Capabilities;

use super::*;

const MONTH_HOURS: u64 = 31 * 24;
const HOUR: Duration = Duration::from_secs(3_600);

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

    fn to_the_end(&self) -> Duration {
        let left = self.month().end.duration_since(self.now());
        left.expect("it ends behind now")
    }

    /// What a look says is left.
    async fn left(&self, take: &Take) -> u64 {
        let look = self.store.peek(take).await.expect("an answer");
        look.quotas()[0].remaining()
    }
}

/// It is denied for some seconds, after which the store may have room.
fn is_for_now(denied: &Decision) {
    let verdict = denied.verdict();
    assert!(matches!(verdict, Verdict::Denied { .. }), "{verdict:?}");
    assert!(denied.retry_after() <= Some(6 * SECOND), "{verdict:?}");
}

/// In each hour of an outage an hour's part of the share, or one request.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_by_the_hour() {
    let it = Wrapped::new(2);
    let store = &it.store;
    let take = month(2 * 3 * MONTH_HOURS);
    assert_eq!(allowed(store, &take, 10).await, 10);
    it.fails();
    assert_eq!(it.left(&take).await, 3);
    assert_eq!(allowed(store, &take, 10).await, 3);
    let denied = ask(store, &take).await;
    assert_eq!(denied.source(), Source::Fallback);
    assert!(denied.retry_after().expect("a time") <= HOUR);
    assert!(denied.quotas()[0].is_exceeded());
    it.advance(HOUR).await;
    let charged = ask(store, &take.clone().with_cost(3)).await;
    assert!(charged.is_allowed());
    let receipt = charged.receipt().expect("a receipt");
    let refunded = store.refund(&take.clone().with_cost(2), &receipt).await;
    assert_eq!(refunded.expect("an answer"), 2);
    assert_eq!(allowed(store, &take, 10).await, 2);
    store.reset(&take).await.expect_err("the store is gone");
    assert_eq!(allowed(store, &take, 10).await, 3);

    // A greater cost has an hour for itself; one above the share has no place.
    it.advance(HOUR).await;
    let dear = take.clone().with_cost(40);
    assert!(ask(store, &dear).await.is_allowed());
    let denied = ask(store, &take).await;
    assert!(denied.retry_after().expect("a time") <= HOUR);
    it.advance(HOUR).await;
    let all = take.clone().with_cost(3 * MONTH_HOURS + 1);
    is_for_now(&ask(store, &all).await);
    it.flaky.set(Mode::Works);
    assert_eq!(allowed(store, &take, 10).await, 10);
}

/// All of a share is a period's.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_its_share_once_in_a_period() {
    let it = Wrapped::new(4);
    it.fails();
    let take = month(10);
    for expected in [1, 1, 0, 0] {
        assert_eq!(allowed(&it.store, &take, 3).await, expected);
        it.advance(HOUR).await;
    }
    let denied = ask(&it.store, &take).await;
    is_for_now(&denied);
    it.advance(it.to_the_end() - HOUR).await;
    assert_eq!(allowed(&it.store, &take, 3).await, 0);
    it.advance(HOUR).await;
    assert_eq!(allowed(&it.store, &take, 3).await, 1);
    // Less than one is one.
    let bobs = Take::new(Arc::clone(month(3).rule()), Key::from("bob"));
    for expected in [1, 0] {
        assert_eq!(allowed(&it.store, &bobs, 3).await, expected);
        it.advance(HOUR).await;
    }
}

/// Its period begins where that of the rule does.
#[tokio::test(start_paused = true)]
async fn a_fallback_knows_where_a_month_begins() {
    let it = Wrapped::new(4);
    it.fails();
    let month = Period::MONTH.from_day(15).expect("each month has it");
    let take = take_of(month.clone(), 10);
    assert_eq!(allowed(&it.store, &take, 3).await, 1);
    it.advance(HOUR).await;
    assert_eq!(allowed(&it.store, &take, 3).await, 1);
    it.advance(HOUR).await;
    // Three days later.
    let left = month.around(it.now()).end.duration_since(it.now());
    let left = left.expect("it ends behind now");
    assert!(left < 72 * HOUR, "{left:?}");
    it.advance(left - SECOND).await;
    is_for_now(&ask(&it.store, &take).await);
    it.advance(SECOND).await;
    assert_eq!(allowed(&it.store, &take, 3).await, 1);
}

/// What the store said last is kept until the period ends, or the store says otherwise.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_nothing_of_what_is_used_up() {
    let it = Wrapped::new(2);
    let (store, take) = (&it.store, month(2 * 3 * MONTH_HOURS));
    let all = ask(store, &take.clone().with_cost(2 * 3 * MONTH_HOURS)).await;
    let receipt = all.receipt().expect("it was allowed");
    it.fails();
    let denied = ask(store, &take).await;
    assert_eq!(denied.source(), Source::Fallback);
    is_for_now(&denied);
    assert_eq!(denied.quotas()[0].reset_after(), all.reset_after());
    assert_eq!(denied.quotas()[0].remaining(), 0);
    assert_eq!(it.left(&take).await, 0);
    // Another key has its share.
    let bob = Take::new(Arc::clone(take.rule()), Key::from("bob"));
    assert_eq!(allowed(store, &bob, 10).await, 3);

    it.flaky.set(Mode::Works);
    store.refund(&take, &receipt).await.expect("an answer");
    assert!(ask(store, &take.clone().looking()).await.is_allowed());
    it.fails();
    assert_eq!(allowed(store, &take, 10).await, 1);
    // A period later the store has all of it again.
    it.advance(it.to_the_end()).await;
    assert_eq!(allowed(store, &take, 10).await, 3);
}

/// It admits what was left, and no more; a refund gives it back, a settlement above is charged.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_what_was_left() {
    let it = Wrapped::new(2);
    let (store, take) = (&it.store, month(10_000));
    let of = |units| take.clone().with_cost(units);
    assert!(ask(store, &of(9_995)).await.is_allowed());
    it.fails();
    assert_eq!(it.left(&take).await, 5);
    let denied = ask(store, &of(6)).await;
    is_for_now(&denied);
    assert_eq!(denied.quotas()[0].remaining(), 5);
    let receipt = ask(store, &of(4)).await.receipt().expect("it was allowed");
    it.advance(2 * HOUR).await;
    assert_eq!(allowed(store, &take, 10).await, 1);
    // Hours later, too.
    let refunded = store.refund(&of(3), &receipt).await;
    assert_eq!(refunded.expect("an answer"), 3);
    assert_eq!(it.left(&take).await, 3);
    let receipt = ask(store, &take).await.receipt().expect("it was allowed");
    let owed = store.owe(&of(7), &receipt).await;
    assert_eq!(owed.expect("an answer"), 7);
    it.advance(HOUR).await;
    assert_eq!(it.left(&take).await, 0);
    is_for_now(&ask(store, &take).await);
}

/// Outages come and go: in each period a fallback admits no more than its share, and behind each
/// answer no more than that said is left; and denies what no hour, share or answer forbids.
#[tokio::test(start_paused = true)]
async fn an_outage_is_no_second_budget() {
    for seed in 0..40 {
        let mut random = kit::random::Random::new(seed);
        let max = [1, 10, 500, 10_000, 100_000][random.below(5) as usize];
        let processes = 1 + random.below(5);
        let share = (max / processes).max(1);
        let part = share / MONTH_HOURS;
        let it = Wrapped::new(u32::try_from(processes).expect("few"));
        let (mut end, mut admitted, mut left) = (it.month().end, 0, max);
        let mut charged: Vec<(std::time::SystemTime, u64, Receipt)> = Vec::new();
        // An hour may begin in the period before.
        let mut before = Vec::new();
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
            if it.month().end != end {
                (end, admitted, left) = (it.month().end, 0, max);
                before = std::mem::take(&mut charged);
            }
            if random.is(10) && !charged.is_empty() {
                let (_, units, receipt) =
                    charged.swap_remove(random.below(charged.len() as u64) as usize);
                let take = month(max).with_cost(units);
                let refunded = it.store.refund(&take, &receipt).await;
                assert_eq!(refunded.expect("an answer"), units, "seed {seed}");
                (admitted, left) = (admitted - units, left + units);
                continue;
            }
            let up_to = [1, 1 + part, 1 + share, 1 + max / 3];
            let up_to = up_to[random.below(4) as usize];
            let cost = 1 + random.below(up_to);
            let decision = ask(&it.store, &month(max).with_cost(cost)).await;
            if is_up {
                left = decision.quotas()[0].remaining();
                continue;
            }
            let now = it.now();
            let within_hour = |at: std::time::SystemTime, behind: Duration| {
                now.duration_since(at).expect("before") < HOUR + behind
            };
            let used_in = |behind| {
                let charged = before.iter().chain(&charged);
                let charged = charged.filter(|(at, ..)| within_hour(*at, behind));
                charged.map(|(_, units, _)| units).sum::<u64>()
            };
            let of_hour = part.max(cost);
            let context =
                format!("seed {seed}: {cost} of {max}, {admitted} of {share}, {left} left");
            match decision.receipt() {
                Some(receipt) => {
                    (admitted, left) = (admitted + cost, left.checked_sub(cost).expect(&context));
                    assert!(admitted <= share, "{context}");
                    assert!(used_in(Duration::ZERO) + cost <= of_hour, "{context}");
                    charged.push((now, cost, receipt));
                }
                None => {
                    let is_hour = used_in(2 * MILLISECOND) + cost > of_hour;
                    assert!(
                        is_hour || admitted + cost > share || cost > left,
                        "{context}"
                    );
                }
            }
        }
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
    assert!(
        error.to_string().contains("Capabilities::calendar"),
        "{error}"
    );
}
