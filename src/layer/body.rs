use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A response's body, which holds a permit until it has ended.
    pub(super) struct PermitBody<B> {
        #[pin]
        body: B,
        permit: Option<Box<dyn Any + Send>>,
    }
}

impl<B: Body> PermitBody<B> {
    pub(super) fn new(body: B, permit: Box<dyn Any + Send>) -> Self {
        // A server may never poll an empty body.
        let permit = (!body.is_end_stream()).then_some(permit);
        Self { body, permit }
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        // A server need not poll again after the last frame.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            drop(this.permit.take());
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
