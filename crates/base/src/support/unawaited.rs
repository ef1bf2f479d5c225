use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::Notify;

use crate::deadline::Deadline;
use crate::trace;

/// Calls that no caller waits for: refunds, and releases of what was held. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct UnawaitedCalls(Arc<CallsInner>);

#[derive(Debug, Default)]
struct CallsInner {
    number: AtomicUsize,
    /// The last one ended.
    emptied: Notify,
    /// How many of them ended without an answer since the last warning.
    lost: AtomicUsize,
}

/// One of them, until this is dropped.
#[derive(Debug)]
#[must_use = "it counts only until this is dropped"]
pub struct UnawaitedCall {
    calls: UnawaitedCalls,
    is_under_way: bool,
}

impl UnawaitedCalls {
    /// One more call.
    pub fn add(&self) -> UnawaitedCall {
        self.0.number.fetch_add(1, Ordering::Relaxed);
        UnawaitedCall {
            calls: self.clone(),
            is_under_way: false,
        }
    }

    /// How many there are.
    pub fn number(&self) -> usize {
        self.0.number.load(Ordering::Acquire)
    }

    /// Waits until there is none. Returns whether that came in time.
    pub async fn flush(&self, until: Deadline) -> bool {
        let emptied = async {
            loop {
                let emptied = self.0.emptied.notified();
                if self.number() == 0 {
                    return;
                }
                emptied.await;
            }
        };
        until.wait_for(emptied).await.is_some()
    }
}

impl UnawaitedCall {
    /// This call, which is made by this future. Dropped before its end, as with its runtime, it is
    /// lost, and a warning counts it.
    pub fn until<F: Future<Output = ()>>(mut self, made: F) -> CallMade<F> {
        self.is_under_way = true;
        CallMade { made, call: self }
    }
}

pin_project! {
    /// A call while it is made. An async block would hold its future twice.
    #[must_use = "nothing is asked until this is polled"]
    pub struct CallMade<F> {
        #[pin]
        made: F,
        call: UnawaitedCall,
    }
}

impl<F: Future<Output = ()>> Future for CallMade<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        ready!(this.made.poll(cx));
        this.call.is_under_way = false;
        Poll::Ready(())
    }
}

impl Drop for UnawaitedCall {
    fn drop(&mut self) {
        let calls = &*self.calls.0;
        let lost = self.is_under_way.into();
        calls.lost.fetch_add(lost, Ordering::Relaxed);
        if calls.number.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        calls.emptied.notify_waiters();
        let calls = calls.lost.swap(0, Ordering::Relaxed);
        if calls > 0 {
            trace::event!(
                warn: calls,
                "releases or refunds had no answer when their runtime ended: await flush before"
            );
        }
    }
}
