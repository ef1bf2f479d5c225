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
        assert_eq!(
            seen,
            "flaky was not asked, it still has 3 questions to answer"
        );
        assert_eq!(took, Duration::ZERO);
    }
    assert!(ask(&store, &take()).await.is_allowed(), "there is room");
}

/// A permit is held from the question to the end of its future, polled or not. A refund has one,
/// too.
#[tokio::test(start_paused = true)]
async fn a_dropped_future_gives_its_permit_back() {
    let (store, flaky) = around(Mode::Hangs, |it| it.in_flight(3));
    let one = take();
    let receipt = Receipt::new(1, 1, 1);
    for round in 0..99 {
        let unpolled = store.take(&one);
        assert_eq!((store.under_way(), flaky.under_way()), (1, 1));
        let mut polled = Box::pin(store.take(&one));
        let mut refund = Box::pin(store.refund(&one, &receipt));
        assert!(poll_immediate(&mut polled).await.is_none());
        assert!(poll_immediate(&mut refund).await.is_none());
        assert_eq!((store.under_way(), flaky.under_way()), (3, 3));
        assert_eq!(kind(&store).await, StoreErrorKind::Overloaded);
        let refused = store.refund(&one, &receipt).await;
        let refused = refused.expect_err("one too many").kind();
        assert_eq!(refused, StoreErrorKind::Overloaded);
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

/// Also around a store whose answers are ready.
#[tokio::test]
async fn a_first_question_needs_a_permit() {
    let receipt = Receipt::new(1, 1, 1);
    for mode in [Mode::Memory, Mode::Works] {
        let (store, flaky) = around(mode, |it| it.in_flight(0));
        assert_eq!(kind(&store).await, StoreErrorKind::Overloaded);
        let refund = store.refund(&take(), &receipt).await;
        let refused = refund.expect_err("it needs one, too").kind();
        assert_eq!(refused, StoreErrorKind::Overloaded);
        assert_eq!((flaky.asked(), flaky.memory().len()), (0, 0));
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
