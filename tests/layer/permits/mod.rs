//! Rules that let so many requests run at a time.

#[cfg(feature = "test-util")]
mod answers;
mod counted;
mod holding;
mod kept;
#[cfg(feature = "page")]
mod page;
