//! What the scripts of the algorithms are asked and what they answer, in bytes. The formats stand
//! in `lua/include/read_question.lua` and `lua/include/reply_format.lua`.

mod answers;
mod questions;
mod refund;

pub(super) use answers::{Answer, read_answers};
pub(super) use questions::write_questions;
pub(crate) use refund::{read_refund, write_refund};

use crate::rule::Rule;

/// Takes of one rule and key, in order of arrival.
pub(super) struct Batch<'a> {
    pub(super) rule: &'a Rule,
    pub(super) name: &'a str,
    pub(super) rows: &'a [Row],
}

/// Takes of the same cost, one behind the other.
pub(super) struct Row {
    pub(super) cost: u64,
    pub(super) takes: u16,
    /// In microseconds of the server's clock.
    pub(super) deadline: u64,
}
