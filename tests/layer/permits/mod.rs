//! Rules that let so many requests run at a time.

mod answers;
mod counted;
mod holding;
mod kept;
mod upgrades;
