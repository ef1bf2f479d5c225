//! A rule's lease through the whole door: never beyond max, never more than one's own, and nothing
//! is lost when parts are made anew.

use super::*;

const LEASE: Duration = millis(60);
/// Longer than leases hold units.
const DENIED: Duration = millis(200);

/// Law 1 with every part in play: two processes with leases, fallbacks, caches and breakers on a
/// server behind a line that is slow, is cut in several ways, and comes back. In every window the
/// store's units are at most max, and those of each fallback at most its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_cut_and_comes_back() {
    const MAX: u64 = 2_000;
    const WINDOW: Duration = Duration::from_secs(1);
    let server = Redis::start();
    let mut proxy = behind(&server, millis(2)).await;
    let one = leased_log("cut", MAX, WINDOW, millis(20));
    let end = Instant::now() + Duration::from_secs(6);
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = connect(&proxy.url, millis(100)).await;
        let store = Resilient::new(store).processes(2).probe_every(millis(20));
        let tasks = (0..8).map(|_| {
            let (store, one) = (store.clone(), one.clone());
            tokio::spawn(async move {
                let mut told = Vec::new();
                while Instant::now() < end {
                    let asked = Instant::now();
                    let decision = decide(&store, &one).await;
                    let answered = Instant::now();
                    told.push((Allowed { asked, answered }, decision));
                    sleep(millis(4)).await;
                }
                told
            })
        });
        processes.push(tasks.collect::<Vec<_>>());
    }
    let (calls, replies) = (millis(1), millis(1));
    for round in 0..4 {
        sleep(millis(900)).await;
        match round {
            0 => proxy.all(Mode::BlackHole),
            1 => {
                proxy.refuse().await;
                proxy.present(Mode::Reset);
            }
            2 => proxy.all(Mode::LoseReplies(30)),
            _ => proxy.all(Mode::Hold),
        }
        sleep(millis(350)).await;
        if round == 1 {
            proxy.accept_again().await;
        }
        proxy.all(Mode::Delay { calls, replies });
    }
    let (mut by_store, mut all, mut by_lease) = (Vec::new(), Vec::new(), 0);
    for process in processes {
        let mut by_fallback = Vec::new();
        for (at, decision) in done(process).await.into_iter().flatten() {
            if !decision.is_allowed() {
                continue;
            }
            all.push(at);
            by_lease += u32::from(decision.source() == Source::Lease);
            match decision.source() {
                Source::Fallback => by_fallback.push(at),
                _ => by_store.push(at),
            }
        }
        assert!(by_fallback.len() > 5, "{}", by_fallback.len());
        check(&mut by_fallback, MAX / 2, WINDOW);
    }
    assert!(by_lease > 10, "{by_lease}");
    check(&mut by_store, MAX, WINDOW);
    check(&mut all, 2 * MAX, WINDOW);
}

/// It remembers denials for ever.
fn remembering(inner: Distant) -> Resilient<Distant> {
    let store = Resilient::new(inner).denial_cache(Duration::MAX);
    store.tokio_clock()
}

/// Law 14: a cached denial of a large cost, which lasts for ever, denies nothing that a lease still
/// holds, and the quota is used to the last unit.
#[tokio::test(start_paused = true)]
async fn a_cached_denial_stands_behind_a_lease() {
    const MAX: u64 = 4_000;
    let (_memory, inner) = distant_memory();
    let store = remembering(inner);
    let one = leased_log("behind", MAX, HOUR, LEASE);
    let mut used = units(&until_leased(&store, &one).await);
    let large = one.clone().with_cost(MAX - used);
    assert!(!decide(&store, &large).await.is_allowed());
    assert_eq!(decide(&store, &large).await.source(), Source::Cache);
    let leased = store.take(&one).poll_now().expect("law 14: it is held");
    let leased = leased.expect("a decision");
    assert!(leased.is_allowed() && leased.source() == Source::Lease);
    used += 1 + use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
}

/// Law 14: a denial that was cached before the lease began denies nothing that the lease holds. The
/// memory store frees the units behind the cache's back, so the denial stays.
#[tokio::test(start_paused = true)]
async fn a_lease_answers_before_an_older_cached_denial() {
    const MAX: u64 = 4_000;
    let (memory, inner) = distant_memory();
    let store = remembering(inner);
    let one = leased_log("before", MAX, HOUR, LEASE);
    let three = one.clone().with_cost(3);
    let all = one.clone().with_cost(MAX);
    let others = decide(&memory, &all).await.receipt().expect("charged");
    assert!(!decide(&store, &three).await.is_allowed());
    assert_eq!(refund(&memory, &all, &others).await, MAX);
    assert_eq!(decide(&store, &three).await.source(), Source::Cache);
    let last = until_leased(&store, &one).await.pop();
    assert!(last.is_some_and(|leased| leased.remaining() >= 3));
    let leased = decide(&store, &three).await;
    assert!(leased.is_allowed(), "law 14");
    assert_eq!(leased.source(), Source::Lease, "law 14");
}

/// Laws 14 and 15: leased units that are refunded, through a clone, are back immediately, though the
/// denial is cached for ever: each once, and to the store.
#[tokio::test(start_paused = true)]
async fn a_refund_of_leased_units_ends_the_denial() {
    const MAX: u64 = 3_000;
    let (memory, inner) = distant_memory();
    let store = remembering(inner).processes(2);
    let one = leased_log("refunds", MAX, HOUR, LEASE);
    let mut decisions = until_leased(&store, &one).await;
    decisions.extend(use_up(&store, &one, DENIED).await);
    assert_eq!(units(&decisions), MAX);
    let by_lease = decisions.iter().filter(|it| it.source() == Source::Lease);
    let receipts: Vec<_> = by_lease.filter_map(Decision::receipt).collect();
    assert!(receipts.len() > 100, "{}", receipts.len());
    let clone = store.clone();
    for receipt in receipts.iter().take(20) {
        assert_eq!(decide(&store, &one).await.source(), Source::Cache);
        assert_eq!(refund(&clone, &one, receipt).await, 1, "law 15");
        assert_eq!(spent(&memory, &one).await, MAX - 1);
        let again = decide(&store, &one).await;
        assert!(again.is_allowed(), "law 14: {again:?}");
        assert!(!decide(&store, &one).await.is_allowed(), "law 1");
    }
    sleep(3 * LEASE).await;
    assert_eq!(spent(&memory, &one).await, MAX);
}

/// Law 11: a reset through two doors forgets the lease, the denial and the counts; earlier receipts
/// give nothing back, and what is then used is max, to the unit.
#[tokio::test(start_paused = true)]
async fn a_reset_through_two_doors() {
    const MAX: u64 = 3_000;
    let (memory, inner) = distant_memory();
    let door = |store: Arc<dyn Store>| {
        let store = Resilient::new(store).processes(2);
        store.denial_cache(Duration::MAX).tokio_clock().build()
    };
    let store = door(door(Arc::new(inner)));
    let one = leased_log("resets", MAX, HOUR, LEASE);
    let before = until_leased(&store, &one).await;
    let large = one.clone().with_cost(MAX - 1);
    assert!(!decide(&store, &large).await.is_allowed());
    assert!(reset(&store, &one).await);
    assert_eq!(spent(&memory, &one).await, 0, "all is forgotten");
    let held = store.take(&large).poll_now();
    assert!(held.is_none(), "law 11: {held:?}");
    drop(held);
    sleep(3 * LEASE).await;
    for receipt in before.iter().filter_map(Decision::receipt) {
        assert_eq!(refund(&store, &one, &receipt).await, 0, "law 15");
    }
    reset(&store, &one).await;
    let first = decide(&store, &one).await;
    assert_ne!(first.source(), Source::Lease, "law 11");
    let used = 1 + use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
}

/// A reset while takes and a lease are on their way, again and again: never more than max is used
/// of what the store counts, and in the end nothing is missing.
#[tokio::test(start_paused = true)]
async fn resets_beside_questions_on_their_way() {
    const MAX: u64 = 5_000;
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let inner = Distant::new(Arc::clone(&memory)).ways(2, 3);
    let store = Resilient::new(inner).processes(2).tokio_clock();
    let one = leased_log("beside", MAX, HOUR, LEASE);
    for round in 0..40 {
        until_leased(&store, &one).await;
        let asked: Vec<_> = (0..20).map(|_| tokio::spawn(store.take(&one))).collect();
        sleep(millis(round % 7)).await;
        let reset = store.reset(&one);
        let (answers, reset) = tokio::join!(join_all(asked), reset);
        reset.expect("an answer");
        for answer in answers {
            assert!(is_allowed(&answer.expect("no panic")));
        }
    }
    sleep(3 * LEASE).await;
    reset(&store, &one).await;
    let used = use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
    assert_eq!(spent(&memory, &one).await, MAX);
}

/// Clones share every part, also those that were cloned after the first question; a setter makes
/// new parts for its own value alone, and the lease of parts that are gone comes back.
#[tokio::test(start_paused = true)]
async fn clones_and_setters_after_the_first_question() {
    const MAX: u64 = 8_000;
    let (memory, inner) = distant_memory();
    let first = Resilient::new(inner.clone()).failures(3).in_flight(4);
    let first = first.processes(2).denial_cache(Duration::MAX).tokio_clock();
    let one = leased_log("clones", MAX, HOUR, LEASE);
    let mut used = units(&until_leased(&first, &one).await);
    let second = first.clone();
    let shared = second.take(&one).poll_now().expect("it is held");
    assert_eq!(shared.expect("a decision").source(), Source::Lease);
    used += 1;
    sleep(2 * LEASE).await;

    let single = take(&kit::rule("single", 1, HOUR), "x");
    assert!(decide(&first, &single).await.is_allowed());
    assert!(!decide(&first, &single).await.is_allowed());
    assert_eq!(decide(&second, &single).await.source(), Source::Cache);
    let changed = second.clone().fallback_keys(10);
    assert_ne!(decide(&changed, &single).await.source(), Source::Cache);

    let roomy = take(&kit::rule("roomy", 1_000, HOUR), "x");
    let waits = [(); 4].map(|()| first.take(&roomy));
    let waits: Vec<_> = waits.into_iter().map(tokio::spawn).collect();
    yield_now().await;
    assert_eq!((first.under_way(), second.under_way()), (4, 4));
    assert_eq!(changed.under_way(), 0);
    let shed = decide(&second, &roomy).await;
    assert_eq!(shed.source(), Source::Fallback);
    assert_eq!(decide(&changed, &roomy).await.source(), Source::Local);
    for wait in join_all(waits).await {
        wait.expect("no panic").expect("a decision");
    }

    inner.takes_are(Fate::QuestionLost);
    for _ in 0..3 {
        assert_eq!(decide(&first, &roomy).await.source(), Source::Fallback);
    }
    assert_eq!(second.condition().is_breaker_open, Some(true));
    assert_eq!(changed.condition().is_breaker_open, Some(false));
    inner.takes_are(Fate::Answered);
    sleep(Duration::from_secs(1)).await;
    while decide(&first, &roomy).await.source() == Source::Fallback {
        sleep(millis(5)).await;
    }

    let third = first.clone().failures(5);
    let other = decide(&third, &one).await;
    assert_ne!(other.source(), Source::Lease, "parts of its own");
    used += 1;
    let last = until_leased(&third, &one).await;
    used += units(&last);
    // The parts that hold the lease are gone.
    let third = third.in_flight(None);
    used += u64::from(decide(&third, &one).await.is_allowed());
    drop((first, second, third, changed));
    sleep(4 * LEASE).await;
    assert_eq!(spent(&memory, &one).await, used, "laws 9 and 14");
}
