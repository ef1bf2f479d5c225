//! What the layers of this crate share: from a request to the inner service or to another answer.
//!
//! A layer asks its store and says what becomes of the request: an [`Outcome`]. The
//! [`ResponseFuture`] acts on it. Both layers answer denials and failures alike, and call the inner
//! service only after the verdict, and only an instance that was polled ready.

mod body;
mod options;
mod outcome;
mod response_future;
mod waiting;

pub(crate) use options::{Describe, Options};
pub(crate) use outcome::{Admitted, Asked, Asker, Outcome, Question};
pub use response_future::ResponseFuture;
pub(crate) use waiting::{Waiter, Waiting};
