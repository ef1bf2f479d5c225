//! Replies that are lost, cut, held up or garbled: bounded time (law 6), never another caller's
//! decision, and all is well within a second.

use crate::prelude::*;

/// More than two script calls' keys, in one flight.
const KEYS: usize = 150;
/// Above the time-out: what a busy machine takes to wake up.
const SLACK: Duration = Duration::from_millis(60);
const MAX: u64 = 1_000_000;

/// Keys of one rule whose counts lie far apart: what remains tells whose answer it is.
struct Owners<'a> {
    takes: Vec<Take>,
    server: &'a Redis,
}

impl<'a> Owners<'a> {
    const APART: u64 = 5_000;

    async fn new(store: &RedisStore, server: &'a Redis) -> Self {
        let shared = rule("owned", MAX, HOUR);
        let takes = takes_of(&shared, KEYS);
        let store = store.clone().timeout(PATIENT);
        let ahead = takes.iter().enumerate();
        let ahead = ahead.map(|(at, take)| take.clone().with_cost(at as u64 * Self::APART));
        let ahead: Vec<_> = ahead.collect();
        kit::ask_all(&store, &ahead).await.expect("decisions");
        Self { takes, server }
    }

    fn check(at: usize, answer: &Decision) {
        let spent = MAX - answer.remaining();
        let ahead = at as u64 * Self::APART;
        assert!(answer.is_allowed());
        let is_right = (ahead + 1..ahead + Self::APART).contains(&spent);
        assert!(is_right, "{at} was told {spent} of another");
    }

    /// Asks for so many keys at once, each in its time, or some after the others.
    async fn ask(
        &self,
        store: &RedisStore,
        slice: usize,
        keys: usize,
    ) -> Vec<Result<(), StoreError>> {
        let takes = &self.takes[..keys];
        let asks = takes.chunks(slice).enumerate();
        let asks = asks.map(|(chunk, takes)| async move {
            let asked = self.server.stopwatch();
            let answers = kit::ask_all(store, takes).await;
            let waited = asked.waited();
            assert!(waited < TIMEOUT + SLACK, "law 6: {waited:?}");
            let answers = answers?;
            assert_eq!(answers.len(), takes.len());
            for (at, answer) in answers.iter().enumerate() {
                Self::check(chunk * slice + at, answer);
            }
            Ok(())
        });
        join_all(asks).await
    }
}

/// Breaks the connections in this way while everybody asks, several times.
async fn attack(modes: &[Mode], all_connections: bool) {
    let (server, proxy, store) = proxied(TIMEOUT).await;
    let owners = Owners::new(&store, &server).await;
    for (round, &mode) in modes.iter().enumerate() {
        let set = |mode| match all_connections {
            true => proxy.all(mode),
            false => proxy.present(mode),
        };
        // The fault begins before the questions, or while they are on their way.
        let slice = [1, 7, 150][round % 3];
        let early = owners.ask(&store, slice, KEYS);
        let fault = async {
            if round % 2 == 1 {
                sleep(Duration::from_micros(300)).await;
            }
            set(mode);
        };
        let (_, answers) = tokio::join!(fault, early);
        drop(answers);
        for _ in 0..3 {
            drop(owners.ask(&store, slice, KEYS).await);
        }
        proxy.all(Mode::Pass);
        let case = format!("{mode:?}, all: {all_connections}, slices of {slice}");
        recovers(&store, &owners, &case, &proxy).await;
    }
}

async fn recovers(store: &RedisStore, owners: &Owners<'_>, case: &str, proxy: &Proxy) {
    let (before, began) = (proxy.accepted(), owners.server.stopwatch());
    let mut rounds = 0;
    loop {
        // So few that a busy machine has the time for all of them.
        let answers = owners.ask(store, 1, 10).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let waited = began.waited();
        rounds += 1;
        let connections = proxy.accepted() - before;
        let case = format!("{case}: {waited:?}, {rounds} rounds, {connections} connections");
        if failed == 0 {
            assert!(waited < millis(1_500), "{case}");
            return;
        }
        assert!(waited < millis(5_000), "{case}: {answers:?}");
        sleep(millis(2)).await;
    }
}

#[tokio::test]
async fn replies_that_are_lost() {
    let modes = [1, 2, 3, 4, 5, 6, 7, 9, 12].map(Mode::LoseReplies);
    attack(&modes, false).await;
    attack(&modes, true).await;
}

#[tokio::test]
async fn connections_cut_within_a_reply() {
    let cuts = [
        0, 1, 2, 5, 17, 64, 65, 300, 1_000, 1_001, 2_900, 4_000, 7_000,
    ];
    let cuts = cuts.map(Mode::CutAfter);
    attack(&cuts, false).await;
    attack(&cuts, true).await;
}

kit::cases! {
    connections_that_fall_silent: attack(&[Mode::BlackHole; 4], false);
    connections_that_hold_replies: attack(&[Mode::Hold; 4], false);
    connections_that_are_half_closed: attack(&[Mode::HalfClosed; 6], false);
    connections_that_are_reset: attack(&[Mode::Reset; 6], false);
}

#[tokio::test]
async fn garbage_instead_of_replies() {
    let garbage: [&'static [u8]; 9] = [
        b"+OK\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*1\r\n$0\r\n\r\n",
        b"$5\r\nhello\r\n",
        b":1\r\n:2\r\n:3\r\n",
        b"-ERR no\r\n",
        b"-MOVED 1 127.0.0.1:1\r\n",
        b"\xff\x00\r\n",
    ];
    attack(&garbage.map(Mode::Garbage), false).await;
}

/// Replies whose contents were changed on the way are an error, or at least nobody else's.
#[tokio::test]
async fn replies_that_come_late() {
    let delay = |(calls, replies)| Mode::Delay {
        calls: millis(calls),
        replies: millis(replies),
    };
    let delays = [(0, 60), (60, 0), (30, 45), (0, 120)];
    attack(&delays.map(delay), false).await;
}
