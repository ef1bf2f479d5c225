//! Callers that take all the time, and remember each answer.

use std::sync::MutexGuard;

use futures_util::future::try_join_all;
use tidegate::store::StoreErrorKind as Kind;
use tokio::time::Instant;

use crate::*;

/// What the store waits at most.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
/// What all callers together may take of the quota that they share.
pub(crate) const SHARED: u64 = 200;

const CALLERS: usize = 8;
/// Each caller has a quota of another size, so that what remains of it tells whose answer it is.
const OWN: u64 = 1_000_000;
/// From one answer to the next question.
const PAUSE: Duration = Duration::from_millis(2);

/// How one call of a caller went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    /// Of the two keys, the caller's own and the shared one: what was asked, and how much was
    /// allowed.
    pub(crate) units: [u64; 2],
    pub(crate) allowed: Result<[u64; 2], Kind>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) answers: Vec<Answer>,
    /// Decisions in a row, of each caller.
    streaks: [usize; CALLERS],
    /// Answers that belong to somebody else.
    pub(crate) strangers: usize,
    /// The latest failures in words, for who looks into a test that fails.
    pub(crate) errors: BTreeMap<String, String>,
}

pub(crate) struct Load {
    log: Arc<Mutex<Log>>,
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(store: &RedisStore) -> Self {
        let log = Arc::<Mutex<Log>>::default();
        let is_over = Arc::<AtomicBool>::default();
        let start = |caller| {
            let (store, log, is_over) = (store.clone(), log.clone(), is_over.clone());
            tokio::spawn(async move {
                let mut turn = 0;
                while !is_over.load(Ordering::Relaxed) {
                    call(&store, caller, turn, &log).await;
                    sleep(PAUSE).await;
                    turn += 1;
                }
            })
        };
        let callers = (0..CALLERS).map(start).collect();
        Self {
            log,
            is_over,
            callers,
        }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no caller panics")
    }

    /// Whether somebody was told of such a failure since then.
    pub(crate) fn failed_since(&self, since: Instant, is_such: impl Fn(Kind) -> bool) -> bool {
        let log = self.log();
        let latest = log.answers.iter().rev();
        let mut latest = latest.take_while(|answer| answer.answered > since);
        latest.any(|answer| answer.allowed.is_err_and(&is_such))
    }

    /// Until each caller has got several decisions in a row from now on.
    pub(crate) async fn is_whole(&self) {
        self.log().streaks = [0; CALLERS];
        let started = Instant::now();
        while self.log().streaks.iter().any(|&streak| streak < 5) {
            let in_time = started.elapsed() < PATIENT;
            assert!(in_time, "not back: {:#?}", self.log().errors);
            sleep(millis(1)).await;
        }
    }

    /// Nobody calls any more, and all have their answers.
    pub(crate) async fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        done(self.callers.drain(..)).await;
    }

    /// What is counted now, of the callers' own keys and of the shared one.
    pub(crate) async fn counted(&self, store: &RedisStore) -> [u64; 2] {
        let mut own = 0;
        for caller in 0..CALLERS {
            own += kit::charged(store, &self::own(caller)).await;
        }
        [own, kit::charged(store, &shared()).await]
    }
}

fn take(path: &str, max: u64, key: Key) -> Take {
    Take::new(rule(path, max, HOUR), key)
}

fn own(caller: usize) -> Take {
    let max = OWN * (caller as u64 + 1);
    take("own", max, Key::from(caller.to_string().as_str()))
}

fn shared() -> Take {
    take("shared", SHARED, Key::default())
}

/// Even callers ask for both keys at once, odd ones for one after the other.
async fn call(store: &RedisStore, caller: usize, turn: usize, log: &Mutex<Log>) {
    let (takes, units) = match (caller % 2, turn % 2) {
        (0, _) => (vec![own(caller), own(caller), shared()], [2, 1]),
        (_, 0) => (vec![own(caller)], [1, 0]),
        _ => (vec![shared()], [0, 1]),
    };
    let asked = Instant::now();
    let decisions = try_join_all(takes.iter().map(|take| store.take(take))).await;
    let answered = Instant::now();
    let allowed = decisions.as_ref().map(|all| allowed(&takes, all));
    let allowed = allowed.map_err(|error| error.kind());
    let mine = takes.iter().zip(decisions.iter().flatten());
    let strangers = mine.filter(|(take, decision)| !is_answer_to(take, decision));
    let strangers = strangers.count();

    let mut log = log.lock().expect("no caller panics");
    log.strangers += strangers;
    log.streaks[caller] = allowed.map_or(0, |_| log.streaks[caller] + 1);
    if let Err(error) = decisions {
        let kind = format!("{:?}", error.kind());
        log.errors.insert(kind, error.to_string());
    }
    log.answers.push(Answer {
        asked,
        answered,
        units,
        allowed,
    });
}

fn allowed(takes: &[Take], decisions: &[Decision]) -> [u64; 2] {
    let mut allowed = [0; 2];
    for (take, decision) in takes.iter().zip(decisions) {
        let of = usize::from(take.quotas()[0].max() == SHARED);
        allowed[of] += u64::from(decision.is_allowed());
    }
    allowed
}

/// No caller takes half of the difference between two quotas.
fn is_answer_to(take: &Take, decision: &Decision) -> bool {
    let max = take.quotas()[0].max();
    let taken = max.checked_sub(decision.remaining());
    taken.is_some_and(|taken| taken <= OWN / 2)
}
