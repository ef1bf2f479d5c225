//! A share of each quota while the store is gone.

use tidegate::rule::{Lockout, Plan};
use tidegate::store::{Ask, Change};

use super::*;

/// A fallback whose own time stands still.
fn fallback(flaky: &FlakyStore, share: Share) -> (Resilient<FlakyStore>, ManualClock) {
    let clock = clock_at(1_000_000_000_777);
    let local = MemoryStore::new().clock(clock.clone());
    let store = Resilient::bare(flaky.clone()).fallback(share);
    (store.fallback_store(local), clock)
}

fn gone() -> FlakyStore {
    FlakyStore::new(Mode::Fails(Kind::Timeout))
}

#[tokio::test]
async fn a_decision_says_who_made_it_and_why() {
    for mode in [Mode::Fails(Kind::Timeout), Mode::FailsAtOnce(Kind::Timeout)] {
        let flaky = FlakyStore::new(mode);
        let (store, _) = fallback(&flaky, Share::of_processes(2));
        let take = take_from(4, SECOND);
        let decision = ask(&store, &take).await;
        assert!(decision.is_allowed());
        let is = (decision.source(), decision.remaining());
        assert_eq!(is, (Source::Fallback, 1));
        let failure = decision.failure().expect("a reason");
        assert_eq!(failure.kind(), Kind::Timeout);
        assert_eq!(failure.to_string(), "the store is broken");
        assert!(format!("{decision:?}").contains("the store is broken"));
        assert_eq!(decision, decision.clone());
        assert_eq!(allowed(&store, &take, 5).await, 1);

        // And the store decides again as soon as it can, by its own count.
        flaky.set(Mode::Works);
        let decision = ask(&store, &take).await;
        let is = (decision.source(), decision.remaining());
        assert_eq!(is, (Source::Local, 3));
        assert!(decision.failure().is_none());
        assert_eq!(store.name(), "flaky");
    }
}

/// Where it is known that the store has not charged, it is charged in one place.
#[tokio::test]
async fn nothing_is_charged_twice() {
    let flaky = gone();
    let (store, _) = fallback(&flaky, Share::of_processes(1));
    let take = take_from(10, 60 * SECOND);
    assert_eq!(allowed(&store, &take, 4).await, 4);
    assert!(flaky.memory().is_empty());
    flaky.set(Mode::Works);
    assert_eq!(allowed(&store, &take, 3).await, 3);
    let look = take.clone().looking();
    assert_eq!(ask(flaky.memory(), &look).await.remaining(), 7);
    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(ask(&store, &look).await.remaining(), 6);
}

/// A denial here sends a client away for as long as the store has failed, from one second to five,
/// and up to a second more; not for a window of the share, in which the store may have room.
#[tokio::test(start_paused = true)]
async fn a_denial_is_for_now() {
    for algorithm in Algorithm::ALL {
        let flaky = FlakyStore::new(Mode::Works);
        let (store, _) = fallback(&flaky, Share::of_processes(8));
        let take = take_of(rule(quota(5, 86_400 * SECOND)).with_algorithm(algorithm));
        let denied = async || {
            let denied = ask(&store, &take).await;
            assert_eq!(denied.source(), Source::Fallback);
            let is_so = matches!(denied.verdict(), Verdict::Denied { .. });
            assert!(is_so, "{denied:?}");
            denied.retry_after().expect("a time").as_secs_f64()
        };
        assert!(ask(&store, &take).await.failure().is_none());
        flaky.set(Mode::FailsAtOnce(Kind::Timeout));
        assert!(ask(&store, &take).await.is_allowed());
        for (passed, expected) in [(0, 1.0), (3, 3.0), (1, 4.0), (3_600, 5.0)] {
            tokio::time::sleep(passed * SECOND).await;
            let waits: Vec<_> = futures_util::future::join_all((0..20).map(|_| denied())).await;
            let range = expected..=expected + 1.0;
            assert!(waits.iter().all(|it| range.contains(it)), "{waits:?}");
            assert_ne!(waits[0], waits[1], "they come back apart");
        }
        // The store decides again, and fails anew.
        flaky.set(Mode::Works);
        assert!(ask(&store, &take).await.is_allowed());
        flaky.set(Mode::FailsAtOnce(Kind::Timeout));
        assert!(denied().await <= 2.0);
    }
}

/// What costs more than the share of a period may fit a moment later: only what the whole rule
/// never admits is never admitted.
#[tokio::test(start_paused = true)]
async fn never_is_said_of_the_whole_rule() {
    let (store, _) = fallback(&gone(), Share::of_processes(4));
    let rule = Rule::with_policies(
        "p",
        [Policy::calendar(tidegate::rule::Period::MONTH, 5_000)],
    )
    .expect("valid");
    let take = take_of(rule);
    let denied = ask(&store, &take.clone().with_cost(2_000)).await;
    let is_so = matches!(denied.verdict(), Verdict::Denied { .. });
    assert!(is_so, "{denied:?}");
    assert!(denied.retry_after() <= Some(2 * SECOND));
    let never = ask(&store, &take.with_cost(5_001)).await;
    assert_eq!(never.verdict(), Verdict::Never);
}

#[tokio::test]
async fn a_burst_is_shared_too() {
    for (processes, quota, cost, admitted, millis) in [
        // A quarter of one a second.
        (4, quota(60, 60 * SECOND).with_burst(12), 1, 3, 4_000),
        // A request that costs more than the share of a burst fills it.
        (8, quota(100, 10 * SECOND).with_burst(10), 5, 1, 4_200),
        (4, Quota::per_second(40).with_burst(2), 2, 1, 200),
    ] {
        let (store, clock) = fallback(&gone(), Share::of_processes(processes));
        let rule = rule(quota.expect("valid")).with_algorithm(Algorithm::Gcra);
        let take = take_of(rule).with_cost(cost);
        assert_eq!(allowed(&store, &take, 20).await, admitted, "{cost}");
        clock.set(clock.now() + millis * 1_000);
        assert_eq!(allowed(&store, &take, 20).await, 1, "{cost}");
    }
}

#[tokio::test]
async fn what_nobody_may_nobody_may_here() {
    let (store, _) = fallback(&gone(), Share::of_processes(2));
    let none = take_from(0, SECOND);
    assert_eq!(ask(&store, &none).await.verdict(), Verdict::Never);
    let much = take_of(rule(quota(4, SECOND)).with_cost(5));
    assert_eq!(ask(&store, &much).await.verdict(), Verdict::Never);
}

/// More than the share, by a take that costs more than its rule says: as for the rule's own cost,
/// it is admitted where nothing else counts, and the whole quota bounds it in a longer window.
#[tokio::test]
async fn a_cost_above_the_share_is_one_request() {
    for cost_of_rule in [1, 3] {
        let (store, clock) = fallback(&gone(), Share::of_processes(2));
        let take = take_of(rule(quota(4, SECOND)).with_cost(cost_of_rule)).with_cost(3);
        assert!(ask(&store, &take).await.is_allowed());
        let denied = ask(&store, &take).await.retry_after().expect("a time");
        let is_so = denied >= SECOND && denied <= 2 * SECOND;
        assert!(is_so, "{denied:?}");
        clock.set(clock.now() + 1_999_999);
        assert!(!ask(&store, &take).await.is_allowed());
        clock.set(clock.now() + 32_000);
        assert!(ask(&store, &take).await.is_allowed());
        let too_much = take_from(4, SECOND).with_cost(5);
        assert_eq!(ask(&store, &too_much).await.verdict(), Verdict::Never);
    }
}

/// All quotas have their share, in their order.
#[tokio::test]
async fn each_quota_has_its_share() {
    let flaky = gone();
    let (store, _) = fallback(&flaky, Share::new(1, 2));
    let rule = Rule::new("p", [quota(4, SECOND), quota(100, 60 * SECOND)]).expect("valid");
    let take = take_of(rule);
    let decision = ask(&store, &take).await;
    let states = decision.quotas().iter();
    let remaining: Vec<_> = states.map(|state| state.remaining()).collect();
    assert_eq!(remaining, [1, 49]);
    // Another share of the same rule is another one.
    let (other, _) = fallback(&flaky, Share::of_processes(4));
    assert_eq!(ask(&other, &take).await.remaining(), 0);
    assert_eq!(ask(&store, &take).await.remaining(), 0);
    // And a rule that was made of this one has its own.
    let dearer = take_of(Rule::clone(take.rule()).with_cost(2));
    let (fresh, _) = fallback(&flaky, Share::of_processes(4));
    let is_right = ask(&fresh, &dearer).await.is_allowed();
    assert!(is_right, "one request, not one unit");
}

#[tokio::test]
async fn a_rule_that_says_something_else_gets_the_error() {
    let (store, _) = fallback(&gone(), Share::of_processes(1));
    let of = |on_error| take_of(rule(Quota::per_second(5)).with_on_error(on_error));
    let (respond, proceed) = (of(OnError::Respond), of(OnError::Proceed));
    for take in [&respond, &proceed] {
        let error = store.take(take).await.expect_err("passed on");
        assert_eq!(error.kind(), Kind::Timeout);
    }
    assert!(ask(&store, &of(OnError::Fallback)).await.is_allowed());
}

#[tokio::test]
async fn a_refund_goes_where_the_receipt_is_from() {
    let flaky = gone();
    let (store, _) = fallback(&flaky, Share::of_processes(1));
    let take = take_from(10, 60 * SECOND);
    let here = charge(&store, &take.clone().with_cost(4)).await;
    flaky.set(Mode::Works);
    let there = charge(&store, &take.clone().with_cost(5)).await;
    let look = take.clone().looking();

    let whole = take.clone().with_cost(10);
    assert_eq!(refunds(&store, &whole, &here).await, 4);
    assert_eq!(refunds(&store, &whole, &here).await, 0, "once");
    assert_eq!(ask(&store, &look).await.remaining(), 5, "untouched there");
    assert_eq!(refunds(&store, &whole, &there).await, 5);
    assert_eq!(ask(&store, &look).await.remaining(), 10);

    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(ask(&store, &look).await.remaining(), 10);
    let again = charge(&store, &take).await;
    assert_eq!(refunds(&store, &take, &again).await, 1);
    let lost = store.refund(&take, &there).await;
    assert_eq!(lost.expect_err("nobody there").kind(), Kind::Timeout);
}

/// Also where a share is less than one request, and so one in a longer window.
#[tokio::test]
async fn a_refund_of_a_share_in_a_longer_window() {
    let (store, _) = fallback(&gone(), Share::of_processes(4));
    for algorithm in Algorithm::ALL {
        for cost in [1, 3] {
            let rule = rule(quota(3, 60 * SECOND)).with_algorithm(algorithm);
            let take = Take::new(rule.into(), Key::from(cost.to_string())).with_cost(cost);
            for _ in 0..2 {
                let receipt = charge(&store, &take).await;
                let one = take.clone().with_cost(1);
                let refunded = refunds(&store, &one, &receipt).await;
                let rest = take.clone().with_cost(cost - 1);
                let refunded = refunded + refunds(&store, &rest, &receipt).await;
                assert_eq!(refunded, cost, "{algorithm:?}");
            }
        }
    }
}

/// The error says that the store inside may count on; what was counted here is forgotten.
#[tokio::test]
async fn a_reset_forgets_here_and_inside() {
    for resilient in [false, true] {
        let inner = FlakyStore::new(Mode::Works);
        let store: Arc<dyn Store> = match resilient {
            false => Arc::new(fallback(&inner, Share::of_processes(1)).0),
            true => {
                let store = Resilient::new(inner.clone()).fallback(Share::of_processes(1));
                store.denial_cache(None).failures(None).build()
            }
        };
        let take = take_from(3, 60 * SECOND);
        assert_eq!(allowed(&*store, &take, 5).await, 3);
        inner.set(Mode::FailsAtOnce(Kind::Unavailable));
        assert_eq!(allowed(&*store, &take, 5).await, 3);
        let reset = store.reset(&take).await;
        assert_eq!(reset.expect_err("a failure").kind(), Kind::Unavailable);
        assert_eq!(allowed(&*store, &take, 5).await, 3, "forgotten here");
        inner.set(Mode::Works);
        assert_eq!(allowed(&*store, &take, 5).await, 0, "not inside");
        let reset = store.reset(&take).await;
        assert!(reset.expect("an answer"), "there was a count");
        assert_eq!(allowed(&*store, &take, 5).await, 3);
    }
}

#[tokio::test]
async fn its_memory_is_bounded() {
    let store = Resilient::bare(gone()).fallback(Share::of_processes(1));
    let store = store.fallback_keys(2);
    let rule = Arc::new(rule(quota(10, 60 * SECOND)));
    let full = Some(Kind::Full);
    for (name, expected) in [("a", None), ("b", None), ("c", full), ("a", None)] {
        let take = Take::new(Arc::clone(&rule), Key::from(name));
        let answer = (&store as &dyn Store).take(&take).await;
        assert_eq!(answer.err().map(|error| error.kind()), expected, "{name}");
    }
}

/// Invented keys at one path leave room at another one, until they count no more; nothing that
/// counts is forgotten.
#[tokio::test]
async fn a_flood_at_one_path_leaves_room_at_others() {
    for processes in [1, 4] {
        let clock = clock_at(1_000_000_000_777);
        let local = MemoryStore::with_max_keys(500).clock(clock.clone());
        let store = Resilient::bare(gone()).processes(processes);
        let store = store.fallback_store(local);
        let named = |path: &str, key: String| {
            let rule = Rule::new(path, [quota(8, 60 * SECOND)]).expect("valid");
            Take::new(Arc::new(rule), Key::from(key))
        };
        let admitted = async |path: &str, keys: std::ops::Range<u32>| {
            let mut admitted = 0;
            for key in keys {
                let answer = store.take(&named(path, key.to_string())).await;
                let is_full = answer.as_ref().is_err_and(|it| it.kind() == Kind::Full);
                assert!(is_full || answer.as_ref().is_ok_and(Decision::is_allowed));
                admitted += u32::from(!is_full);
            }
            admitted
        };
        assert_eq!(admitted("api", 0..600).await, 438 - processes / 4);
        assert_eq!(admitted("login", 0..1).await, 1, "bob logs in");
        // A flood there is a 503, as are new keys of `api`; those that are known count on.
        let more = admitted("login", 1..600).await;
        assert!((20..50).contains(&more), "{more}");
        assert_eq!(admitted("other", 0..1).await, 1);
        assert_eq!(admitted("api", 600..700).await, 0);
        assert_eq!(admitted("api", 0..1).await, 1);
        clock.set(clock.now() + 60_000_000 * u64::from(processes) * 65 / 64);
        assert!(admitted("other", 0..600).await > 430, "all has room again");
    }
}

/// A store that is of no use for takes, and answers each change with the largest number.
#[derive(Debug)]
struct AnswersLarge;

impl Store for AnswersLarge {
    fn take(&self, _: &Ask) -> StoreFuture<Decision> {
        let error = StoreError::new(Kind::Unavailable, "it takes nothing");
        StoreFuture::ready(Err(error))
    }

    fn change(&self, _: &Ask, _: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(u64::MAX))
    }

    fn name(&self) -> String {
        "large".to_owned()
    }
}

#[tokio::test]
async fn a_reset_takes_any_number_from_the_store_inside() {
    let store = Resilient::bare(AnswersLarge).fallback(Share::of_processes(1));
    let take = take_from(3, 60 * SECOND);
    assert_eq!(allowed(&store, &take, 5).await, 3, "counted here");
    assert!(store.reset(&take).await.expect("an answer"));
    assert_eq!(allowed(&store, &take, 5).await, 3);
}

/// A login whose failures lock its key out: after two of them for an hour.
fn login(max: u64) -> Arc<Rule> {
    let lockout = Lockout::after(2).within(HOUR).hold([HOUR]).on(["401"]);
    let rule = rule(quota(max, 60 * SECOND)).with_lockout(lockout);
    Arc::new(rule.expect("it makes sense"))
}

fn of(rule: &Arc<Rule>, key: impl ToString) -> Take {
    Take::new(Arc::clone(rule), Key::from(key.to_string().as_str()))
}

/// Takes that are admitted and fail, until one is denied: how many.
async fn guesses(store: &dyn Store, take: &Take) -> u64 {
    for number in 0..9 {
        let Some(receipt) = ask(store, take).await.receipt() else {
            return number;
        };
        static ID: AtomicU64 = AtomicU64::new(1);
        let (id, late) = (ID.fetch_add(1, Ordering::Relaxed), Duration::ZERO);
        let failed = Change::Failed { receipt, id, late };
        store.change(take, &failed).await.expect("an answer");
    }
    panic!("nothing locks it out");
}

/// How long a key is locked out by the fallback.
async fn locked_out(store: &dyn Store, take: &Take) -> Option<Duration> {
    let decision = ask(store, take).await;
    assert_eq!(decision.source(), Source::Fallback);
    match decision.verdict() {
        Verdict::LockedOut { retry_after } => Some(retry_after),
        _ => None,
    }
}

/// A fallback, the store inside, and another process on that.
fn two_processes() -> (Resilient<FlakyStore>, FlakyStore, Resilient<FlakyStore>) {
    let flaky = FlakyStore::new(Mode::Works);
    let process = || {
        let store = Resilient::bare(flaky.clone()).fallback(Share::of_processes(1));
        store.fallback_store(MemoryStore::new().tokio_clock())
    };
    (process(), flaky.clone(), process())
}

/// A process keeps a lock-out of which it was told, by a failure that began it or by a denial,
/// until that ends.
#[tokio::test(start_paused = true)]
async fn a_lock_out_outlasts_the_store() {
    let (store, flaky, other) = two_processes();
    let rule = login(100);
    let (alice, bob, carol) = (of(&rule, "alice"), of(&rule, "bob"), of(&rule, "carol"));
    assert_eq!(guesses(&store, &alice).await, 2);
    assert_eq!(guesses(&other, &bob).await, 2);
    assert_eq!(guesses(&other, &carol).await, 2);
    advance(60 * SECOND).await;
    assert!(!ask(&store, &bob).await.is_allowed());
    for _ in 0..3 {
        flaky.set(Mode::Fails(Kind::Unavailable));
        let left = locked_out(&store, &alice).await.expect("it is");
        assert!(left <= HOUR - 60 * SECOND, "{left:?}");
        let denied = ask(&store, &bob).await;
        assert_eq!((denied.remaining(), denied.receipt()), (0, None));
        assert!(denied.is_locked_out() && denied.reset_after() <= HOUR);
        // Nobody told it of this one.
        assert!(ask(&store, &carol).await.is_allowed());
        flaky.set(Mode::Works);
        assert!(!ask(&store, &alice).await.is_allowed());
        advance(SECOND).await;
    }
    flaky.set(Mode::Fails(Kind::Unavailable));
    advance(HOUR - 64 * SECOND).await;
    assert!(locked_out(&store, &alice).await.is_some());
    advance(SECOND).await;
    assert_eq!(guesses(&store, &alice).await, 2, "it is over");
}

/// An answer of the store that admits the key ends it, and so does a reset through this process.
#[tokio::test(start_paused = true)]
async fn a_lock_out_ends_early() {
    let (store, flaky, other) = two_processes();
    let rule = login(100);
    let takes = ["alice", "bob", "carol"].map(|name| of(&rule, name));
    for take in &takes {
        assert_eq!(guesses(&store, take).await, 2);
    }
    let [alice, bob, carol] = &takes;
    other.reset(alice).await.expect("an answer");
    other.reset(bob).await.expect("an answer");
    assert!(ask(&store, alice).await.is_allowed());
    assert!(ask(&store, &bob.clone().looking()).await.is_allowed());
    flaky.set(Mode::Fails(Kind::Unavailable));
    assert!(locked_out(&store, alice).await.is_none());
    assert!(locked_out(&store, bob).await.is_none());
    assert!(locked_out(&store, carol).await.is_some());
    let reset = store.reset(carol).await;
    assert_eq!(reset.expect_err("nobody there").kind(), Kind::Unavailable);
    assert!(locked_out(&store, carol).await.is_none());
    // The store still knows it, and says so.
    flaky.set(Mode::Works);
    assert!(ask(&store, carol).await.is_locked_out());
    flaky.set(Mode::Fails(Kind::Unavailable));
    assert!(locked_out(&store, carol).await.is_some());
}

/// A quota that denies for longer hides until when the key is locked out: for its longest hold at
/// most.
#[tokio::test(start_paused = true)]
async fn a_lock_out_behind_a_longer_denial() {
    let (store, flaky, other) = two_processes();
    let lockout = Lockout::after(2)
        .within(HOUR)
        .hold([60 * SECOND])
        .on(["401"]);
    let rule = rule(quota(2, 24 * HOUR)).with_lockout(lockout);
    let take = of(&Arc::new(rule.expect("it makes sense")), "alice");
    assert_eq!(guesses(&other, &take).await, 2);
    let denied = ask(&store, &take).await;
    assert!(denied.is_locked_out() && denied.retry_after() > Some(HOUR));
    flaky.set(Mode::Fails(Kind::Unavailable));
    assert_eq!(locked_out(&store, &take).await, Some(60 * SECOND));
}

/// Of more than 10,000 the one that ends first is forgotten, whatever room the fallback has.
#[tokio::test(start_paused = true)]
async fn many_lock_outs() {
    let flaky = FlakyStore::new(Mode::Works);
    let store = Resilient::bare(flaky.clone()).fallback(Share::of_processes(1));
    let store = store.fallback_keys(1);
    let rule = login(100);
    for key in 0..10_002 {
        assert_eq!(guesses(&store, &of(&rule, key)).await, 2);
        advance(Duration::from_millis(1)).await;
    }
    flaky.set(Mode::Fails(Kind::Unavailable));
    for (key, is_known) in [(2, true), (10_001, true), (5_000, true), (0, false)] {
        let is_locked_out = locked_out(&store, &of(&rule, key)).await.is_some();
        assert_eq!(is_locked_out, is_known, "{key}");
    }
    // The only place is taken by key 0.
    let full = (&store as &dyn Store).take(&of(&rule, 1)).await;
    assert_eq!(full.expect_err("full").kind(), Kind::Full);
}

/// It is the count of the subject that is locked out, whatever plan chose its quotas; a shadow rule
/// has its own.
#[tokio::test(start_paused = true)]
async fn a_lock_out_of_a_subject() {
    let (store, flaky, _) = two_processes();
    let subject = |name: &str| Subject::new(name, Header::new(name)).limit(quota(100, HOUR));
    let lockout = || Lockout::after(2).within(HOUR).hold([HOUR]).on(["401"]);
    let joint = Rule::joint("joint", [subject("net"), subject("user")]).expect("valid");
    let joint = joint.with_lockout(lockout().subject("user"));
    let joint = Arc::new(joint.expect("it makes sense"));
    let of_both = |net: &str, user: &str| {
        let keys = [("net", Key::from(net)), ("user", Key::from(user))];
        Take::of_subjects(Arc::clone(&joint), keys).expect("its subjects")
    };
    let plan = Plan::of([quota(50, HOUR)]).expect("valid");
    let login = login(100);
    let planned = of(&login.under(&plan).expect("it fits"), "alice");
    let shadow = of(&Arc::new(Rule::clone(&login).into_shadow()), "alice");
    assert_eq!(guesses(&store, &of_both("a", "alice")).await, 2);
    assert_eq!(guesses(&store, &of(&login, "alice")).await, 2);
    flaky.set(Mode::Fails(Kind::Unavailable));
    assert!(locked_out(&store, &of_both("b", "alice")).await.is_some());
    assert!(locked_out(&store, &of_both("a", "bob")).await.is_none());
    assert!(locked_out(&store, &planned).await.is_some());
    assert!(locked_out(&store, &shadow).await.is_none());
}
