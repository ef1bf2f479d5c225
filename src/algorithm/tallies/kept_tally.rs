use super::tally::Tally;

/// One of the tallies that are kept for a key.
#[derive(Debug, Clone)]
pub(super) struct KeptTally<T> {
    pub(super) tally: T,
    /// Until when it is needed for what was charged while its quota was the rule's.
    pub(super) needed_until: u64,
    /// Takes that were charged before this instant are not told apart in it, and so not given back.
    pub(super) refundable_since: u64,
}

impl<T: Tally> KeptTally<T> {
    /// The instant from which on it is of no use.
    pub(super) fn ends_at(&self) -> u64 {
        self.tally.ends_at().min(self.needed_until)
    }
}
