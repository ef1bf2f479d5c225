use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Buf;
use http_body::{Body, Frame};

use super::charge::Charge;
use super::charges::Charges;
use super::watched_body::{FrameWatcher, WatchedBody};

/// Counts what a request uses, and settles its charge with that when it is dropped.
///
/// It is for code that learns bit by bit what a request costs, such as for an answer that streams:
/// its drop is the end in any case, also when the client has left. The store is asked in the
/// background then, and what that loses is [counted](crate::metrics::RuleSnapshot::refunds_lost):
/// [`Limits::flush`](crate::Limits::flush) waits for it. If nothing was added, the reservation
/// stays, or [`settle-dropped`](crate::Rule::with_settle_dropped): leaving early is not free.
///
/// [`Charge::meter`] makes one, and [`Charges::meter`], which does nothing where nothing was
/// charged. Bodies are counted by [`Charge::settle_on_end`].
///
/// ```
/// use tidegate::store::Charges;
///
/// async fn chat(charges: Charges) {
///     let meter = charges.of("tokens").meter();
///     while let Some(tokens) = next_message().await {
///         meter.add(tokens);
///     }
/// }
/// # async fn next_message() -> Option<u64> { None }
/// # let _ = chat;
/// ```
#[derive(Debug)]
pub struct Meter {
    charges: Charges,
    used: AtomicU64,
    /// Whether it is of a body that has not ended: then no less than what was reserved is charged.
    is_of_part: bool,
}

impl Meter {
    pub(super) fn new(charges: Charges) -> Self {
        charges.iter().for_each(Charge::note_settled_by_code);
        Self {
            charges,
            used: AtomicU64::new(0),
            is_of_part: false,
        }
    }

    /// Adds this number of used units.
    pub fn add(&self, units: u64) {
        let relaxed = Ordering::Relaxed;
        let add = |used: u64| Some(used.saturating_add(units));
        self.used.fetch_update(relaxed, relaxed, add).ok();
    }

    /// Says how many units were used until now, in place of what was added: for answers that tell
    /// the sum each time. After 0 the reservation stays.
    pub fn set(&self, units: u64) {
        self.used.store(units, Ordering::Relaxed);
    }

    /// The units that were used until now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        match self.used() {
            0 => {}
            used => self.charges.settle_later(used, self.is_of_part),
        }
    }
}

impl Charge {
    /// The body that counts its frames while it streams, and settles once when it has ended, has
    /// failed or is dropped, as a [`Meter`] does. `units` says what a frame costs.
    ///
    /// A body that is dropped before its end costs no less than what was reserved: who leaves early
    /// has not seen what the last frames tell. Where each frame tells all it costs, add that to a
    /// [`meter`](Self::meter) in `map_frame` of http-body-util instead. A body is also at its end
    /// behind its trailers, and when all bytes of its length have come, which it says itself or a
    /// `content-length` of the response, if a layer charged it.
    ///
    /// ```
    /// use axum::body::Body;
    /// use tidegate::store::Charges;
    ///
    /// async fn chat(charges: Charges) -> Body {
    ///     let answer = ask_the_model().await;
    ///     // Each message of the model is a frame, and tells its tokens.
    ///     let tokens = |frame: &http_body::Frame<_>| frame.data_ref().map_or(0, tokens_of);
    ///     Body::new(charges.of("tokens").settle_on_end(answer, tokens))
    /// }
    /// # async fn ask_the_model() -> Body { Body::empty() }
    /// # fn tokens_of(data: &axum::body::Bytes) -> u64 { 1 }
    /// # let _ = chat;
    /// ```
    pub fn settle_on_end<B: Body, F>(&self, body: B, units: F) -> SettledBody<B, F>
    where
        F: FnMut(&Frame<B::Data>) -> u64,
    {
        self.meter().watch(body, units)
    }
}

impl Charges {
    /// Settles all of these as [`Charge::settle_on_end`] settles one. If nothing was charged, the
    /// body stays as it is.
    pub fn settle_on_end<B: Body, F>(self, body: B, units: F) -> SettledBody<B, F>
    where
        F: FnMut(&Frame<B::Data>) -> u64,
    {
        self.meter().watch(body, units)
    }
}

/// A body that settles a charge when it ends: see [`Charge::settle_on_end`].
///
/// ```
/// use axum::body::Body;
/// use axum::response::Response;
/// use tidegate::store::Charges;
///
/// async fn download(charges: Charges) -> Response {
///     let body = Body::from("1,2,3");
///     // Bytes are what is charged.
///     let bytes = |frame: &http_body::Frame<axum::body::Bytes>| {
///         frame.data_ref().map_or(0, |data| data.len() as u64)
///     };
///     Response::new(Body::new(charges.of("bytes").settle_on_end(body, bytes)))
/// }
/// # let _ = download;
/// ```
pub type SettledBody<B, F> = WatchedBody<B, FrameMeter<F>>;

/// Counts what the frames of a body cost.
pub struct FrameMeter<F> {
    units: F,
    meter: Meter,
    /// How many bytes have come.
    come: u64,
}

impl<D: Buf, F: FnMut(&Frame<D>) -> u64> FrameWatcher<D> for FrameMeter<F> {
    fn watch(&mut self, frame: &Frame<D>) {
        self.meter.add((self.units)(frame));
        // Nothing comes behind trailers, and a server that has written all bytes does not ask.
        let bytes = frame.data_ref().map(|data| data.remaining() as u64);
        self.come = self.come.saturating_add(bytes.unwrap_or(u64::MAX));
        self.meter.is_of_part = self.meter.charges.iter().all(|it| self.come < it.length());
    }

    fn ended(&mut self) {
        self.meter.is_of_part = false;
    }
}

impl Meter {
    fn watch<B: Body, F>(self, body: B, units: F) -> SettledBody<B, F> {
        let length = body.size_hint().exact();
        self.charges.iter().for_each(|it| it.note_length(length));
        let (meter, come) = (self, 0);
        WatchedBody::new(body, Some(FrameMeter { units, meter, come }))
    }
}

crate::named::debug_fields!(FrameMeter<F>: meter);
