//! What the scripts of the algorithms are asked and what they answer, in bytes. The formats stand
//! in `lua/include/read_question.lua` and `lua/include/reply_format.lua`.

mod answers;
mod batch;
mod questions;
mod refund;

pub(super) use answers::{Answer, read_answers};
pub(super) use batch::{Batch, Row};
pub(super) use questions::write_questions;
pub(crate) use refund::{read_refund, write_refund};
