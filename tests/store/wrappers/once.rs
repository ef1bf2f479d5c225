//! Each wrapper asks the store inside exactly once for each question, and again only for the next.

use super::*;

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

/// The calls of `take`, and of `refund` and `reset`.
#[derive(Debug, Clone, Default)]
struct Calls([Arc<AtomicUsize>; 2]);

impl Calls {
    fn count(&self, kind: usize) {
        self.0[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn so_far(&self) -> (usize, usize) {
        let calls = self.0.each_ref().map(|calls| calls.load(Ordering::Relaxed));
        calls.into()
    }
}

/// A store that answers so, and its calls.
fn counting(answer: Answer) -> (Stub, Calls) {
    let calls = Calls::default();
    let [takes, refunds, resets] = [(); 3].map(|()| calls.clone());
    let store = Stub::in_memory()
        .take_fn(move |memory, take| {
            takes.count(0);
            let decided = memory.take(take).poll_now();
            let decision = decided.expect("memory is ready");
            answer.give(decision.expect("there is room"))
        })
        .refund_fn(move |_, _, receipt| {
            refunds.count(1);
            answer.give(receipt.units())
        })
        .reset_fn(move |_, _| {
            resets.count(1);
            answer.give(true)
        });
    (store, calls)
}

/// A wrapper that does one thing.
fn alone(store: Stub, set: impl FnOnce(Resilient<Stub>) -> Resilient<Stub>) -> Arc<dyn Store> {
    Arc::new(set(Resilient::bare(store)))
}

type Wrap = fn(Stub) -> Arc<dyn Store>;

/// Each wrapper alone, and all of them.
const WRAPPERS: [(&str, Wrap); 7] = [
    ("Arc", |store| Arc::new(Arc::new(store))),
    ("Timeout", |it| alone(it, |it| it.timeout(SECOND))),
    ("InFlight", |it| alone(it, |it| it.in_flight(1))),
    ("CircuitBreaker", |it| alone(it, |it| it.failures(10))),
    ("DenialCache", |it| {
        alone(it, |it| it.denial_cache(SECOND / 10))
    }),
    ("Fallback", |it| {
        alone(it, |it| it.fallback(Share::of_processes(2)))
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
            let (inner, calls) = counting(answer);
            let store = wrap(inner);
            let has_decision = !answer.fails || store.capabilities().has_fallback;
            for asked in 1..=3 {
                let question = store.take(&take());
                assert_eq!(calls.so_far(), (asked, 0), "{name}: immediately");
                let receipt = question.await.map(|decision| decision.receipt());
                let is_charged = receipt.is_ok_and(|receipt| receipt.is_some());
                assert_eq!(is_charged, has_decision, "{name} {answer:?}");
                assert_eq!(calls.so_far(), (asked, 0), "{name} {answer:?}");
            }
            let again = store.take(&take().repeat());
            assert_eq!(again.await.is_ok(), has_decision);
            assert_eq!(calls.so_far(), (4, 0), "{name} {answer:?}: a repeat");
            let refund = store.refund(&take(), &Receipt::new(1, 1, 1));
            let refunded = refund.await.ok();
            assert_eq!(refunded, (!answer.fails).then_some(1), "{name} {answer:?}");
            assert_eq!(calls.so_far(), (4, 1), "{name} {answer:?}: a refund");
            let reset = store.reset(&take());
            assert_eq!(reset.await.ok(), (!answer.fails).then_some(true));
            assert_eq!(calls.so_far(), (4, 2), "{name} {answer:?}: a reset");
            assert_eq!(store.name(), "memory", "{name}");
        }
    }
}

/// A wrapper adds no wait of its own.
#[tokio::test]
async fn what_is_ready_inside_is_ready_outside() {
    for (name, wrap) in WRAPPERS {
        for answer in ANSWERS {
            let store = wrap(counting(answer).0);
            let told = store.take(&take()).poll_now();
            assert_eq!(told.is_some(), answer.is_ready, "{name} {answer:?}");
            let source = told.and_then(Result::ok).map(|decision| decision.source());
            let is_own = answer.is_ready && !answer.fails;
            assert_eq!(source == Some(Source::Local), is_own, "{name} {answer:?}");
            let mut refund = store.refund(&take(), &Receipt::new(1, 1, 1));
            let is_ready = refund.poll_now().is_some();
            assert_eq!(is_ready, answer.is_ready, "{name} {answer:?}");
        }
    }
}

/// A caller that leaves has asked once, and gives back what the next one needs.
#[tokio::test]
async fn a_dropped_question_was_asked_once() {
    for (name, wrap) in WRAPPERS {
        let (inner, calls) = counting(Answer::of(false, false));
        let store = wrap(inner);
        for asked in 1..=3 {
            drop(store.take(&take()));
            assert_eq!(calls.so_far(), (asked, 0), "{name}");
        }
    }
}
