//! What the layers of this crate share: the way of a request to the inner service or to an answer.
//!
//! A layer asks its store and turns the answer into an [`Outcome`]. The [`ResponseFuture`] acts on
//! it, in one `match`: it calls the inner service, waits, or answers by a callback. Both layers
//! answer denials and failures in the same way. They call the inner service only after the
//! decision, and only the instance that was polled ready.

mod body;
mod options;
mod outcome;
mod response_future;
mod shadow_take;
mod waiting;

pub(crate) use options::Options;
pub(crate) use outcome::{Admitted, AnswerHandler, AskedTake, Outcome, Question, WriteDecision};
pub use response_future::ResponseFuture;
pub(crate) use shadow_take::ShadowTake;
pub(crate) use waiting::{WaitLimits, Waiter};
