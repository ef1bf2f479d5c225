//! Uploads that are answered before their body was read.
//!
//! Over HTTP/1 a server that answers and reads no further has to close the connection while the
//! client still sends: the client sees a reset in place of the answer, and a proxy takes the server
//! for dead. Over HTTP/2 it resets the stream, and after about a thousand resets hyper ends the
//! connection for all streams. hyper goes on reading as long as somebody polls the body, also once
//! the response was sent.
//!
//! Some proxies mistake an answer for that to another request if it comes before the body is sent,
//! and the connection stays open. So the answer to a short body over HTTP/1 waits for its end.
//!
//! A client that has sent a request whole and has its answer gives the connection to its next
//! request, and a proxy to that of another client. So an answer says `connection: close` where the
//! body may stay unread although all of it was sent; hyper reads on behind it, too, and closes then.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum_core::response::Response;
use bytes::Buf;
use http::{HeaderValue, Request, Version, header};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::gate::Gate;
use crate::charge::PathState;

/// How long the body of an upload is read that was answered already, and how far at full speed: a
/// usual bound of a proxy for a body.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_BYTES: u64 = 16 << 20;

/// How long a body may be, by its `Content-Length`, for whose end an answer waits, and how long it
/// waits.
const SHORT: RangeInclusive<u64> = 1..=1 << 16;
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The rest of a longer body is read in steps, one step at a time in the whole process: at most
/// 125 MiB a second, so that endless uploads take no more of its time.
static STEPS: Semaphore = Semaphore::const_new(1);
const STEP_BYTES: u64 = 1 << 20;
const STEP_TIME: Duration = Duration::from_millis(8);

/// Of how many uploads the process reads on.
static PLACES: Semaphore = Semaphore::const_new(1_024);

/// The rest of an upload.
pub(super) struct Upload<B> {
    body: B,
    /// Whether it is read on.
    is_read: bool,
    /// By its `Content-Length`; 0 if there is none, and the largest number if it is none.
    length: u64,
    is_http_1: bool,
    path: Arc<PathState>,
}

impl<B: Body + Send + 'static> Upload<B> {
    /// The body of a request that is answered without it, or `None` if there is none. Nothing is
    /// read of it if the client waits for a `100 Continue` before it sends.
    pub(super) fn find(request: Request<B>, gate: &Gate) -> Option<Self> {
        if request.body().is_end_stream() {
            return None;
        }
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.map(|it| it.to_str().ok()?.parse().ok());
        let closes = || gate.decider.rule().is_some_and(|it| it.closes_uploads());
        Some(Self {
            is_read: !(gate.options.closes_uploads || closes() || awaits_continue(&request)),
            length: length.map_or(0, |it| it.unwrap_or(u64::MAX)),
            is_http_1: request.version() <= Version::HTTP_11,
            path: Arc::clone(&gate.decider.path),
            body: request.into_body(),
        })
    }

    /// Reads on if there is a body, and returns the answer when it may leave. It says
    /// `connection: close` where the connection closes behind it, unless a callback has said
    /// something else.
    pub(super) async fn read_on(upload: Option<Self>, mut answer: Response) -> Response {
        let Some(upload) = upload else { return answer };
        // Its client may have sent all of a body when the connection closes.
        let (is_http_1, is_too_long) = (upload.is_http_1, upload.length > MAX_BYTES);
        if (!upload.start_reading().await || is_too_long) && is_http_1 {
            let close = HeaderValue::from_static("close");
            let headers = answer.headers_mut();
            headers.entry(header::CONNECTION).or_insert(close);
        }
        answer
    }

    /// Whether the body was read to its end, or a task reads on. Waits for the end of a short one.
    async fn start_reading(self) -> bool {
        if !self.is_read {
            return false;
        }
        let is_short = self.is_http_1 && SHORT.contains(&self.length);
        let mut reading = Box::pin(read(self.body));
        // A body that has come already needs neither a place nor a task.
        if is_short && poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        let (Ok(place), Ok(runtime)) = (PLACES.try_acquire(), Handle::try_current()) else {
            self.path.counters.numbers.closed_uploads.add(1);
            return false;
        };
        // The answer leaves as this is dropped: at once, or by the task, even without a timer.
        let (waits, answer_leaves) = oneshot::channel::<()>();
        let waits = is_short.then_some(waits);
        runtime.spawn(async move {
            let is_at_end = is_short && timeout(MAX_WAIT, &mut reading).await.is_ok();
            drop(waits);
            if !is_at_end && timeout(MAX_TIME, reading).await.is_err() {
                self.path.counters.numbers.closed_uploads.add(1);
            }
            drop(place);
        });
        let _ = answer_leaves.await;
        true
    }
}

fn awaits_continue<B>(request: &Request<B>) -> bool {
    let expected = request.headers().get(header::EXPECT);
    expected.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Reads a body to its end, or until its client has left.
async fn read<B: Body>(body: B) {
    let (mut body, mut bytes, mut bound) = (pin!(body), 0, MAX_BYTES);
    let size = |frame: Frame<B::Data>| frame.data_ref().map_or(0, Buf::remaining);
    let read = |frame: Option<Result<_, _>>| frame?.ok().map(size);
    while let Some(read) = poll_fn(|cx| body.as_mut().poll_frame(cx).map(read)).await {
        if body.is_end_stream() {
            return;
        }
        bytes += read as u64;
        if bytes > bound {
            bound = bytes + STEP_BYTES;
            let step = STEPS.acquire().await;
            sleep(STEP_TIME).await;
            drop(step);
        }
        // Others have their turn between two frames, also of a body that is always ready.
        yield_now().await;
    }
}
