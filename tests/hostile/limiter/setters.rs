//! `rate`, `set_rate` and `try_set_rate` of processes that disagree: the newest start wins, and no
//! change of the rate grants what an interval does not hold.

use kit::limiter_oracle::Book;

use crate::*;

const START: u64 = 1_700_000_000_000_000;

fn with(on: impl Into<LimiterBackend>, rate: Rate) -> RateLimiter {
    RateLimiter::new(on, "setters").rate(rate)
}

/// Processes in memory, by one clock.
fn in_memory(clock: &ManualClock) -> Vec<LimiterBackend> {
    let one = MemoryLimiters::with_clock(clock.clone());
    let clients = (0..3).map(|_| one.another_client().into());
    clients.collect()
}

/// Processes on a server, by one clock.
async fn on_redis(server: &Server, clock: &ManualClock) -> Vec<LimiterBackend> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        let redis = handle(&server.url).await;
        clients.push(LimiterBackend::redis_with_clock(&redis, clock.clone()));
    }
    clients
}

/// A history of starts, rates set by hand and takes, of three processes.
async fn history(
    clock: &ManualClock,
    processes: &[LimiterBackend],
    number: u64,
) -> Vec<(u64, bool)> {
    let mut random = Random::new(number);
    let mut book = Book::default();
    let mut now = START;
    clock.set(now);
    let mut answers = Vec::new();
    let first = overall(5, 60 * SECOND);
    let mut limiters: Vec<_> = processes.iter().map(|on| with(on.clone(), first)).collect();
    let mut chosen = [first; 3];
    book.replace(now, first);
    for limiter in &limiters {
        assert!(limiter.takes(1).await);
        book.grant(now, 1);
    }
    for step in 0..150 {
        // Whole milliseconds, as the limiter's stamps.
        now += 1_000 * (1 + random.below(8_000));
        clock.set(now);
        let at = random.below(3) as usize;
        let interval = Duration::from_secs(15 << random.below(4));
        let rate = overall(2 + random.below(9), interval);
        match random.below(10) {
            // The rate that a process has chosen already is no new choice.
            0 | 1 if rate != chosen[at] => {
                chosen[at] = rate;
                // Starts are told apart by milliseconds of real time as well.
                sleep(millis(2)).await;
                limiters[at] = with(processes[at].clone(), rate);
                book.replace(now, rate);
            }
            2 if random.is(30) => {
                limiters[at].sets(rate).await;
                book.set(now, rate);
            }
            3 => {
                assert!(!limiters[at].sets_first(rate).await, "there is a rate");
            }
            _ => {}
        }
        let permits = 1 + random.below(2);
        let is_granted = limiters[at].takes(permits).await;
        let what = format!("step {step} of history {number}");
        book.check(now, permits, is_granted, &what);
        let (free, counts) = (limiters[at].free().await, book.counts(now, 0));
        assert_eq!(limiters[at].stored().await, book.permits, "{what}");
        assert!(free + counts <= book.permits.max(counts));
        answers.push((free, is_granted));
    }
    answers
}

/// Laws 1, 14 and 8: rates that processes replace by a start, and by hand, with longer and shorter
/// intervals: every grant and every denial is that of a model, in memory and on Redis alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_of_processes_that_disagree() {
    for number in 0..6 {
        let server = Server::start();
        let clock = ManualClock::default();
        clock.set(START);
        let memory = history(&clock, &in_memory(&clock), number).await;
        clock.set(START);
        let processes = on_redis(&server, &clock).await;
        let redis = history(&clock, &processes, number).await;
        assert_eq!(memory, redis, "law 8: history {number}");
        assert!(memory.iter().any(|(_, is_granted)| !is_granted));
    }
}

/// A rate for each client that a newer start raises and lowers: each client keeps what it was
/// granted, and what another one was granted is not its.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_of_each_client_that_changes() {
    let server = Server::start();
    let clock = ManualClock::default();
    clock.set(START);
    for processes in [in_memory(&clock), on_redis(&server, &clock).await] {
        clock.set(START);
        let old = [0, 1].map(|at: usize| with(processes[at].clone(), per_client(4, MINUTE)));
        for limiter in &old {
            assert!(limiter.takes(3).await);
        }
        clock.set(START + 10_000_000);
        sleep(millis(2)).await;
        let new = with(processes[2].clone(), per_client(6, MINUTE));
        assert!(new.takes(6).await);
        for limiter in &old {
            assert!(limiter.takes(3).await, "law 14");
            assert!(!limiter.takes(1).await, "law 1");
        }
        clock.set(START + 20_000_000);
        sleep(millis(2)).await;
        let lower = with(processes[2].clone(), per_client(2, MINUTE));
        assert!(!lower.takes(1).await, "law 1");
        // The first three have expired, and the next three have not.
        clock.set(START + 61_000_000);
        for limiter in &old {
            assert_eq!(limiter.stored().await, 2);
            assert!(!limiter.takes(1).await, "law 1");
        }
        clock.set(START + 71_000_000);
        for limiter in old.iter().chain([&lower]) {
            assert!(limiter.takes(2).await, "law 14");
            assert!(!limiter.takes(1).await, "law 1");
        }
        assert!(lower.delete().await.expect("an answer"));
    }
}

/// Law 1 by the server's clock, under the load of two processes with two rates, through which a
/// newer process goes: once it has begun, no interval that began after it holds more than its rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_rate_of_a_newer_process() {
    const INTERVAL: Duration = millis(200);
    let server = Server::start();
    let proxy = behind(&server, millis(2)).await;
    let monitor = Monitor::start(&server.url);
    let mut waiters = JoinSet::new();
    let mut phases = Vec::new();
    for permits in [20, 8, 14, 3] {
        let limiter = with(&handle(&proxy.url).await, overall(permits, INTERVAL));
        limiter.waits(1).await;
        assert_eq!(limiter.stored().await, permits);
        let began = server.millis();
        for at in 0..12 {
            let limiter = limiter.fair_if(at % 3 == 0);
            waiters.spawn(async move {
                loop {
                    limiter.waits(1).await;
                }
            });
        }
        sleep(millis(700)).await;
        let seen = limiter.stored().await;
        assert_eq!(seen, permits, "no old process sets its own");
        phases.push((permits, began, server.millis()));
    }
    waiters.shutdown().await;
    let grants = monitor.grants_of(&server.url, "setters");
    grants.check(20, INTERVAL);
    grants.check_phases(INTERVAL, &phases);
    check_expiries(&server, &["setters"]);
}

/// A rate that is forgotten by its keep-alive time, by `FLUSHALL` or by hand: whichever process
/// comes first sets its own, and the newest start's stands from its next use on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_forgotten() {
    const INTERVAL: Duration = millis(100);
    // Longer than a busy machine stands still.
    const KEPT: Duration = millis(1_500);
    let server = Server::start();
    let kept = |permits| {
        let rate = overall(permits, INTERVAL).with_keep_alive(KEPT);
        rate.expect("a rate")
    };
    let (one, other) = (handle(&server.url).await, handle(&server.url).await);
    let old = with(&one, kept(30));
    assert!(old.takes(1).await);
    sleep(millis(5)).await;
    let new = with(&other, kept(20));
    assert!(new.takes(1).await);
    for round in 0..6 {
        match round % 3 {
            0 => sleep(KEPT + millis(500)).await,
            1 => run(&server, "FLUSHALL"),
            _ => run(&server, "DEL setters"),
        }
        assert!(!old.is_there().await, "round {round}");
        let (first, second) = if round % 2 == 0 {
            (&old, &new)
        } else {
            (&new, &old)
        };
        sleep(INTERVAL).await;
        assert!(first.takes(1).await, "round {round}");
        let rate = first.stored().await;
        assert_eq!(rate, if round % 2 == 0 { 30 } else { 20 });
        assert!(second.takes(1).await, "round {round}");
        assert_eq!(old.stored().await, 20, "the newest start's, round {round}");
        assert!(old.takes(1).await, "round {round}");
        assert_eq!(old.stored().await, 20, "they do not take turns");
        let left = new.remaining().await.expect("an answer");
        // A server's clock of commands may be a millisecond behind that of its scripts.
        let most = KEPT + millis(1);
        assert!(left.is_some_and(|left| left <= most), "{left:?}");
    }
    sleep(KEPT + millis(1_700)).await;
    check_expiries(&server, &[]);
}

/// What is set by hand stands until the next start, also if the limiter that sets it has a rate of
/// its own; it is not set again after a loss, and `try_set_rate` replaces nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_set_by_hand() {
    let server = Server::start();
    let (one, other) = (handle(&server.url).await, handle(&server.url).await);
    let redis: Vec<LimiterBackend> = vec![(&one).into(), (&other).into()];
    let memory = MemoryLimiters::default();
    let memory = vec![memory.another_client().into(), memory.into()];
    for (on, is_redis) in [(redis, true), (memory, false)] {
        let plain = RateLimiter::new(on[1].clone(), "setters");
        assert!(plain.sets_first(overall(2, HOUR)).await);
        assert!(plain.takes(2).await);
        sleep(millis(5)).await;
        let old = with(on[0].clone(), overall(5, HOUR));
        // The first use of a process: its rate, beside the two.
        assert!(old.takes(3).await, "law 14");
        assert!(!old.takes(1).await, "law 1");
        assert_eq!(plain.stored().await, 5);
        assert!(!plain.sets_first(overall(9, HOUR)).await);
        assert!(!plain.takes(1).await, "law 1");

        old.sets(overall(7, HOUR)).await;
        for limiter in [&old, &plain, &old] {
            assert!(limiter.takes(2).await);
            assert_eq!(limiter.stored().await, 7, "it stands");
        }
        let above = old.try_acquire(8).await;
        assert_eq!(kind(above), Some(LimiterErrorKind::AboveRate));
        if is_redis {
            run(&server, "FLUSHALL");
        } else {
            assert!(plain.delete().await.expect("an answer"));
        }
        let unknown = plain.try_acquire(1).await;
        assert_eq!(kind(unknown), Some(LimiterErrorKind::UnknownLimiter));
        assert!(old.takes(5).await);
        assert_eq!(plain.stored().await, 5, "its own");
        // The last setter of a chain counts, and a clone from before has none.
        sleep(millis(5)).await;
        let bare = RateLimiter::new(on[1].clone(), "chain");
        let chain = bare.clone().rate(overall(3, HOUR)).rate(overall(4, HOUR));
        let unknown = bare.try_acquire(1).await;
        assert_eq!(kind(unknown), Some(LimiterErrorKind::UnknownLimiter));
        assert!(chain.takes(4).await);
        assert!(!chain.clone().fair().takes(1).await, "law 1");
        assert_eq!(bare.stored().await, 4);
    }
}
