//! The denial cache attacked: it tells nobody a denial that is over, another caller's, or of a
//! rule that was replaced, whatever its callers and its store do.

mod fleet;
mod store;
