//! A bound on what is under way.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_too_much_is_shed_at_once() {
    let (store, flaky) = around(Mode::Slow(SECOND), |it| it.in_flight(3));
    let began = tokio::time::Instant::now();
    let answers = (0..10).map(|_| async {
        let take = take();
        let answer = (&store as &dyn Store).take(&take).await;
        (answer, began.elapsed())
    });
    let answers = join_all(answers).await;
    let (decided, shed): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(answer, _)| answer.is_ok());
    assert_eq!((decided.len(), shed.len(), flaky.asked()), (3, 7, 3));
    assert!(decided.iter().all(|(_, took)| *took == SECOND));
    for (answer, took) in shed {
        let error = answer.expect_err("shed");
        assert_eq!(error.kind(), StoreErrorKind::Overloaded);
        let seen = error.to_string();
        let expected = "flaky was not asked, it still has 3 questions to answer";
        assert_eq!(seen, expected);
        assert_eq!(took, Duration::ZERO);
    }
    assert!(ask(&store, &take()).await.is_allowed(), "there is room");
}

/// A permit is held from the question to the end of its future, polled or not. A refund has one of
/// its own kind, which takes cannot use up.
#[tokio::test(start_paused = true)]
async fn a_dropped_future_gives_its_permit_back() {
    let (store, flaky) = around(Mode::Hangs, |it| it.in_flight(3));
    let one = take();
    let receipt = Receipt::new(1, 1, 1);
    for round in 0..99 {
        let unpolled = store.take(&one);
        assert_eq!((store.under_way(), flaky.under_way()), (1, 1));
        let mut polled = Box::pin(store.take(&one));
        let third = store.take(&one);
        assert!(poll_immediate(&mut polled).await.is_none());
        assert_eq!(kind(&store).await, StoreErrorKind::Overloaded);
        let mut refund = Box::pin(store.refund(&one, &receipt));
        assert!(poll_immediate(&mut refund).await.is_none());
        assert_eq!((store.under_way(), flaky.under_way()), (4, 4));
        drop(third);
        match round % 3 {
            0 => drop((polled, unpolled, refund)),
            1 => drop((refund, unpolled, polled)),
            _ => {
                let late = tokio::time::timeout(MILLISECOND, polled).await;
                assert!(late.is_err());
                drop(unpolled);
                assert_eq!(store.under_way(), 1);
                drop(refund);
            }
        }
        assert_eq!((store.under_way(), flaky.under_way()), (0, 0));
    }
    flaky.set(Mode::Fails(StoreErrorKind::Timeout));
    assert_eq!(kind(&store).await, StoreErrorKind::Timeout);
    assert_eq!(store.under_way(), 0);
}

/// What gives back has a bound of its own.
#[tokio::test(start_paused = true)]
async fn changes_have_a_bound_of_their_own() {
    let (store, flaky) = around(Mode::Hangs, |it| it.in_flight(3));
    let receipt = Receipt::new(1, 1, 1);
    let pending: Vec<_> = (0..16_384)
        .map(|_| store.refund(&take(), &receipt))
        .collect();
    assert_eq!(flaky.under_way(), 16_384);
    let refused = store.refund(&take(), &receipt).await;
    let refused = refused.expect_err("one too many").kind();
    assert_eq!(refused, StoreErrorKind::Overloaded);
    drop(pending);
    assert_eq!((store.under_way(), flaky.under_way()), (0, 0));
    // What gives back in two counts asks about both.
    let requests = Policy::new("requests", Quota::per_hour(9)).with_cost(1);
    let user = Subject::new("user", Everyone).limit(Quota::per_hour(99));
    let rule = Rule::joint("two", [user.limit(requests)]).expect("valid");
    let two = Take::new(Arc::new(rule), Key::from("alice"));
    let pending: Vec<_> = (0..8_192).map(|_| store.refund(&two, &receipt)).collect();
    assert_eq!(flaky.under_way(), 8_192);
    let refused = tokio::time::timeout(SECOND, store.refund(&take(), &receipt)).await;
    refused.expect("at once").expect_err("one too many");
    drop(pending);
    assert_eq!((store.under_way(), flaky.under_way()), (0, 0));
}

/// Beyond their bound, what gives back waits for room until its time-out.
#[tokio::test(start_paused = true)]
async fn changes_wait_for_room() {
    let receipt = Receipt::new(1, 1, 1);
    for (leave_after, is_sent) in [(SECOND / 2, true), (SECOND * 2, false)] {
        let (store, flaky) = around(Mode::Hangs, |it| it.in_flight(3).timeout(SECOND));
        let pending: Vec<_> = (0..16_384)
            .map(|_| store.refund(&take(), &receipt))
            .collect();
        flaky.set(Mode::Works);
        let began = tokio::time::Instant::now();
        let one_more = async {
            let answer = store.refund(&take(), &receipt).await;
            (answer.map_err(|error| error.kind()), began.elapsed())
        };
        let leave = async {
            tokio::time::sleep(leave_after).await;
            drop(pending);
        };
        let ((answer, took), ()) = tokio::join!(one_more, leave);
        match is_sent {
            true => assert!(answer.is_ok() && took >= leave_after, "{answer:?}"),
            false => assert_eq!(answer, Err(StoreErrorKind::Overloaded)),
        }
        assert!(took >= SECOND / 2 && took <= SECOND, "{took:?}");
    }
}

/// Also around a store whose answers are ready. With no permit at all nobody asks the store; a
/// fallback decides, and shadow rules need none.
#[tokio::test(start_paused = true)]
async fn a_first_question_needs_a_permit() {
    for mode in [Mode::Memory, Mode::Works] {
        let flaky = FlakyStore::new(mode);
        let store = Resilient::new(flaky.clone()).in_flight(0);
        for _ in 0..100 {
            assert_eq!(kind(&store).await, StoreErrorKind::Overloaded);
            sleep(MILLISECOND).await;
        }
        assert_eq!(store.condition().is_breaker_open, Some(false), "{mode:?}");
        assert_eq!((flaky.asked(), flaky.memory().len()), (0, 0), "{mode:?}");
        let one = take_from(1_000, 3_600 * SECOND);
        let shadow = take_of(Rule::clone(one.rule()).into_shadow());
        assert!(ask(&store, &shadow).await.is_allowed(), "{mode:?}");
        let store = store.processes(4);
        let mut admitted = 0;
        for _ in 0..500 {
            let decision = ask(&store, &one).await;
            assert_eq!(decision.source(), Source::Fallback, "{mode:?}");
            admitted += u32::from(decision.is_allowed());
        }
        // The share.
        assert_eq!((admitted, store.under_way()), (250, 0), "{mode:?}");
    }

    let store = Resilient::bare(MemoryStore::new()).in_flight(1);
    for _ in 0..3 {
        let answer = at_once(&store, &take()).expect("at once");
        assert!(answer.expect("the permit is free again").is_allowed());
        assert_eq!(store.under_way(), 0);
    }
}

/// Those who wait for their turn must not keep out those who come.
#[tokio::test(start_paused = true)]
async fn a_repeat_never_needs_a_permit() {
    let (store, flaky) = around(Mode::Hangs, |it| it.in_flight(1));
    let again = take().repeat();
    let first = store.take(&take());
    let repeats: Vec<_> = (0..10).map(|_| store.take(&again)).collect();
    assert_eq!((store.under_way(), flaky.under_way()), (1, 11));
    assert_eq!(kind(&store).await, StoreErrorKind::Overloaded);
    drop((first, repeats));
    assert_eq!((store.under_way(), flaky.under_way()), (0, 0));

    let none = Resilient::bare(MemoryStore::new()).in_flight(0);
    assert!(ask(&none, &again).await.is_allowed());
}

/// Clones are the same door.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_the_bound_on_many_threads() {
    let (store, flaky) = around(Mode::Works, |it| it.in_flight(8));
    let each = (store.clone(), flaky);
    let tasks = spawn_each(0..64, each, |_, (store, flaky)| async move {
        for _ in 0..200 {
            let answer = store.take(&take()).await;
            assert!(flaky.under_way() <= 8);
            if let Err(error) = answer {
                assert_eq!(error.kind(), StoreErrorKind::Overloaded);
            }
        }
    });
    done(tasks).await;
    assert_eq!(store.under_way(), 0);
}

/// A store, and as many refunds to it under way as fit. Those of other keys are answered.
fn full() -> (Arc<dyn Store>, Vec<StoreFuture<u64>>) {
    let hangs = Stub::around(MemoryStore::new()).refund_fn(|memory, take, receipt| {
        match take.name("").ends_with(":hangs") {
            true => StoreFuture::boxed(std::future::pending()),
            false => memory.refund(take, receipt),
        }
    });
    let store: Arc<dyn Store> = Arc::new(Resilient::bare(hangs).in_flight(3));
    let other = kit::take(&Arc::new(kit::per_minute("p", 10)), "hangs");
    let refund = |_| store.refund(&other, &Receipt::new(1, 1, 1));
    let pending = (0..16_384).map(refund).collect();
    (store, pending)
}

/// A settlement that was not sent can be made again.
#[tokio::test(start_paused = true)]
async fn a_charge_whose_settlement_was_not_sent_can_be_settled() {
    let (store, pending) = full();
    let limits = kit::limits([kit::per_minute("p", 10)], store);
    let admitted = limits.check("p", "k").cost(4).await.expect("room");
    let charge = admitted.charge.expect("it was charged");
    for _ in 0..2 {
        let refused = charge.settle(1).await.expect_err("one too many").kind();
        assert_eq!(refused, StoreErrorKind::Overloaded);
    }
    drop(pending);
    assert_eq!(charge.settle(1).await.expect("an answer").given_back, 3);
    assert_eq!(charge.settle(0).await.expect("an answer").given_back, 0);
}

/// Nobody waits for a refund by outcome, so it needs no room.
#[tokio::test(start_paused = true)]
async fn a_refund_by_outcome_is_never_refused() {
    let (store, _pending) = full();
    let rule = kit::per_minute("p", 10).with_refund_on(["error"]);
    let limits = kit::limits([rule.expect("an outcome")], store);
    let fails = async || Err::<(), ()>(());
    let ran = limits.call("p").key("k").try_run(fails);
    ran.await.expect_err("it failed");
    tokio::time::sleep(SECOND).await;
    let left = limits.peek("p", "k").await.expect("an answer");
    assert_eq!(left.expect("a rule").remaining(), 10);
}
