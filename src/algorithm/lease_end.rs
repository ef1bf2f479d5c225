/// Until when units that were taken ahead may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// For the time of the lease. Each unit counts as much longer than its window.
    AfterItsTime,
    /// For the time of the lease, but not beyond the window to which they were charged.
    WithTheWindow,
}
