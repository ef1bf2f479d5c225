//! Attacks on a lone take, which its caller sends and whose answer its caller reads: callers that
//! leave at each moment, that keep the future and never poll it again, or that poll it somewhere
//! else, and what the server and the network do meanwhile. Nobody else's answer depends on them.

mod faults;
mod idle;
mod leavers;
mod order;
mod refusals;
mod runtimes;
mod several;
mod silence;
mod wakers;

use std::task::Waker;

use crate::prelude::*;

const MAX: u64 = 1_000_000_000;

type Pending = Pin<Box<StoreFuture<Decision>>>;

/// Polls without a task that could be woken.
fn poll_once(pending: &mut Pending) -> Poll<Result<Decision, StoreError>> {
    let mut context = Context::from_waker(Waker::noop());
    pending.as_mut().poll(&mut context)
}

/// Polls so; an answer that is there already stays for the next poll.
fn poll_and_keep(pending: &mut Pending) {
    if let Poll::Ready(answer) = poll_once(pending) {
        *pending = Box::pin(StoreFuture::ready(answer));
    }
}

/// A take whose caller has polled it once. The client writes it as soon as its task runs.
fn polled_once(store: &impl Store, take: &Take) -> Pending {
    let mut pending = Box::pin(store.take(take));
    poll_and_keep(&mut pending);
    pending
}

/// The same, once the server has executed it.
async fn executed_once(server: &Redis, store: &impl Store, take: &Take) -> Pending {
    let before = server.script_calls();
    let pending = polled_once(store, take);
    let is_executed = async || server.script_calls() > before;
    eventually("the take is executed", is_executed).await;
    pending
}

/// Polls for so long at most: finer than a timer of the runtime.
async fn leave_after(mut pending: Pending, patience: Duration) {
    let began = Instant::now();
    while began.elapsed() < patience && futures_util::poll!(&mut pending).is_pending() {
        yield_now().await;
    }
}

/// A caller that knows each of its answers, because nobody else asks for its key.
#[derive(Debug)]
struct Bystander {
    take: Take,
    spent: u64,
}

impl Bystander {
    fn new(path: &str) -> Self {
        Self::with_cost(path, 3)
    }

    fn with_cost(path: &str, cost: u64) -> Self {
        let take = take(&rule(path, MAX, HOUR), "bystander").with_cost(cost);
        Self { take, spent: 0 }
    }

    /// Asks once: it gets a decision, and its own one.
    async fn ask(&mut self, store: &impl Store) {
        let answer = store.take(&self.take).await;
        self.check(answer.expect("law 13: nobody pays for another caller"));
    }

    fn check(&mut self, decision: Decision) {
        self.spent += self.take.cost();
        let remaining = decision.remaining();
        assert_eq!(MAX - remaining, self.spent, "another caller's answer");
    }

    /// The same, on a machine that may have stood still, and then excuses errors.
    async fn ask_unless_stalled(&mut self, store: &RedisStore, stalls: &Stalls) {
        let asked = Instant::now();
        let errors = self.ask_until_answered(store, PATIENT).await;
        let lost = Lost::since(asked, format!("{errors} errors"));
        let is_excused = errors == 0 || stalls.excuse(&lost, millis(1_000));
        assert!(is_excused, "law 13: {lost:?}");
    }

    /// Asks until there is a decision; how many errors there were.
    async fn ask_until_answered(&mut self, store: &RedisStore, within: Duration) -> usize {
        let (began, mut errors) = (Instant::now(), 0);
        loop {
            let (cost, answer) = (self.take.cost(), store.take(&self.take).await);
            match answer {
                Ok(decision) => {
                    // What failed may have been charged.
                    let spent = MAX - decision.remaining();
                    let least = self.spent + cost;
                    let most = self.spent + (errors as u64 + 1) * cost;
                    let is_right = (least..=most).contains(&spent);
                    assert!(is_right, "{least} <= {spent} <= {most}");
                    assert_eq!(spent % cost, 0);
                    self.spent = spent;
                    return errors;
                }
                Err(error) => {
                    errors += 1;
                    assert!(began.elapsed() < within, "{errors} errors: {error}");
                    sleep(millis(2)).await;
                }
            }
        }
    }
}

/// That a healthy connection is kept. A machine that stands still excuses a new one.
struct Steady<'a> {
    proxy: &'a Proxy,
    stalls: Stalls,
    accepted: usize,
}

impl<'a> Steady<'a> {
    async fn watch(proxy: &'a Proxy) -> Self {
        let stalls = Stalls::watch(&[&proxy.url], millis(80)).await;
        let accepted = proxy.accepted();
        Self {
            proxy,
            stalls,
            accepted,
        }
    }

    fn check(self) {
        if self.stalls.longest().is_none() {
            let accepted = self.proxy.accepted();
            assert_eq!(accepted, self.accepted, "a healthy connection is kept");
        }
    }
}

/// What the take of a lone caller of its key was charged, and all before it.
fn spent_by(answer: Result<Decision, StoreError>) -> u64 {
    MAX - answer.expect("a decision").remaining()
}

/// So many tasks ask for one key so often, and wait for a few turns between: a lock says in which
/// order they asked, which is that of their charges behind those of before. The first poll is
/// outside of it: another one may ask and be polled meanwhile.
async fn charged_in_the_order_of_asking(
    store: &RedisStore,
    mine: &Take,
    (before, tasks, times): (u64, u64, u64),
) {
    let each = (store.clone(), mine.clone(), Arc::new(Mutex::new(before)));
    let tasks = spawn_each(0..tasks, each, move |at, (store, mine, order)| async move {
        let mut told = Vec::new();
        for round in 0..times {
            let (place, pending) = {
                let mut order = order.lock().expect("no panic");
                *order += 1;
                (*order, store.take(&mine))
            };
            told.push((place, spent_by(pending.await)));
            for _ in 0..(round * 7 + at) % 5 {
                yield_now().await;
            }
        }
        told
    });
    let told = done(tasks).await.concat();
    let overtaken = told.iter().filter(|(place, spent)| place != spent).count();
    let first = told.iter().find(|(place, spent)| place != spent);
    assert_eq!(overtaken, 0, "of {}; the first: {first:?}", told.len());
}

/// The answer comes in time, or an error.
async fn in_time(
    pending: impl Future<Output = Result<Decision, StoreError>>,
) -> Result<Decision, StoreError> {
    let answer = timeout(PATIENT / 4, pending).await;
    answer.expect("law 6: it hangs")
}

/// A server, a proxy that breaks flights and adds this much to each way, and a store of this
/// time-out.
async fn breaking(way: Duration, timeout: Duration) -> (Redis, Proxy, RedisStore) {
    let server = Redis::start();
    let proxy = Proxy::start_with_flights(&server.url).await;
    let (calls, replies) = (way, way);
    proxy.all(Mode::Delay { calls, replies });
    let store = connect(&proxy.url, timeout).await;
    (server, proxy, store)
}

/// A server, a proxy that adds this much to every round trip, a patient store, and a bystander.
async fn beside_far(round_trip: Duration) -> (Redis, Proxy, RedisStore, Bystander) {
    let (server, proxy, store) = far(round_trip).await;
    (server, proxy, store, Bystander::new("bystander"))
}

/// The same behind a proxy that only passes on what comes, with a store of this time-out.
async fn beside(timeout: Duration) -> (Redis, Proxy, RedisStore, Bystander) {
    let (server, proxy, store) = proxied(timeout).await;
    (server, proxy, store, Bystander::new("bystander"))
}
