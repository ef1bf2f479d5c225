//! What algorithms share that keep a tally for each quota, in constant memory.

mod kept_tally;
mod tallies;
mod tallies_state;
mod tally;

pub(super) use tallies::Tallies;
pub(super) use tally::{Level, MAX_HELD, Tally, TallyRefund};
