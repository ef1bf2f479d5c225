use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Sees the frames of a body, and is dropped when the body has ended, has failed or is dropped.
pub trait FrameWatcher<D> {
    /// The body returns this frame.
    fn watch(&mut self, _frame: &Frame<D>) {}

    /// It has ended, or has failed.
    fn ended(&mut self) {}
}

pin_project! {
    /// A body whose frames a watcher sees while it streams: a
    /// [`SettledBody`](crate::store::SettledBody) or an
    /// [`OutgoingBody`](crate::limits::OutgoingBody).
    ///
    /// ```
    /// use axum::body::Body;
    /// use tidegate::store::WatchedBody;
    ///
    /// // For code that names the body itself.
    /// fn plain<W>(body: WatchedBody<Body, W>) -> Body {
    ///     body.into_inner()
    /// }
    /// # let _ = plain::<()>;
    /// ```
    #[derive(Debug)]
    pub struct WatchedBody<B, W> {
        #[pin]
        body: B,
        // `None` once it has ended.
        watcher: Option<W>,
    }
}

impl<B, W> WatchedBody<B, W> {
    pub(crate) const fn new(body: B, watcher: Option<W>) -> Self {
        Self { body, watcher }
    }

    /// The body itself, without its watcher.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body, W: FrameWatcher<B::Data>> Body for WatchedBody<B, W> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let (Some(Ok(frame)), Some(watcher)) = (&frame, &mut *this.watcher) {
            watcher.watch(frame);
        }
        // A server need not poll again after the last frame.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            this.watcher.take().iter_mut().for_each(W::ended);
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
