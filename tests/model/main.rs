//! The in-memory store between the turns of its threads, see [`interleavings`], and under an
//! interpreter, see [`miri`]. Without one of them this is empty.

#[cfg(tidegate_model)]
mod interleavings;
#[cfg(miri)]
mod miri;
