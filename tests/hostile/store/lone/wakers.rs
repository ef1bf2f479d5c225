//! Futures of lone takes that go from task to task, and wakers that do what wakers may do.

use std::task::Wake;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::*;

/// A wake-up that is lost would be noticed after this long.
const LOST: Duration = Duration::from_secs(10);

/// Polled once in one task and awaited in another: nobody is left asleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handed_from_task_to_task() {
    const ROUNDS: u64 = 3_000;
    let (_server, store) = near_within(2 * LOST).await;
    let (to_second, mut from_first) = mpsc::channel::<(u64, Pending)>(1);
    let asked = store.clone();
    let asks = tokio::spawn(async move {
        let rule = rule("handed", MAX, HOUR);
        for round in 0..ROUNDS {
            let mut pending = Box::pin(asked.take(&take(&rule, round).with_cost(round + 1)));
            if round % 4 > 0 {
                poll_and_keep(&mut pending);
            }
            for _ in 0..round % 7 {
                yield_now().await;
            }
            to_second.send((round, pending)).await.expect("it listens");
        }
    });
    while let Some((round, pending)) = from_first.recv().await {
        let answer = timeout(LOST, pending).await.expect("a lost wake-up");
        assert_eq!(spent_by(answer), round + 1);
    }
    asks.await.expect("no panic");
    drop(store);
}

/// Whoever is woken asks at once, from within the wake-up.
struct AsksWhenWoken {
    store: RedisStore,
    take: Take,
    runtime: Handle,
    woken: AtomicU64,
}

impl Wake for AsksWhenWoken {
    fn wake(self: Arc<Self>) {
        let _inside = self.runtime.enter();
        drop(polled_once(&self.store, &self.take));
        drop(self.store.take(&self.take));
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

/// No lock is held while a caller is woken: by an answer, a broken connection, or a deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_asks() {
    let (_server, proxy, store, mut bystander) = beside(PATIENT).await;
    for round in 0..60_u64 {
        let asks = Arc::new(AsksWhenWoken {
            store: store.clone(),
            take: take(&rule("woken", MAX, HOUR), round),
            runtime: Handle::current(),
            woken: AtomicU64::new(0),
        });
        let waker = Waker::from(Arc::clone(&asks));
        let mine = match round % 3 {
            2 => store.clone().timeout(millis(20)),
            _ => store.clone(),
        };
        proxy.all(Mode::Hold);
        let mut pending = Box::pin(mine.take(&take(&rule("mine", MAX, HOUR), round)));
        let mut context = Context::from_waker(&waker);
        assert!(pending.as_mut().poll(&mut context).is_pending());
        match round % 3 {
            1 => proxy.present(Mode::Reset),
            2 => sleep(millis(30)).await,
            _ => proxy.all(Mode::Pass),
        }
        let is_woken = async || asks.woken.load(Ordering::SeqCst) > 0;
        eventually("it is woken", is_woken).await;
        proxy.all(Mode::Pass);
        drop(pending);
        let asks = bystander.ask_until_answered(&store, PATIENT / 4);
        timeout(PATIENT, asks).await.expect("a deadlock");
    }
}

/// Whoever is woken polls the future at once, from within the wake-up, or drops it.
struct Inline {
    pending: Mutex<Option<Pending>>,
    is_over: AtomicBool,
    drops: bool,
    runtime: Handle,
}

impl Inline {
    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        let mut pending = self.pending.lock().expect("no panic");
        let polled = pending.as_mut().map(|one| one.as_mut().poll(&mut context));
        if polled.is_some_and(|polled| polled.is_ready()) {
            *pending = None;
            self.is_over.store(true, Ordering::SeqCst);
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let _inside = self.runtime.enter();
        // A wake-up within a poll would wait for itself.
        let Ok(mut pending) = self.pending.try_lock() else {
            let again = Arc::clone(&self);
            self.runtime.spawn(async move { again.poll() });
            return;
        };
        if self.drops {
            *pending = None;
            self.is_over.store(true, Ordering::SeqCst);
        }
        drop(pending);
        self.poll();
    }
}

/// The same, when the caller drives its question, and when a task of the store has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_goes_on_at_once() {
    let (_server, proxy, store, mut bystander) = beside(millis(400)).await;
    let patient = store.clone().timeout(PATIENT);
    for round in 0..16_u64 {
        let (calls, replies) = (Duration::ZERO, millis([0, 3, 560, 700][round as usize % 4]));
        proxy.all(Mode::Delay { calls, replies });
        let mine = take(&rule("mine", MAX, HOUR), round);
        let inline = Arc::new(Inline {
            pending: Mutex::new(Some(Box::pin(patient.take(&mine)))),
            is_over: AtomicBool::new(false),
            drops: round % 8 >= 4,
            runtime: Handle::current(),
        });
        // The first poll.
        inline.poll();
        eventually("it goes on", async || inline.is_over.load(Ordering::SeqCst)).await;
        proxy.all(Mode::Pass);
        let asks = timeout(PATIENT, bystander.ask(&patient));
        asks.await.expect("a deadlock");
    }
}
