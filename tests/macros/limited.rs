//! What `#[limited]` makes of functions, methods and impl blocks, over the in-memory store.

mod blocks;
mod callbacks;
mod functions;
mod refusals;
mod unusual;

use std::fmt;

use tidegate::layer::Refused;
use tidegate::{Limits, Quota, Rule};

/// Each key may do each of these once.
fn once() -> Limits {
    let rule = |path| Rule::new(path, [Quota::per_hour(1)]).expect("a rule");
    Limits::new(["export", "report"].map(rule))
}

/// The error of a limited function.
#[derive(Debug, PartialEq)]
enum Error {
    /// It did not run.
    Refused,
    /// It ran, and this is its own.
    Own,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Error {}

impl From<Refused> for Error {
    fn from(_: Refused) -> Self {
        Self::Refused
    }
}

/// What the compiler says of mistakes, with the toolchain that wrote the texts. After a change, or
/// with another one, look at what `TRYBUILD=overwrite cargo test -p tidegate-macro-tests mistakes`
/// makes of them.
#[test]
fn mistakes_are_errors_that_say_what_is_expected() {
    trybuild::TestCases::new().compile_fail("mistakes/*.rs");
}
