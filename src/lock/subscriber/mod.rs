//! The callers that wait for locks, and the background task that listens for releases.

mod channels;
mod listen;
mod queued_waiter;
mod turn;
mod wait_queue;

pub(super) use channels::Channels;
pub(super) use listen::listen;
pub(super) use queued_waiter::QueuedWaiter;
pub(super) use wait_queue::WaiterInfo;
