mod checks;
#[cfg(feature = "page")]
mod fleet;
pub(crate) mod limits;
#[cfg(feature = "page")]
mod monitor;
mod paths;
#[cfg(feature = "metrics")]
mod publish;
#[cfg(feature = "page")]
mod rates;
#[cfg(feature = "page")]
mod watch;

#[cfg(feature = "page")]
pub(crate) use fleet::{LimitedRow, Process};
#[cfg(feature = "page")]
pub(crate) use rates::Step;
