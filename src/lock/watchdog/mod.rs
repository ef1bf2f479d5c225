//! The background task that renews and releases leases.

mod watchdog;
mod work;
mod work_queue;

pub(super) use watchdog::Watchdog;
