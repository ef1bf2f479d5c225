use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::lock::slots::Permit;

pin_project! {
    /// A response's body, with the permit that is kept until it has ended.
    pub(super) struct Keeping<B> {
        #[pin]
        body: B,
        permit: Option<Permit>,
    }
}

impl<B: Body> Keeping<B> {
    pub(super) fn new(body: B, permit: Option<Permit>) -> Self {
        // Of an empty body nobody may ever ask for the end.
        let permit = permit.filter(|_| !body.is_end_stream());
        Self { body, permit }
    }
}

impl<B: Body> Body for Keeping<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        // After its last frame it need not be polled again.
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
