//! Random histories of takes, played alike by everything that counts: the pure functions, the
//! memory store, the scripts, wrappers, checks and layers. The pure functions are checked against an
//! oracle that only adds up, and all others are compared with them.
//!
//! A history that fails is shrunk to a few steps and told as a story. `TIDEGATE_HISTORIES` says how
//! many are played in place of 800; `TIDEGATE_SEED` draws others, or the same again.

mod alike;
mod bytes;
mod counted;
mod directed;
mod fields;
mod joint;
mod pure;
mod reference;
mod targets;

use kit::oracle::charged;
use kit::prelude::*;
