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
