//! One suite, stamped on every store and every algorithm.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::decision::{Decisions, Receipt, Verdict};
use tidegate::rule::Share;
use tidegate::store::{Fallback, StoreErrorKind, StoreExt, StoreFuture};
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, Decision, Key, MemoryStore, Quota, Resilient, Rule, Store, StoreError, Take,
};

use crate::support::Redis;
use crate::{allowed, ask};

/// A store whose time the test moves, and what has to live as long as the store.
struct Context {
    algorithm: Algorithm,
    store: Arc<dyn Store>,
    clock: ManualClock,
    _server: Option<Redis>,
}

impl Context {
    /// Some day in 2027, and not at the beginning of a millisecond.
    const START: u64 = 1_800_000_000_000_777;

    fn clock() -> ManualClock {
        let clock = ManualClock::default();
        clock.set(Self::START);
        clock
    }

    async fn memory(algorithm: Algorithm) -> Self {
        let clock = Self::clock();
        Self {
            algorithm,
            store: Arc::new(MemoryStore::new().clock(clock.clone())),
            clock,
            _server: None,
        }
    }

    async fn redis(algorithm: Algorithm) -> Self {
        let clock = Self::clock();
        let server = Redis::start();
        Self {
            algorithm,
            store: Arc::new(server.store().await.clock(clock.clone())),
            clock,
            _server: Some(server),
        }
    }

    /// Memory that does not answer at once, with all stores around it that there are.
    async fn wrapped(algorithm: Algorithm) -> Self {
        let memory = Self::memory(algorithm).await;
        let wrapped = Resilient::around(Later(memory.store))
            .timeout(60 * SECOND)
            .fallback(Share::of_processes(2));
        Self {
            store: wrapped.build(),
            ..memory
        }
    }

    /// The whole share of a store that never answers.
    async fn fallback(algorithm: Algorithm) -> Self {
        let clock = Self::clock();
        let fallback = Fallback::new(Gone, Share::of_processes(1));
        Self {
            algorithm,
            store: Arc::new(fallback.local(MemoryStore::new().clock(clock.clone()))),
            clock,
            _server: None,
        }
    }

    /// A take of 1 by nobody in particular.
    fn take(&self, path: &str, quotas: &[Quota]) -> Take {
        let rule = Rule::new(path, quotas.iter().copied()).expect("a valid rule");
        Take::new(Arc::new(rule.algorithm(self.algorithm)), Key::default())
    }

    fn advance(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).expect("a short time");
        self.clock.set(self.clock.now() + micros);
    }
}

/// Has to be waited for.
#[derive(Debug)]
struct Later(Arc<dyn Store>);

impl Store for Later {
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions> {
        let (store, takes) = (Arc::clone(&self.0), takes.to_vec());
        StoreFuture::boxed(async move {
            tokio::task::yield_now().await;
            store.take(&takes).await
        })
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let (store, take, receipt) = (Arc::clone(&self.0), take.clone(), *receipt);
        StoreFuture::boxed(async move {
            tokio::task::yield_now().await;
            store.refund(&take, &receipt).await
        })
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

/// Never answers.
#[derive(Debug)]
struct Gone;

impl Gone {
    fn error() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, "gone")
    }
}

impl Store for Gone {
    fn take(&self, _: &[Take]) -> StoreFuture<Decisions> {
        StoreFuture::ready(Err(Self::error()))
    }

    fn refund(&self, _: &Take, _: &Receipt) -> StoreFuture<u64> {
        StoreFuture::ready(Err(Self::error()))
    }

    fn name(&self) -> String {
        "gone".to_owned()
    }
}

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(max, window).expect("a valid quota")
}

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Law 1, at its simplest: `max` in a window, and not one more.
async fn never_more_than_max(context: &Context) {
    let take = context.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(allowed(&*context.store, &take, 12).await, 5);
    context.advance(10 * SECOND - MICROSECOND);
    assert_eq!(allowed(&*context.store, &take, 12).await, 0);
    context.advance(MICROSECOND);
    assert_eq!(allowed(&*context.store, &take, 12).await, 5);
}

/// Law 1, in every window and not only in aligned ones.
async fn every_window_holds(context: &Context) {
    let window = 10 * SECOND;
    let take = context.take("p", &[quota(7, window)]);
    let mut admissions: Vec<(u64, u64)> = Vec::new();
    for step in 0..400_u64 {
        context.advance(Duration::from_micros(37_013 * (step % 11)));
        let cost = 1 + step % 3;
        if ask(&*context.store, &take.clone().cost(cost))
            .await
            .is_allowed()
        {
            admissions.push((context.clock.now(), cost));
        }
    }
    assert!(admissions.len() > 20);
    let micros = 10_000_000;
    for (end, _) in &admissions {
        let inside = admissions
            .iter()
            .filter(|(at, _)| at <= end && at + micros > *end);
        assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= 7);
    }
}

/// Law 2: a take that is denied changes nothing, however often it comes.
async fn denied_means_untouched(context: &Context) {
    let take = context.take("p", &[quota(2, SECOND)]);
    allowed(&*context.store, &take, 2).await;
    context.advance(SECOND / 2);
    let first = ask(&*context.store, &take).await;
    for _ in 0..50 {
        assert_eq!(ask(&*context.store, &take).await, first);
    }
    context.advance(SECOND / 2);
    assert_eq!(allowed(&*context.store, &take, 3).await, 2);
}

/// Law 3: allowed exactly at the announced instant, denied a microsecond before.
async fn retry_after_is_the_truth(context: &Context) {
    let quotas = [quota(10, SECOND), quota(15, 7 * SECOND)];
    let take = context.take("p", &quotas);
    let mut denials = 0;
    for step in 0..300_u64 {
        context.advance(Duration::from_micros(7_919 * (step % 17)));
        let take = take.clone().cost(1 + step % 6);
        let decision = ask(&*context.store, &take).await;
        if let Some(retry_after) = decision.retry_after() {
            denials += 1;
            context.advance(retry_after - MICROSECOND);
            let early = ask(&*context.store, &take).await;
            assert_eq!(early.retry_after(), Some(MICROSECOND));
            context.advance(MICROSECOND);
            assert!(ask(&*context.store, &take).await.is_allowed());
        }
    }
    assert!(denials > 20);
}

async fn reset_after_is_the_truth(context: &Context) {
    let take = context.take("p", &[quota(3, SECOND)]);
    ask(&*context.store, &take).await;
    context.advance(SECOND / 4);
    let decision = ask(&*context.store, &take).await;
    assert_eq!((decision.remaining(), decision.reset_after()), (1, SECOND));
    context.advance(SECOND - MICROSECOND);
    let before = peek(context, &take).await;
    assert_eq!((before.remaining(), before.reset_after()), (2, MICROSECOND));
    context.advance(MICROSECOND);
    let after = peek(context, &take).await;
    assert_eq!(
        (after.remaining(), after.reset_after()),
        (3, Duration::ZERO)
    );
}

async fn peek(context: &Context, take: &Take) -> Decision {
    context.store.peek(take).await.expect("a decision")
}

async fn peeking_charges_nothing(context: &Context) {
    let take = context.take("p", &[quota(2, SECOND)]);
    for _ in 0..5 {
        let decision = peek(context, &take).await;
        assert!(decision.is_allowed());
        assert_eq!(decision.remaining(), 2);
    }
    assert_eq!(allowed(&*context.store, &take, 5).await, 2);
    assert_eq!(peek(context, &take).await.remaining(), 0);
}

/// Also after a quota was lowered: looking is always allowed.
async fn peeking_is_never_denied(context: &Context) {
    let five = context.take("p", &[quota(5, SECOND)]);
    assert_eq!(allowed(&*context.store, &five, 5).await, 5);
    let two = context.take("p", &[quota(2, SECOND)]);
    let decision = peek(context, &two).await;
    assert!(decision.is_allowed());
    assert_eq!(decision.remaining(), 0);
}

async fn costs_are_weights(context: &Context) {
    let take = context.take("p", &[quota(10, SECOND)]);
    let six = take.clone().cost(6);
    assert!(ask(&*context.store, &six).await.is_allowed());
    let denied = ask(&*context.store, &six).await;
    assert_eq!((denied.is_allowed(), denied.remaining()), (false, 4));
    assert_eq!(allowed(&*context.store, &take, 10).await, 4);
}

async fn what_can_never_be_has_no_retry_after(context: &Context) {
    let five = context.take("five", &[quota(5, SECOND)]);
    let never = ask(&*context.store, &five.clone().cost(6)).await;
    assert_eq!(never.verdict(), Verdict::Never);
    assert_eq!((never.retry_after(), never.remaining()), (None, 5));

    let none = context.take("none", &[quota(0, SECOND)]);
    assert_eq!(ask(&*context.store, &none).await.verdict(), Verdict::Never);
    let huge = five.cost(u64::MAX);
    assert_eq!(ask(&*context.store, &huge).await.verdict(), Verdict::Never);
}

/// All quotas are charged, or none: a take that the second one denies must not use up the first.
async fn quotas_are_charged_together(context: &Context) {
    let take = context.take("p", &[quota(3, SECOND), quota(5, 60 * SECOND)]);
    assert_eq!(allowed(&*context.store, &take, 9).await, 3);
    context.advance(SECOND);
    assert_eq!(allowed(&*context.store, &take, 9).await, 2);
    let denied = ask(&*context.store, &take).await;
    let remaining: Vec<_> = denied
        .quotas()
        .iter()
        .map(|state| state.remaining())
        .collect();
    assert_eq!(remaining, [1, 0]);
    assert_eq!(denied.retry_after(), Some(59 * SECOND));
}

async fn keys_and_paths_are_counted_apart(context: &Context) {
    let one = context.take("one", &[quota(1, SECOND)]);
    let of = |key: Key| Take::new(Arc::clone(one.rule()), key);
    let keys = [
        Key::default(),
        Key::from(""),
        Key::from("a"),
        Key::from("a").with("b"),
        Key::from("a:b"),
    ];
    for key in keys {
        assert_eq!(allowed(&*context.store, &of(key), 3).await, 1);
    }
    assert_eq!(
        allowed(
            &*context.store,
            &context.take("one:a", &[quota(1, SECOND)]),
            3
        )
        .await,
        1
    );
}

/// A batch is answered as if each take had come alone, in order.
async fn batches_are_in_order(context: &Context) {
    let take_one = context.take("p", &[quota(4, SECOND)]);
    let other = context.take("q", &[quota(1, SECOND)]);
    let takes = [
        take_one.clone().cost(3),
        take_one.clone().cost(2),
        take_one.clone(),
        other.clone(),
        other,
        take_one.clone().cost(0),
        take_one,
    ];
    let decisions = context.store.take(&takes).await.expect("decisions");
    let verdicts: Vec<_> = decisions.iter().map(Decision::is_allowed).collect();
    assert_eq!(verdicts, [true, false, true, true, false, true, false]);
    let empty = context.store.take(&[]).await.expect("no decisions");
    assert!(empty.is_empty());
}

/// A rule that changes keeps what was counted.
async fn a_changed_rule_keeps_the_count(context: &Context) {
    let five = context.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(allowed(&*context.store, &five, 9).await, 5);
    let eight = context.take("p", &[quota(8, 10 * SECOND)]);
    assert_eq!(allowed(&*context.store, &eight, 9).await, 3);
    let two = context.take("p", &[quota(2, 10 * SECOND)]);
    assert_eq!(ask(&*context.store, &two).await.remaining(), 0);
    let longer = context.take("p", &[quota(8, 60 * SECOND)]);
    context.advance(9 * SECOND);
    assert_eq!(
        ask(&*context.store, &longer).await.retry_after(),
        Some(51 * SECOND)
    );
}

/// A day's quota beside a second's on one count, or a day that becomes a second and a day again: the
/// day's is not refilled.
async fn a_longer_window_is_not_forgotten(context: &Context) {
    let day = context.take("p", &[quota(3, 86_400 * SECOND)]);
    let second = context.take("p", &[quota(100, SECOND)]);
    assert_eq!(allowed(&*context.store, &day, 5).await, 3);
    for _ in 0..20 {
        context.advance(3600 * SECOND + 77 * MICROSECOND);
        assert_eq!(allowed(&*context.store, &second, 150).await, 100);
        assert_eq!(allowed(&*context.store, &day, 2).await, 0);
    }
    // A day after its last charge nothing of it is left.
    context.advance(5 * 3600 * SECOND);
    assert_eq!(allowed(&*context.store, &day, 5).await, 3);
}

/// Law 1 under concurrency: many tasks on many threads, and exactly `max` get through.
async fn exact_under_concurrency(context: &Context) {
    let take = context.take("p", &[quota(100, 3600 * SECOND)]);
    let admitted = Arc::new(AtomicUsize::new(0));
    let tasks = (0..64).map(|_| {
        let (store, take) = (Arc::clone(&context.store), take.clone());
        let admitted = Arc::clone(&admitted);
        tokio::spawn(async move {
            let mine = allowed(&*store, &take, 20).await;
            admitted.fetch_add(mine, Ordering::Relaxed);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(admitted.load(Ordering::Relaxed), 100);
}

/// Every minute a unit, after a burst.
async fn a_burst_and_then_the_rate(context: &Context) {
    let smooth = quota(60, 3600 * SECOND).with_burst(10).expect("valid");
    let take = context.take("p", &[smooth]);
    assert_eq!(allowed(&*context.store, &take, 20).await, 10);
    for _ in 0..5 {
        let denied = ask(&*context.store, &take).await;
        assert_eq!(denied.retry_after(), Some(60 * SECOND));
        context.advance(60 * SECOND - MICROSECOND);
        assert_eq!(allowed(&*context.store, &take, 2).await, 0);
        context.advance(MICROSECOND);
        assert_eq!(allowed(&*context.store, &take, 2).await, 1);
    }
    let eleven = ask(&*context.store, &take.clone().cost(11)).await;
    assert_eq!(eleven.verdict(), Verdict::Never);
}

/// What its docs warn of.
async fn an_edge_admits_twice(context: &Context) {
    let take = context.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(allowed(&*context.store, &take, 1).await, 1);
    context.advance(10 * SECOND - MICROSECOND);
    assert_eq!(allowed(&*context.store, &take, 12).await, 4);
    context.advance(MICROSECOND);
    assert_eq!(allowed(&*context.store, &take, 12).await, 5);
}

/// In any order, whole and in part, once and again.
async fn what_is_given_back_is_there_again(context: &Context) {
    let take = context.take("p", &[quota(6, 10 * SECOND), quota(9, 60 * SECOND)]);
    let store = &*context.store;
    let mut receipts: Vec<Receipt> = Vec::new();
    for cost in [1, 2, 3] {
        let decision = ask(store, &take.clone().cost(cost)).await;
        receipts.push(decision.receipt().expect("it was charged"));
    }
    assert!(!ask(store, &take).await.is_allowed());
    for (receipt, units) in [(&receipts[2], 3), (&receipts[0], 1), (&receipts[1], 2)] {
        let whole = take.clone().cost(u64::MAX);
        assert_eq!(store.refund(&whole, receipt).await.expect("answers"), units);
        assert_eq!(
            store.refund(&whole, receipt).await.expect("answers"),
            0,
            "again"
        );
    }
    let state = peek(context, &take).await;
    assert_eq!(state.quotas()[0].remaining(), 6);
    assert_eq!(state.quotas()[1].remaining(), 9);
    assert_eq!(state.reset_after(), Duration::ZERO);

    let five = ask(store, &take.clone().cost(5)).await.receipt();
    let (part, five) = (take.clone().cost(2), five.expect("it was charged"));
    assert_eq!(store.refund(&part, &five).await.expect("answers"), 2);
    assert_eq!(peek(context, &take).await.remaining(), 3);
    assert_eq!(allowed(store, &take, 9).await, 3);
}

/// What counts no longer is not given back, so that nobody gets more than the quota.
async fn nothing_is_given_back_too_late(context: &Context) {
    let take = context.take("p", &[quota(4, SECOND)]);
    let store = &*context.store;
    let receipt = ask(store, &take.clone().cost(4)).await.receipt();
    let receipt = receipt.expect("it was charged");
    context.advance(SECOND);
    assert_eq!(allowed(store, &take, 9).await, 4);
    assert_eq!(store.refund(&take, &receipt).await.expect("answers"), 0);
    assert_eq!(allowed(store, &take, 9).await, 0);

    let unknown = Receipt::new(receipt.stamp(), receipt.serial() + 77, 1);
    assert_eq!(store.refund(&take, &unknown).await.expect("answers"), 0);
    let other = context.take("other", &[quota(4, SECOND)]);
    assert_eq!(store.refund(&other, &receipt).await.expect("answers"), 0);
}

/// Each algorithm has a count of its own: a rule that changes its algorithm starts afresh, and one that changes back finds
/// what it had counted.
async fn each_algorithm_has_a_count_of_its_own(context: &Context) {
    let quotas = [quota(3, 86_400 * SECOND)];
    let by = |algorithm| {
        let rule = Rule::new("p", quotas).expect("valid").algorithm(algorithm);
        Take::new(Arc::new(rule), Key::default())
    };
    let store = &*context.store;
    let mut receipts = Vec::new();
    for algorithm in Algorithm::ALL {
        receipts.push(ask(store, &by(algorithm)).await.receipt().expect("charged"));
        assert_eq!(allowed(store, &by(algorithm), 5).await, 2, "{algorithm:?}");
    }
    context.advance(SECOND);
    for (algorithm, receipt) in Algorithm::ALL.into_iter().zip(receipts) {
        let take = by(algorithm);
        assert_eq!(allowed(store, &take, 5).await, 0, "{algorithm:?}");
        let back = store.refund(&take, &receipt).await.expect("answers");
        assert!(back <= 1, "{back}");
        assert_eq!(
            allowed(store, &take, 5).await,
            back as usize,
            "{algorithm:?}"
        );
    }
}

macro_rules! stamp {
    ($name:ident, $algorithm:expr => $($law:ident),+ $(,)?) => {
        mod $name {
            use tidegate::Algorithm;

            const ALGORITHM: Algorithm = $algorithm;

            stamp_store!(memory => $($law),+);
            stamp_store!(redis => $($law),+);
            stamp_store!(wrapped => $($law),+);
            stamp_store!(fallback => $($law),+);
        }
    };
}

/// One store, made by the context's function of this name.
macro_rules! stamp_store {
    ($store:ident => $($law:ident),+) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $law() {
                super::super::$law(&super::super::Context::$store(super::ALGORITHM).await).await;
            })+
        }
    };
}

/// The laws of all algorithms, and those that each has besides.
macro_rules! stamp_all {
    ($($name:ident, $algorithm:expr => $($own:ident),* ;)+) => {
        $(stamp!($name, $algorithm =>
            retry_after_is_the_truth,
            peeking_charges_nothing,
            peeking_is_never_denied,
            costs_are_weights,
            what_can_never_be_has_no_retry_after,
            keys_and_paths_are_counted_apart,
            batches_are_in_order,
            what_is_given_back_is_there_again,
            nothing_is_given_back_too_late,
            each_algorithm_has_a_count_of_its_own,
            exact_under_concurrency,
            $($own),*
        );)+
    };
}

stamp_all!(
    sliding_log, Algorithm::SlidingLog =>
        never_more_than_max, every_window_holds, denied_means_untouched, reset_after_is_the_truth,
        quotas_are_charged_together, a_changed_rule_keeps_the_count, a_longer_window_is_not_forgotten;
    sliding_window, Algorithm::SlidingWindow =>
        never_more_than_max, every_window_holds, denied_means_untouched,
        quotas_are_charged_together, a_longer_window_is_not_forgotten;
    gcra, Algorithm::Gcra => a_burst_and_then_the_rate;
    fixed_window, Algorithm::FixedWindow =>
        never_more_than_max, denied_means_untouched, an_edge_admits_twice, quotas_are_charged_together;
);
