//! Locks that the whole fleet shares.

mod attempt;
mod claim;
mod error;
mod exclusive;
mod guard;
mod held;
mod lease;
#[expect(clippy::module_inception, reason = "it is the lock itself")]
mod lock;
mod names;
mod owner;
mod slots;
mod subscriber;
mod waiting;
mod watchdog;

pub use error::{LockError, LockErrorKind};
pub use exclusive::{Exclusive, ExclusiveFuture, ExclusiveLayer};
pub use guard::LockGuard;
pub use lock::Lock;
pub use owner::Owner;
