use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::deadline::Deadline;
use crate::trace;

/// Calls that no caller waits for: refunds, and releases of what was held. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct UnawaitedCalls(Arc<CallsInner>);

#[derive(Debug, Default)]
struct CallsInner {
    number: watch::Sender<usize>,
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
        self.0.number.send_modify(|number| *number += 1);
        UnawaitedCall {
            calls: self.clone(),
            is_under_way: false,
        }
    }

    /// How many there are.
    pub fn number(&self) -> usize {
        *self.0.number.borrow()
    }

    /// Waits until there is none. Returns whether that came in time.
    pub async fn flush(&self, until: Deadline) -> bool {
        let mut number = self.0.number.subscribe();
        let emptied = number.wait_for(|number| *number == 0);
        until.wait_for(emptied).await.is_some()
    }
}

impl UnawaitedCall {
    /// This call, which is made by this future. Dropped before its end, as with its runtime, it is
    /// lost, and a warning counts it.
    pub fn until(mut self, made: impl Future<Output = ()>) -> impl Future<Output = ()> {
        self.is_under_way = true;
        async move {
            let mut call = self;
            made.await;
            call.is_under_way = false;
        }
    }
}

impl Drop for UnawaitedCall {
    fn drop(&mut self) {
        let CallsInner { number, lost, .. } = &*self.calls.0;
        lost.fetch_add(self.is_under_way.into(), Ordering::Relaxed);
        number.send_modify(|number| *number -= 1);
        if self.calls.number() > 0 {
            return;
        }
        let calls = lost.swap(0, Ordering::Relaxed);
        if calls > 0 {
            trace::event!(
                warn: calls,
                "releases or refunds had no answer when their runtime ended: await flush before"
            );
        }
    }
}
