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

/// In each hour of an outage an hour's part of the share, or one request in more hours.
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
    is_for_now(&denied);
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

    // A greater cost has as many hours as it is parts of an hour; one above the share has no place.
    it.advance(HOUR).await;
    let dear = take.clone().with_cost(40);
    let receipt = ask(store, &dear).await.receipt().expect("it was allowed");
    is_for_now(&ask(store, &take).await);
    for _ in 0..13 {
        it.advance(HOUR).await;
        is_for_now(&ask(store, &dear).await);
    }
    it.advance(HOUR / 3).await;
    let again = ask(store, &dear).await;
    assert!(again.is_allowed());
    let refunded = store.refund(&dear, &receipt).await;
    assert_eq!(refunded.expect("an answer"), 0, "it has left");
    let receipt = again.receipt().expect("it was allowed");
    let refunded = store.refund(&dear, &receipt).await;
    assert_eq!(refunded.expect("an answer"), 40);
    assert!(ask(store, &dear).await.is_allowed());
    it.advance(HOUR).await;
    let all = take.clone().with_cost(3 * MONTH_HOURS);
    let more = take.clone().with_cost(3 * MONTH_HOURS + 1);
    is_for_now(&ask(store, &more).await);
    it.advance(it.to_the_end()).await;
    is_for_now(&ask(store, &more).await);
    assert!(ask(store, &all).await.is_allowed());
    it.flaky.set(Mode::Works);
    assert_eq!(allowed(store, &take, 10).await, 10);
}

/// Where an hour's part is less than a request, it is one request in more hours. So many that the
/// share of a period is not exceeded by more than one.
#[tokio::test(start_paused = true)]
async fn less_than_a_request_in_an_hour() {
    let it = Wrapped::new(4);
    it.fails();
    // A share is 2 in a month, and at least 1.
    for (take, days) in [(month(10), 15), (month(3), 31)] {
        let key = Key::from(days.to_string());
        let take = Take::new(Arc::clone(take.rule()), key);
        assert_eq!(allowed(&it.store, &take, 3).await, 1);
        it.advance(24 * days * HOUR - SECOND).await;
        is_for_now(&ask(&it.store, &take).await);
        it.advance(13 * HOUR).await;
        assert_eq!(allowed(&it.store, &take, 3).await, 1);
    }
    // Of a day it is one in some hours.
    let take = take_of(Period::DAY, 48);
    let take = Take::new(Arc::clone(take.rule()), Key::from("day"));
    for _ in 0..5 {
        assert_eq!(allowed(&it.store, &take, 3).await, 1);
        it.advance(2 * HOUR - SECOND).await;
        is_for_now(&ask(&it.store, &take).await);
        it.advance(SECOND).await;
    }
    // A max of 0 is none for good.
    let denied = ask(&it.store, &month(0)).await;
    assert_eq!(denied.verdict(), Verdict::Never);
}

/// A rule's cost above its share makes no cheaper request impossible.
#[tokio::test(start_paused = true)]
async fn a_usual_cost_above_the_share() {
    let it = Wrapped::new(4);
    it.fails();
    let rule = Rule::clone(month(100).rule()).with_cost(60);
    let take = Take::new(Arc::new(rule), Key::default());
    is_for_now(&ask(&it.store, &take).await);
    assert!(
        ask(&it.store, &take.clone().with_cost(25))
            .await
            .is_allowed()
    );
}

/// What the store said last is kept until the period ends, or the store says otherwise.
#[tokio::test(start_paused = true)]
async fn what_is_spent_stays_spent() {
    let it = Wrapped::new(2);
    let (store, take) = (&it.store, month(2 * 3 * MONTH_HOURS));
    let all = ask(store, &take.clone().with_cost(2 * 3 * MONTH_HOURS)).await;
    let receipt = all.receipt().expect("it was allowed");
    for is_told_by_a_denial in [false, true] {
        if is_told_by_a_denial {
            it.flaky.set(Mode::Works);
            assert!(!ask(store, &take).await.is_allowed());
        }
        it.fails();
        for _ in 0..3 {
            let denied = ask(store, &take).await;
            assert_eq!(denied.source(), Source::Fallback);
            is_for_now(&denied);
            assert!(denied.quotas()[0].is_exceeded());
            assert_eq!(denied.quotas()[0].remaining(), 0);
            assert_eq!(it.left(&take).await, 0);
            it.advance(HOUR).await;
        }
        // Another key has its share.
        let bob = Take::new(Arc::clone(take.rule()), Key::from("bob"));
        assert_eq!(allowed(store, &bob, 10).await, 3);
    }
    it.flaky.set(Mode::Works);
    store.refund(&take, &receipt).await.expect("an answer");
    assert!(ask(store, &take.clone().looking()).await.is_allowed());
    it.fails();
    assert_eq!(allowed(store, &take, 10).await, 3);
    // It is spent again; a period later the store has all of it again.
    it.flaky.set(Mode::Works);
    assert_eq!(allowed(store, &take, 10).await, 1);
    assert!(!ask(store, &take).await.is_allowed());
    it.advance(HOUR).await;
    it.fails();
    it.advance(it.to_the_end() - SECOND).await;
    is_for_now(&ask(store, &take).await);
    it.advance(SECOND).await;
    assert_eq!(allowed(store, &take, 10).await, 3);
}

/// What is left of a budget is for requests that it has room for. A reset here forgets what the
/// store said.
#[tokio::test(start_paused = true)]
async fn a_denial_is_of_its_cost() {
    let it = Wrapped::new(2);
    let (store, take) = (&it.store, month(2 * 10 * MONTH_HOURS));
    let of = |units| take.clone().with_cost(units);
    let used = 2 * 10 * MONTH_HOURS - 3;
    assert!(ask(store, &of(used)).await.is_allowed());
    assert!(!ask(store, &of(5)).await.is_allowed());
    it.fails();
    for cost in [4, 5, 10] {
        is_for_now(&ask(store, &of(cost)).await);
    }
    assert!(ask(store, &of(3)).await.is_allowed());
    store.reset(&take).await.expect_err("the store is gone");
    assert!(ask(store, &of(10)).await.is_allowed());
}

/// Each budget of a joint rule by itself, beside windows.
#[tokio::test(start_paused = true)]
async fn budgets_of_several_subjects() {
    let it = Wrapped::new(2);
    let budget = |max| Policy::calendar(Period::MONTH, max);
    let subject = |name: &str, max| Subject::new(name, Header::new(name)).limit(budget(max));
    let user = subject("user", 2 * MONTH_HOURS).limit(quota(100, HOUR));
    let rule = Rule::joint("chat", [user, subject("team", 10 * MONTH_HOURS)]).expect("valid");
    let rule = Arc::new(rule);
    let of = |user: &str, team: &str| {
        let keys = [("user", Key::from(user)), ("team", Key::from(team))];
        Take::of_subjects(Arc::clone(&rule), keys).expect("its subjects")
    };
    let spend = of("alice", "red").with_cost(10);
    for _ in 0..10 {
        assert!(ask(&it.store, &spend).await.is_allowed());
    }
    it.fails();
    // An hour of a user's share is 1, and one of a team's 5.
    for user in ["a", "b", "c", "d", "e"] {
        assert_eq!(allowed(&it.store, &of(user, "red"), 2).await, 1, "{user}");
    }
    is_for_now(&ask(&it.store, &of("f", "red")).await);
    it.flaky.set(Mode::Works);
    it.advance(HOUR).await;
    for at in 0..(10 * MONTH_HOURS - 100) / 100 {
        let take = of(&at.to_string(), "red").with_cost(100);
        assert!(ask(&it.store, &take).await.is_allowed());
    }
    let last = of("g", "red").with_cost(10 * MONTH_HOURS % 100);
    assert!(ask(&it.store, &last).await.is_allowed());
    it.fails();
    let denied = ask(&it.store, &of("h", "red")).await;
    is_for_now(&denied);
    assert_eq!(
        denied.quotas().iter().filter(|it| it.is_exceeded()).count(),
        1
    );
    assert!(ask(&it.store, &of("h", "blue")).await.is_allowed());
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
    assert_eq!(allowed(&it.store, &take, 9).await, 3);
}

/// Outages come and go: in each hour a fallback admits an hour's part of its share, or one request;
/// those above that part are as far apart as the share says; none above it, nor above what the last
/// answer left, where that had no room for another one; and it denies nothing else.
#[tokio::test(start_paused = true)]
async fn outages_come_and_go() {
    for seed in 0..40 {
        let mut random = kit::random::Random::new(seed);
        let max = [1, 10, 500, 10_000, 100_000][random.below(5) as usize];
        let processes = 1 + random.below(5);
        let share = (max / processes).max(1);
        let part = share / MONTH_HOURS;
        let it = Wrapped::new(u32::try_from(processes).expect("few"));
        // Until when, and how much the store left of what was asked for.
        let mut spent: Option<(std::time::SystemTime, u64)> = None;
        let mut charged: Vec<(std::time::SystemTime, u64, Receipt)> = Vec::new();
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
            // In the longest window that a request of this cost may have.
            let few = |number: u64| u32::try_from(number).expect("few");
            let window = |cost: u64| match part < cost {
                true => 31 * 24 * HOUR * few(cost) / few(share),
                false => HOUR,
            };
            if random.is(10) && !charged.is_empty() {
                let (at, units, receipt) =
                    charged.swap_remove(random.below(charged.len() as u64) as usize);
                let take = month(max).with_cost(units);
                let refunded = it.store.refund(&take, &receipt).await;
                let refunded = refunded.expect("an answer");
                let (is_in, had) = (since(at) < window(units), since(at) < HOUR);
                assert!(refunded == units || !is_in || !had, "seed {seed}");
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
            let used = |within: Duration, least: u64| {
                let charged = charged.iter().filter(|(at, ..)| since(*at) < within);
                let charged = charged.map(|(_, units, _)| *units);
                charged.filter(|units| *units >= least).sum::<u64>()
            };
            let room = part.max(cost);
            let is_spent = spent.is_some_and(|(_, left)| cost > left);
            let context = format!("seed {seed}: {cost} of {max}, {spent:?}");
            match decision.receipt() {
                Some(receipt) => {
                    assert!(cost <= share && !is_spent, "{context}");
                    assert!(used(HOUR, 0) + cost <= room, "{context}");
                    assert!(used(window(cost), cost) + cost <= room, "{context}");
                    charged.push((now, cost, receipt));
                }
                None => {
                    match cost > max {
                        true => assert_eq!(decision.verdict(), Verdict::Never),
                        false => is_for_now(&decision),
                    }
                    let is_used = used(window(cost) + 2 * MILLISECOND, 0) + cost > room;
                    assert!(is_used || cost > share || is_spent, "{context}");
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
