//! A link that goes silent while only callers use it that are alone and leave before any answer, or
//! never poll again: it is replaced as soon as docs/evidence says.

use std::fmt::Debug;

use super::*;

const ROUND_TRIP: Duration = millis(20);
/// What the reply that was on its way, a new connection and a busy machine take.
const SLACK: Duration = millis(150);

/// What the callers do.
#[derive(Debug, Clone, Copy)]
enum Callers {
    /// One after the other, each for 8 ms.
    OneByOne,
    /// Twelve at once, each for 8 ms, again and again.
    Twelve,
    /// One after the other is polled once, and dropped after 8 ms.
    PolledOnce,
    /// One after the other is polled once, and kept.
    Kept,
    /// A single one, which leaves after 8 ms; then nobody asks any more.
    One,
    /// A single one that is kept.
    OneKept,
    /// Six that are kept; then nobody asks any more.
    SixKept,
}

impl Callers {
    /// Asks for about 8 ms; `asked` are those so far, with what is kept of them.
    async fn ask(self, store: &RedisStore, asked: &mut Vec<Option<Pending>>) {
        let mine = take(&rule("hasty", MAX, HOUR), asked.len() % 7);
        if let Self::OneByOne | Self::Twelve = self {
            let number = if let Self::Twelve = self { 12 } else { 1 };
            let ask = || timeout(millis(8), store.take(&mine));
            join_all((0..number).map(|_| ask())).await;
            return;
        }
        if matches!(self, Self::SixKept) && asked.is_empty() {
            let others = (0..6).map(|at| polled_once(store, &take(&rule("hasty", MAX, HOUR), at)));
            asked.extend(others.map(Some));
        }
        let is_single = matches!(self, Self::One | Self::OneKept | Self::SixKept);
        let pending = (!is_single || asked.is_empty()).then(|| polled_once(store, &mine));
        sleep(millis(8)).await;
        asked.push(pending.filter(|_| !matches!(self, Self::PolledOnce | Self::One)));
    }
}

/// How long after the link has gone silent there is another connection, and a decision.
async fn replaced_after(callers: Callers, time_out: Duration) -> (Duration, Duration) {
    let (server, proxy, store) = far_within(ROUND_TRIP, time_out).await;
    for _ in 0..5 {
        callers.ask(&store, &mut Vec::new()).await;
    }
    // Where there is a single question, no earlier one is outstanding.
    sleep(2 * ROUND_TRIP).await;
    let mut kept = Vec::new();
    let accepted = proxy.accepted();
    proxy.fall_silent();
    let began = server.stopwatch();
    while proxy.accepted() == accepted {
        callers.ask(&store, &mut kept).await;
        let waited = began.waited();
        assert!(waited < PATIENT / 4, "{callers:?}: never replaced");
    }
    let replaced = began.waited();
    // What is sent over the silent link before another one answers may wait for a second more.
    let hasty = store.timeout(TIMEOUT);
    let mut bystander = Bystander::new("bystander");
    bystander.ask_until_answered(&hasty, PATIENT / 4).await;
    (replaced, began.waited())
}

async fn check(callers: Callers, time_out: Duration) {
    let silence = (2 * time_out).clamp(millis(100), millis(1_000));
    // docs/evidence/faults.md has decisions again 330 ms after a black hole has begun, at most.
    let bounds = (silence + SLACK, silence + 2 * SLACK);
    let mut seen = Vec::new();
    // A machine that stands still for a moment may look silent just before. A mistake shows always.
    for _ in 0..3 {
        let (replaced, decided) = replaced_after(callers, time_out).await;
        println!("{callers:?}, {time_out:?}: replaced {replaced:?}, decided {decided:?} after");
        if replaced < bounds.0 && decided < bounds.1 {
            return;
        }
        seen.push((replaced, decided));
    }
    panic!("{callers:?}, {time_out:?}: {seen:?} instead of {bounds:?}");
}

#[tokio::test]
async fn it_is_replaced_whoever_asks() {
    check(Callers::OneByOne, millis(2_000)).await;
    for time_out in [TIMEOUT, millis(200)] {
        use Callers::{Kept, One, OneByOne, OneKept, PolledOnce, SixKept, Twelve};
        for callers in [OneByOne, Twelve, PolledOnce, Kept, One, OneKept, SixKept] {
            check(callers, time_out).await;
        }
    }
}

/// A link that rests, and one whose replies take long but come, are no silent ones.
#[tokio::test]
async fn what_is_no_silence() {
    let (_server, proxy, store) = far_within(millis(60), millis(90)).await;
    let steady = Steady::watch(&proxy).await;
    for callers in [
        Callers::OneByOne,
        Callers::PolledOnce,
        Callers::OneKept,
        Callers::SixKept,
    ] {
        let mut kept = Vec::new();
        for _ in 0..10 {
            callers.ask(&store, &mut kept).await;
        }
        // Nothing is outstanding, and nothing arrives.
        sleep(millis(500)).await;
    }
    let patient = store.clone().timeout(PATIENT);
    Bystander::new("bystander").ask(&patient).await;
    steady.check();
}

/// This process has stood still: what it sent is not written yet, or the reply is not read.
#[tokio::test]
async fn a_process_that_stood_still() {
    let (_server, proxy, store, mut bystander) = beside(TIMEOUT).await;
    let patient = store.clone().timeout(PATIENT);
    let mut connections = 0;
    for round in 0..8 {
        bystander.ask(&patient).await;
        let accepted = proxy.accepted();
        let pending = polled_once(&store, &take(&rule("late", MAX, HOUR), round));
        std::thread::sleep(millis(300));
        sleep(millis(60)).await;
        drop(pending);
        connections += proxy.accepted() - accepted;
    }
    // The machine may stand still as well.
    assert!(connections < 2, "{connections} beside a healthy one");
}
