use http::{HeaderMap, StatusCode};
use http_body::Frame;

use super::outgoing::Outgoing;
use crate::charge::{Charge, Effect, FrameWatcher, WatchedBody};
use crate::key::Key;
use crate::layer::Admitted;
#[cfg(doc)]
use crate::limits::Limits;
use crate::rule::{GRPC_STATUS, Outcomes, Statuses};

/// The turn of one call to a partner.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tidegate::Limits;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let partner = Limits::new([]).outgoing("partner");
/// let turn = partner.ready("our-token").await?;
/// turn.observe_response(StatusCode::OK, &HeaderMap::new());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a hold by the partner is not observed"]
pub struct Turn {
    pub(super) outgoing: Outgoing,
    pub(super) key: Key,
    pub(super) admitted: Admitted,
    /// What the call has used, if somebody knows it.
    pub(super) used: Option<u64>,
}

impl Turn {
    /// Says what the call has used, in units, before [`observe_response`](Self::observe_response)
    /// or the turn's end, which [settle](crate::store::Charge::settle) it in the background: what
    /// was not used of its [cost](Outgoing::cost) is given back, and what was used beyond it is
    /// charged, also above max. [`Limits::flush`] waits for it. The last number before that counts;
    /// without one, the cost stays. Of an answer that streams, the head is observed first: then
    /// the turn's end settles.
    pub const fn settle(&mut self, used: u64) {
        self.used = Some(used);
    }

    /// What the partner has answered. If it wants no calls for a while, the key is
    /// [held](Limits::hold): the store is asked before this returns, so the next turn is behind it.
    /// A task of the current tokio runtime awaits the answer, and [`Limits::flush`] waits for that.
    /// If the rule's [`refund-on`](crate::Rule::with_refund_on) has the status, what the call was
    /// charged is given back, whatever it has used. A turn that is dropped in place of that holds
    /// nothing. Of a gRPC answer whose status is in the trailers, these are the `headers`.
    pub fn observe_response(&self, status: StatusCode, headers: &HeaderMap) {
        self.observe(status, headers);
        self.settle_if_known();
    }

    fn observe(&self, status: StatusCode, headers: &HeaderMap) {
        self.obey(status, headers);
        self.refund_if(|outcomes| outcomes.contain(Statuses::new(status, headers)));
    }

    /// Settles what was told. Of a charge the first effect counts.
    fn settle_if_known(&self) {
        if let Some(used) = self.used {
            let charge = self.admitted.charge.iter();
            charge.for_each(Charge::note_settled_by_code);
            self.admitted.apply(Effect::settle(used));
        }
    }

    /// The call had no answer. If the rule's [`refund-on`](crate::Rule::with_refund_on) has
    /// `"error"`, what it was charged is given back.
    pub fn failed(self) {
        self.refund_if(Outcomes::contain_error);
    }

    /// Holds the key, if this answer says so.
    pub(super) fn obey(&self, status: StatusCode, headers: &HeaderMap) {
        if let Some(rule) = self.outgoing.rule() {
            self.outgoing.obey(rule, self.key.clone(), status, headers);
        }
    }

    /// Of a charge the first effect counts: it comes before the settlement of the drop.
    fn refund_if(&self, is_free: impl FnOnce(&Outcomes) -> bool) {
        let rule = self.outgoing.rule();
        if rule.is_some_and(|rule| rule.outcomes().is_some_and(is_free)) {
            self.admitted.apply(Effect::Refund);
        }
    }
}

/// The body of a partner's answer, as an [`OutgoingService`](super::OutgoingService) returns it: if
/// a gRPC status is in its trailers, they are observed as the head of an answer is.
///
/// ```
/// use axum::body::Body;
/// use http::Response;
/// use tidegate::limits::OutgoingBody;
///
/// // For code that names the client's own body.
/// fn plain(answer: Response<OutgoingBody<Body>>) -> Response<Body> {
///     answer.map(OutgoingBody::into_inner)
/// }
/// # let _ = plain;
/// ```
pub type OutgoingBody<B> = WatchedBody<B, Turn>;

impl<D> FrameWatcher<D> for Turn {
    fn watch(&mut self, frame: &Frame<D>) {
        let trailers = frame.trailers_ref();
        if let Some(trailers) = trailers.filter(|it| it.contains_key(GRPC_STATUS)) {
            self.observe(StatusCode::OK, trailers);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.settle_if_known();
    }
}
