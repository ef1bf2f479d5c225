//! The cache alone, around stores in memory: paused time, odd stores, callers that leave.

use allocation_counter::measure;

use crate::prelude::*;

const AGE: Duration = Duration::from_millis(100);

/// Takes until the store denies it, so that the cache has the denial.
async fn exhaust(store: &impl Store, take: &Take) -> Decision {
    loop {
        let answer = decide(store, take).await;
        if !answer.is_allowed() {
            return answer;
        }
    }
}

async fn source(store: &impl Store, take: &Take) -> Source {
    decide(store, take).await.source()
}

/// A denial as a store would tell it.
fn denied(retry_after: Duration) -> StoreFuture<Decision> {
    let (state, verdict) = (QuotaState::new(0, HOUR), Verdict::Denied { retry_after });
    let denial = Decision::new(verdict, Source::Other, 1, [state].into_iter());
    StoreFuture::ready(Ok(denial))
}

/// Synchronous and without an allocation, also outside of a runtime: a denial under every
/// algorithm, of several quotas, and one for ever.
#[test]
fn told_at_once_without_a_runtime() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
    let two = Rule::new("two", [kit::quota(3, HOUR), kit::quota(5, 2 * HOUR)]).expect("valid");
    let mut rules = vec![Arc::new(two)];
    rules.extend(Algorithm::ALL.map(|algorithm| by(algorithm, algorithm.name(), 3, HOUR)));
    for rule in &rules {
        for cost in [1, 2, 4, u64::MAX] {
            let take = take(rule, "x").with_cost(cost);
            let first = exhaust(&store, &take).now_or_never();
            let first = first.expect("memory is ready");
            let mut told = None;
            let used = measure(|| told = store.take(&take).poll_now());
            let told = told.expect("ready").expect("a decision");
            assert_eq!(told.source(), Source::Cache, "{take:?}");
            assert_eq!(used.count_total, 0, "{take:?}");
            assert_eq!(told.remaining(), first.remaining());
            assert!(told.retry_after() <= first.retry_after());
            let is_never = |decision: &Decision| decision.verdict() == Verdict::Never;
            assert_eq!(is_never(&told), is_never(&first));
            assert_eq!(told.receipt(), None);
        }
    }
}

/// Of another cost, another key, another rule of the path: the store answers.
#[tokio::test]
async fn another_question_is_another_denial() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
    let five = take(&rule("p", 5, HOUR), "a");
    decide(&store, &five.clone().with_cost(3)).await;
    exhaust(&store, &five.clone().with_cost(3)).await;
    for cost in [1, 1] {
        let answer = store.take(&five.clone().with_cost(cost)).await;
        assert!(is_allowed(&answer), "law 14: cost {cost} fits");
    }
    exhaust(&store, &five).await;
    assert_eq!(source(&store, &five).await, Source::Cache);
    assert!(is_allowed(&store.take(&take(five.rule(), "b")).await));
    // The rules of a path take turns, as in a rolling deployment.
    let six = take(&rule("p", 6, HOUR), "a");
    assert!(is_allowed(&store.take(&six).await), "law 14: one more fits");
    exhaust(&store, &six).await;
    assert_eq!(source(&store, &six).await, Source::Cache);
    let six = take(&rule("p", 7, HOUR), "a");
    assert!(is_allowed(&store.take(&six).await), "law 14: one more fits");
}

/// A rule that is dropped leaves its address to the next one: that one is asked about.
#[tokio::test]
async fn rules_that_come_and_go() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
    for max in 1..500 {
        let take = take(&rule("short", max, HOUR), "x");
        let answer = store.take(&take).await;
        assert!(is_allowed(&answer), "law 14: the new quota is {max}");
        exhaust(&store, &take).await;
    }
}

/// More keys than there is room for, from many threads: everyone is told his own denial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_another_key() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache_keys(64);
    let store = Arc::new(store.denial_cache(HOUR));
    let shared = rule("apart", 10_000, HOUR);
    // Each key has as many units left as its number.
    for key in 0..300_u64 {
        let ahead = take(&shared, key).with_cost(10_000 - key);
        assert!(is_allowed(&store.take(&ahead).await));
    }
    let each = (Arc::clone(&store), Arc::clone(&shared));
    let tasks = spawn_each(0..4, each, |task, (store, shared)| async move {
        let (mut random, mut cached) = (Random::new(task), 0);
        for _ in 0..20_000 {
            // Few of the keys are asked for often.
            let key = random.below(300).min(random.below(300));
            let take = take(&shared, key).with_cost(key + 1 + random.below(3));
            let told = decide(&store, &take).await;
            assert!(!told.is_allowed());
            assert_eq!(told.remaining(), key, "another key's denial");
            cached += u64::from(told.source() == Source::Cache);
        }
        cached
    });
    let cached: u64 = done(tasks).await.iter().sum();
    assert!(cached > 1_000, "{cached}");
}

/// A hundred thousand keys, each denied once: what is kept does not grow with them.
#[test]
fn a_flood_of_keys_is_bounded() {
    let inner = Stub::in_memory().take_fn(|_, _| denied(HOUR));
    let store = Resilient::bare(inner).denial_cache(AGE);
    let shared = rule("flood", 0, HOUR);
    let ask = |keys: std::ops::Range<u32>| {
        for key in keys {
            let take = take(&shared, format!("{key:040}"));
            let answer = store.take(&take).poll_now();
            assert!(answer.is_some_and(|answer| answer.is_ok()));
        }
    };
    let early = measure(|| ask(0..50_000)).bytes_current;
    let late = measure(|| ask(50_000..150_000)).bytes_current;
    assert!(early < 8 << 20, "{early} bytes");
    assert!(late < 1 << 20, "{late} bytes more for 100,000 keys more");
}

/// Settings at their ends: no panic, no memory for keys that are not there, and right answers.
#[tokio::test]
async fn settings_at_their_ends() {
    for keys in [0, 1, 7, 8, 9, 1_000_000] {
        for age in [Duration::ZERO, Duration::from_nanos(1), HOUR, Duration::MAX] {
            let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
            let store = store.denial_cache(age).denial_cache_keys(keys);
            let ten_years = rule("long", 1, Quota::MAX_WINDOW);
            for key in 0..20 {
                let take = take(&ten_years, key);
                exhaust(&store, &take).await;
                let told = decide(&store, &take).await;
                assert!(!told.is_allowed());
                let is_on = keys > 0 && age >= HOUR;
                let is_told = told.source() == Source::Cache;
                assert_eq!(is_told, is_on, "{keys} keys, {age:?}");
                assert!(told.retry_after() <= Some(Quota::MAX_WINDOW));
            }
        }
    }
}

/// A bound that is never reached takes no memory before there are keys, and is no panic.
#[tokio::test]
async fn a_bound_that_is_never_reached() {
    for keys in [usize::MAX / 2, usize::MAX] {
        let made = std::panic::catch_unwind(|| {
            let used = measure(|| {
                let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
                // The parts are made by the first question.
                store.denial_cache_keys(keys).condition();
            });
            println!("{keys} keys: {} bytes", used.bytes_max);
        });
        assert!(made.is_ok(), "{keys} keys: a panic");
    }
}

/// Denials at the ends of time, and answers that are none.
#[tokio::test(start_paused = true)]
async fn odd_answers_of_the_store() {
    for retry_after in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        Duration::from_micros(u64::MAX),
        Duration::MAX,
    ] {
        let inner = Stub::answering(MemoryStore::new(), move |_| Some(denied(retry_after)));
        let store = Resilient::bare(inner).denial_cache(Duration::MAX);
        let take = take(&rule("odd", 1, HOUR), "x");
        for _ in 0..5 {
            let told = decide(&store, &take).await;
            let wait = told.retry_after().expect("denied");
            let bound = retry_after.saturating_add(Duration::from_micros(1));
            assert!(wait <= bound, "{wait:?} of {retry_after:?}");
            advance(millis(1)).await;
        }
    }
}

/// A store that panics now and then: the cache goes on.
#[tokio::test]
async fn a_store_that_panics() {
    let asked = AtomicUsize::new(0);
    let inner = Stub::answering(MemoryStore::new(), move |_| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked % 2 == 1, "a bug of this store");
        (asked % 4 == 3).then(|| StoreFuture::boxed(async { panic!("a bug of this store, later") }))
    });
    let store = Arc::new(Resilient::bare(inner).denial_cache(millis(1)));
    let take = take(&rule("panics", 0, HOUR), "x");
    let mut decisions = 0;
    for _ in 0..60 {
        let (store, take) = (Arc::clone(&store), take.clone());
        let answer = tokio::spawn(async move { store.take(&take).await }).await;
        decisions += u32::from(answer.is_ok_and(|answer| answer.is_ok()));
        sleep(millis(2)).await;
    }
    assert!(decisions >= 10, "{decisions}");
}

/// A clock that goes back or to its end: no panic, and no denial beyond its bound.
#[tokio::test]
async fn a_clock_at_its_ends() {
    let clock = ManualClock::default();
    let memory = MemoryStore::new().clock(clock.clone());
    let store = Resilient::bare(memory).denial_cache(AGE);
    let store = store.clock(clock.clone());
    let take = take(&rule("clock", 1, HOUR), "x");
    for now in [u64::MAX / 1_000, 1 << 50, 5, 0, 1 << 52, 77, u64::MAX, 1] {
        clock.set(now);
        for _ in 0..3 {
            decide(&store, &take).await;
        }
        reset(&store, &take).await;
        let answer = store.take(&take).await;
        assert!(is_allowed(&answer), "law 14, at {now}: {answer:?}");
    }
}

/// A denial that is just so old that somebody asks the store again.
async fn a_denial_anew(store: &impl Store, take: &Take) {
    advance(3 * AGE).await;
    assert_eq!(source(store, take).await, Source::Local);
    advance(AGE * 6 / 10).await;
}

/// Law 9: whoever asks the store again leaves before, while or after it is asked, or never comes
/// back: at the age at the latest, everyone asks.
#[tokio::test(start_paused = true)]
async fn callers_that_leave() {
    let inner = Distant::new(MemoryStore::new());
    let store = Resilient::bare(inner.clone()).denial_cache(AGE);
    let take = take(&rule("leave", 1, HOUR), "x");
    exhaust(&store, &take).await;
    inner.set_ways(10, 10);
    for polls_for in [0, 1, 5, 15] {
        a_denial_anew(&store, &take).await;
        let pending = store.take(&take);
        let asked = inner.asked();
        assert_eq!(source(&store, &take).await, Source::Cache, "nobody waits");
        assert_eq!(inner.asked(), asked, "one asks");
        match polls_for {
            0 => drop(pending),
            millis_ => drop(timeout(millis(millis_), pending).await),
        }
        assert_eq!(source(&store, &take).await, Source::Local, "void");
    }
    // One that is kept, and never polled.
    a_denial_anew(&store, &take).await;
    let kept = store.take(&take);
    assert_eq!(source(&store, &take).await, Source::Cache);
    advance(AGE).await;
    assert_eq!(source(&store, &take).await, Source::Local, "too old");
    drop(kept);
}

/// Law 6 and 13: the one that asks again hears nothing, or an error.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_when_asked_again() {
    let inner = Distant::new(MemoryStore::new()).ways(1, 1);
    let store = Arc::new(Resilient::bare(inner.clone()).denial_cache(AGE));
    let take = take(&rule("fails", 1, HOUR), "x");
    exhaust(&*store, &take).await;
    inner.takes_are(Fate::Silence);
    advance(AGE * 8 / 10).await;
    let silent = tokio::spawn(store.take(&take));
    yield_now().await;
    for _ in 0..9 {
        let answer = store.take(&take).poll_now();
        assert!(answer.is_some(), "others do not wait");
        advance(AGE / 100).await;
    }
    advance(AGE / 4).await;
    inner.takes_are(Fate::ReplyLost);
    let lost = store.take(&take).await;
    assert_eq!(kind(&lost), Some(StoreErrorKind::Timeout), "law 5");
    inner.takes_are(Fate::Answered);
    // The late answer of a question from before must not bring back what is void.
    reset(&store, &take).await;
    silent.abort();
    assert!(is_allowed(&store.take(&take).await));
}

/// A denial that was decided before a refund or a reset, and is heard after it, is not kept.
#[tokio::test(start_paused = true)]
async fn answers_from_before_a_refund() {
    for (there, back) in [(0, 20), (5, 40), (40, 5)] {
        for is_reset in [false, true] {
            let inner = Distant::new(MemoryStore::new());
            let store = Arc::new(Resilient::bare(inner.clone()).denial_cache(AGE));
            let take = take(&rule("before", 1, HOUR), "x");
            let receipt = receipt_of(&store, &take).await;
            // Late answers, and a refund that is quick.
            inner.set_ways(there, back);
            let early: Vec<_> = (0..10).map(|_| tokio::spawn(store.take(&take))).collect();
            yield_now().await;
            sleep(millis(there)).await;
            inner.set_ways(1, 1);
            match is_reset {
                true => assert!(reset(&store, &take).await),
                false => assert_eq!(refund(&store, &take, &receipt).await, 1),
            }
            let before = done(early).await;
            let mut allowed = before.iter().filter(|answer| is_allowed(answer)).count();
            inner.set_ways(0, 0);
            allowed += usize::from(decide(&store, &take).await.is_allowed());
            assert_eq!(allowed, 1, "law 14: {there}, {back}, reset {is_reset}");
        }
    }
}

/// A refund without an answer, or whose caller leaves: the bound of the age holds.
#[tokio::test(start_paused = true)]
async fn refunds_without_an_answer() {
    for fate in [Fate::ReplyLost, Fate::Silence] {
        let inner = Distant::new(MemoryStore::new());
        let store = Resilient::bare(inner.clone()).denial_cache(AGE);
        let take = take(&rule("lost", 1, HOUR), "x");
        let receipt = receipt_of(&store, &take).await;
        exhaust(&store, &take).await;
        inner.set_ways(1, 1);
        inner.refunds_are(fate);
        let _ = timeout(millis(50), store.refund(&take, &receipt)).await;
        if fate == Fate::Silence {
            // It arrived otherwise.
            inner.refunds_are(Fate::Answered);
            let behind = Distant::clone(&inner);
            assert_eq!(refund(&behind, &take, &receipt).await, 1);
        }
        inner.set_ways(0, 0);
        let refunded = tokio::time::Instant::now();
        while !is_allowed(&store.take(&take).await) {
            assert!(refunded.elapsed() <= AGE, "law 14: {fate:?}");
            sleep(millis(1)).await;
        }
    }
}

/// Ten thousand tasks of one key: the store is asked about ten times a second.
#[tokio::test(start_paused = true)]
async fn ten_thousand_tasks_of_one_key() {
    let inner = Distant::new(MemoryStore::new());
    let store = Arc::new(Resilient::bare(inner.clone()).denial_cache(AGE));
    let one = take(&rule("crowd", 1, HOUR), "x");
    exhaust(&*store, &one).await;
    inner.set_ways(2, 2);
    let asked = inner.asked();
    let each = (Arc::clone(&store), one.clone());
    let tasks = spawn_each(0..10_000, each, |at: u64, (store, one)| async move {
        for _ in 0..24 {
            let answer = decide(&store, &one).await;
            assert!(!answer.is_allowed());
            sleep(millis(30 + at % 40)).await;
        }
    });
    done(tasks).await;
    let asked = inner.asked() - asked;
    assert!(asked <= 20, "{asked} questions in 1.3 s");
}

/// Slices, looks and repeats are never told by the cache, and do not renew what it tells.
#[tokio::test(start_paused = true)]
async fn what_it_does_not_answer() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
    let one = take(&rule("asks", 1, HOUR), "x");
    exhaust(&store, &one).await;
    assert_eq!(source(&store, &one).await, Source::Cache);
    assert_eq!(source(&store, &one.clone().repeat()).await, Source::Local);
    let look = one.clone().looking();
    assert_eq!(source(&store, &look).await, Source::Local);
}

/// What a fallback decided is nobody's denial, wherever the fallback stands.
#[tokio::test(start_paused = true)]
async fn fallbacks_are_not_remembered() {
    let inner = Distant::new(MemoryStore::new()).ways(1, 1);
    inner.takes_are(Fate::QuestionLost);
    let share = Share::of_processes(1);
    let store = Resilient::bare(Resilient::bare(inner.clone()).fallback(share)).denial_cache(AGE);
    let one = take(&rule("fallback", 1, HOUR), "x");
    exhaust(&store, &one).await;
    assert_eq!(source(&store, &one).await, Source::Fallback);
    inner.takes_are(Fate::Answered);
    assert!(is_allowed(&store.take(&one).await), "law 14");
    assert!(store.capabilities().has_fallback);
}

/// The law of the wrapper: a denial that is told is one that the store would give as well, under
/// every algorithm, in small steps of time.
#[tokio::test]
async fn nothing_is_denied_that_is_free() {
    for algorithm in Algorithm::ALL {
        for max in [1, 3, 10] {
            let inner = Arc::new(MemoryStore::new());
            let store = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
            let one = take(&by(algorithm, "free", max, millis(100)), "x");
            let began = Instant::now();
            let mut cached = 0;
            while began.elapsed() < millis(350) {
                let asked = Instant::now();
                let told = decide(&store, &one).await;
                if told.source() == Source::Cache {
                    cached += 1;
                    let peek = inner.peek(&one).await.expect("a decision");
                    // Time goes on between the two, and may end the denial.
                    let left = told.retry_after().expect("denied");
                    let left = left.saturating_sub(asked.elapsed());
                    let is_right = peek.remaining() == 0 || left < millis(5);
                    assert!(is_right, "law 14: {algorithm:?}: {left:?}, {peek:?}");
                }
            }
            assert!(cached > 100, "{cached}");
        }
    }
}

/// Errors are not remembered as denials, nor denials as errors.
#[tokio::test]
async fn errors_pass() {
    let asked = AtomicUsize::new(0);
    let inner = Stub::answering(MemoryStore::new(), move |_| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        let error = StoreError::new(StoreErrorKind::Refused, "not now");
        let is_even = asked.is_multiple_of(2);
        is_even.then(|| StoreFuture::ready(Err(error)))
    });
    let store = Resilient::bare(inner).denial_cache(AGE);
    let one = take(&rule("errors", 2, HOUR), "x");
    let mut allowed = 0;
    for _ in 0..4 {
        allowed += u32::from(is_allowed(&store.take(&one).await));
    }
    assert_eq!(allowed, 2);
}
