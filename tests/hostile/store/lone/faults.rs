//! The network breaks while a lone take is under way whose caller has left, keeps it, or waits.

use kit::proxy::{FlightFault, Part};

use super::*;

/// What the caller of the broken take does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caller {
    Leaves,
    Keeps,
    Waits,
}

const CALLERS: [Caller; 3] = [Caller::Leaves, Caller::Keeps, Caller::Waits];

fn check(answer: Result<Decision, StoreError>) {
    if let Err(error) = answer {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
}

/// Reset, half-closed or cut: who waits hears of it at once, the others lose only what was sent.
#[tokio::test]
async fn the_connection_breaks() {
    let (_server, proxy, store, mut bystander) = beside_far(millis(8)).await;
    let mine = take(&rule("broken", MAX, HOUR), "x");
    let cuts = [7, 0].map(Mode::CutAfter);
    let modes = [Mode::Reset, Mode::HalfClosed, cuts[0], cuts[1]];
    for (round, mode) in (0..24).map(|round| (round, modes[round / 3 % 4])) {
        let caller = CALLERS[round % 3];
        let pending = polled_once(&store, &mine);
        sleep(millis(3 * (round as u64 / 12))).await;
        let mut kept = (caller != Caller::Leaves).then_some(pending);
        proxy.present(mode);
        if let (Caller::Waits, Some(pending)) = (caller, kept.take()) {
            check(in_time(pending).await);
        }
        bystander.ask_until_answered(&store, PATIENT / 4).await;
        if let Some(pending) = kept {
            check(in_time(pending).await);
        }
        bystander.ask(&store).await;
    }
    assert!(charged(&store, &mine).await <= 24, "none twice");
}

/// The reply of a lone take is lost, or there is one too many, and the connection stays: nobody
/// hears another caller's answer, whether the caller of the broken one is there or not.
#[tokio::test]
async fn a_reply_is_lost_on_a_connection_that_stays() {
    let (server, proxy, store) = breaking(millis(2), millis(200)).await;
    for round in 0..6 {
        let caller = CALLERS[round % 3];
        let path = format!("broken-{round}");
        proxy.break_flight(FlightFault::Lose(Part::All), &path, 0);
        let mine = take(&rule(&path, MAX, HOUR), "x").with_cost(11);
        let pending = polled_once(&store, &mine);
        // The first of those behind it asks while it is under way, or once it is lost.
        sleep(millis(10 * (round as u64 / 3))).await;
        let mut kept = (caller != Caller::Leaves).then_some(pending);
        if caller == Caller::Waits
            && let Some(pending) = kept.take()
        {
            assert!(pending.await.is_err(), "its reply is lost");
        }
        let mut bystander = Bystander::with_cost(&format!("bystander-{round}"), 5);
        let began = server.stopwatch();
        bystander.ask_until_answered(&store, PATIENT / 4).await;
        // The silence is broken by replies that do not fit, each of which tells.
        let waited = began.waited();
        assert!(waited < millis(1_500), "{caller:?}: {waited:?}");
        for _ in 0..10 {
            bystander.ask_until_answered(&store, PATIENT / 4).await;
        }
        if let Some(pending) = kept {
            assert!(pending.await.is_err(), "its reply is lost");
        }
    }
}

/// There is no connection when a lone take is polled: what is asked behind it is answered later.
#[tokio::test]
async fn polled_while_there_is_no_connection() {
    let server = Redis::start();
    let mut proxy = behind(&server, millis(4)).await;
    proxy.refuse().await;
    let store = RedisStore::connect_lazy(&*proxy.url).expect("a valid address");
    let store = store.timeout(PATIENT);
    let mut bystander = Bystander::new("bystander");
    for caller in [Caller::Leaves, Caller::Keeps] {
        let mut pending = Box::pin(store.take(&take(&rule("early", MAX, HOUR), "x")));
        let answer = poll_once(&mut pending);
        if let Poll::Ready(answer) = &answer {
            let kind = answer.as_ref().map_err(StoreError::kind);
            assert_eq!(kind.err(), Some(StoreErrorKind::Unavailable));
        }
        let kept = (caller == Caller::Keeps && answer.is_pending()).then_some(pending);
        proxy.accept_again().await;
        bystander.ask_until_answered(&store, PATIENT / 4).await;
        bystander.ask(&store).await;
        if let Some(pending) = kept {
            drop(in_time(pending).await);
        }
        proxy.refuse().await;
        proxy.present(Mode::Reset);
        sleep(millis(20)).await;
    }
}
