//! `Resilient` as the one door attacked: its parts in their order, what clones, setters and nested
//! doors share, settings at their ends, layers in a row, and stores that panic within.

mod layers;
mod order;
mod panics;
mod settings;

use crate::prelude::*;
