mod checks;
pub(crate) mod limits;
mod paths;
#[cfg(feature = "metrics")]
mod publish;
