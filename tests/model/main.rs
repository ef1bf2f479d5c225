//! The in-memory store between the turns of its threads; see [`interleavings`].
#![cfg(tidegate_model)]

mod interleavings;
