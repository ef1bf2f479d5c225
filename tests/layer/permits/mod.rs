//! Rules that let so many requests run at a time.

mod holding;
