//! Both stores, and the algorithm alone, against the laws.

#[path = "../support/mod.rs"]
mod support;

mod history;
