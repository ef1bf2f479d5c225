//! Uploads that are answered before their body was read.
//!
//! Over HTTP/1 a server that answers and reads no further has to close the connection while the
//! client still sends: the client sees a reset in place of the answer, and a proxy takes the server
//! for dead. Over HTTP/2 it resets the stream, and after about a thousand resets hyper ends the
//! connection for all streams. hyper goes on reading as long as somebody polls the body, also once
//! the response was sent.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use http::{Request, header};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::gate::Gate;
use crate::metrics::RuleCounters;

/// How long and how far the body of an upload is read that was answered already: a usual bound of
/// a proxy for a body.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_BYTES: usize = 16 << 20;

/// Of how many uploads the process reads on.
static PLACES: Semaphore = Semaphore::const_new(1_024);

/// The rest of an upload.
pub(super) struct Upload<B> {
    body: B,
    counters: Arc<RuleCounters>,
}

impl<B: Body + Send + 'static> Upload<B> {
    /// The body of a request that is answered without it, or `None` if nothing has to be read:
    /// there is no body, or the client waits for a `100 Continue` before it sends.
    pub(super) fn of(request: Request<B>, gate: &Gate) -> Option<Self> {
        let has_ended = request.body().is_end_stream();
        if has_ended || gate.options.closes_uploads || awaits_continue(&request) {
            return None;
        }
        let (body, counters) = (request.into_body(), Arc::clone(&gate.counters));
        Some(Self { body, counters })
    }

    /// Reads on in a task, once the answer is there.
    pub(super) fn read_on(self) {
        let (Ok(place), Ok(runtime)) = (PLACES.try_acquire(), Handle::try_current()) else {
            self.counters.numbers.closed_uploads.add(1);
            return;
        };
        runtime.spawn(async move {
            if timeout(MAX_TIME, read(self.body)).await.is_err() {
                self.counters.numbers.closed_uploads.add(1);
            }
            drop(place);
        });
    }
}

fn awaits_continue<B>(request: &Request<B>) -> bool {
    let expected = request.headers().get(header::EXPECT);
    expected.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Reads a body to its end, or until its client has left. What is too long is not read further, but
/// the connection stays open: a proxy, which has the answer, ends the upload by itself.
async fn read<B: Body>(body: B) {
    let (mut body, mut bytes) = (pin!(body), 0);
    let mut next = async || {
        let size = |frame: Frame<B::Data>| frame.data_ref().map_or(0, Buf::remaining);
        let read = |frame: Option<Result<_, _>>| frame?.ok().map(size);
        poll_fn(|cx| body.as_mut().poll_frame(cx).map(read)).await
    };
    while let Some(read) = next().await {
        bytes += read;
        if bytes > MAX_BYTES {
            return pending().await;
        }
        // Others have their turn between two frames, also of a body that is always ready.
        yield_now().await;
    }
}
