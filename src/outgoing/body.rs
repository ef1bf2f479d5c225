use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::turn::Turn;

pin_project! {
    /// The body of a partner's answer, as an [`OutgoingService`](super::OutgoingService) returns it:
    /// if a gRPC status is in its trailers, they are heard as the head of an answer is.
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
    #[derive(Debug)]
    pub struct OutgoingBody<B> {
        #[pin]
        pub(super) body: B,
        // The turn of a gRPC call whose status comes in the trailers.
        pub(super) turn: Option<Turn>,
    }
}

impl<B> OutgoingBody<B> {
    /// The client's body, whose trailers nobody hears any more.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for OutgoingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
            && let Some(turn) = this.turn.take()
        {
            turn.heard(StatusCode::OK, trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
