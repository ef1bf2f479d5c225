//! Each wrapper asks the store inside exactly once for each question, and again only for the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::decision::Receipt;
use tidegate::rule::Share;
use tidegate::store::{
    CircuitBreaker, DenialCache, Fallback, InFlight, StoreErrorKind as Kind, StoreFuture, Timeout,
};
use tidegate::{Decision, MemoryStore, Resilient, Store, StoreError, Take};

use super::{SECOND, take};

/// How the store inside answers.
#[derive(Debug, Clone, Copy)]
struct Answer {
    is_ready: bool,
    fails: bool,
}

const ANSWERS: [Answer; 4] = [
    Answer::of(true, false),
    Answer::of(true, true),
    Answer::of(false, false),
    Answer::of(false, true),
];

impl Answer {
    const fn of(is_ready: bool, fails: bool) -> Self {
        Self { is_ready, fails }
    }

    fn give<T: Send + 'static>(self, answer: T) -> StoreFuture<T> {
        let answer = match self.fails {
            true => Err(StoreError::new(Kind::Timeout, "it is broken")),
            false => Ok(answer),
        };
        match self.is_ready {
            true => StoreFuture::ready(answer),
            false => StoreFuture::boxed(async {
                tokio::task::yield_now().await;
                answer
            }),
        }
    }
}

/// Counts the calls. Clones share the counts.
#[derive(Debug, Clone)]
struct Counting {
    memory: Arc<MemoryStore>,
    answer: Answer,
    takes: Arc<AtomicUsize>,
    refunds: Arc<AtomicUsize>,
}

impl Counting {
    fn new(answer: Answer) -> Self {
        Self {
            memory: Arc::default(),
            answer,
            takes: Arc::default(),
            refunds: Arc::default(),
        }
    }

    /// The calls of `take` and of `refund`.
    fn calls(&self) -> (usize, usize) {
        let calls = [&self.takes, &self.refunds].map(|calls| calls.load(Ordering::Relaxed));
        calls.into()
    }
}

impl Store for Counting {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.takes.fetch_add(1, Ordering::Relaxed);
        let decided = self.memory.take(take).now();
        let decision = decided.expect("memory is ready");
        self.answer.give(decision.expect("there is room"))
    }

    fn refund(&self, _: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        self.answer.give(receipt.units())
    }

    fn reset(&self, _: &Take) -> StoreFuture<bool> {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        self.answer.give(true)
    }

    fn name(&self) -> String {
        "counting".to_owned()
    }
}

type Wrap = fn(Counting) -> Arc<dyn Store>;

/// Each wrapper alone, and all of them.
const WRAPPERS: [(&str, Wrap); 7] = [
    ("Arc", |store| Arc::new(Arc::new(store))),
    ("Timeout", |store| Arc::new(Timeout::new(store, SECOND))),
    ("InFlight", |store| Arc::new(InFlight::new(store, 1))),
    ("CircuitBreaker", |store| {
        Arc::new(CircuitBreaker::new(store))
    }),
    ("DenialCache", |store| Arc::new(DenialCache::new(store))),
    ("Fallback", |store| {
        Arc::new(Fallback::new(store, Share::of_processes(2)))
    }),
    ("Resilient", |store| {
        let store = Resilient::new(store).timeout(SECOND).in_flight(1);
        store.fallback(Share::of_processes(2)).build()
    }),
];

#[tokio::test]
async fn the_store_inside_is_asked_once() {
    for (name, wrap) in WRAPPERS {
        for answer in ANSWERS {
            let inner = Counting::new(answer);
            let store = wrap(inner.clone());
            let has_decision = !answer.fails || store.has_fallback();
            for asked in 1..=3 {
                let question = store.take(&take());
                assert_eq!(inner.calls(), (asked, 0), "{name}: immediately");
                assert_eq!(question.await.is_ok(), has_decision, "{name} {answer:?}");
                assert_eq!(inner.calls(), (asked, 0), "{name} {answer:?}");
            }
            let again = store.take(&take().repeat());
            assert_eq!(again.await.is_ok(), has_decision);
            assert_eq!(inner.calls(), (4, 0), "{name} {answer:?}: a repeat");
            let refund = store.refund(&take(), &Receipt::new(1, 1, 1));
            assert_eq!(refund.await.is_ok(), !answer.fails);
            assert_eq!(inner.calls(), (4, 1), "{name} {answer:?}: a refund");
            let reset = store.reset(&take());
            assert_eq!(reset.await.ok(), (!answer.fails).then_some(true));
            assert_eq!(inner.calls(), (4, 2), "{name} {answer:?}: a reset");
        }
    }
}

/// A wrapper adds no wait of its own.
#[tokio::test]
async fn what_is_ready_inside_is_ready_outside() {
    for (name, wrap) in WRAPPERS {
        for answer in ANSWERS {
            let store = wrap(Counting::new(answer));
            let is_ready = store.take(&take()).now().is_ok();
            assert_eq!(is_ready, answer.is_ready, "{name} {answer:?}");
            let refund = store.refund(&take(), &Receipt::new(1, 1, 1));
            let is_ready = refund.now().is_ok();
            assert_eq!(is_ready, answer.is_ready, "{name} {answer:?}");
        }
    }
}

/// A caller that leaves has asked once, and gives back what the next one needs.
#[tokio::test]
async fn a_dropped_question_was_asked_once() {
    for (name, wrap) in WRAPPERS {
        let inner = Counting::new(Answer::of(false, false));
        let store = wrap(inner.clone());
        for asked in 1..=3 {
            drop(store.take(&take()));
            assert_eq!(inner.calls(), (asked, 0), "{name}");
        }
    }
}
