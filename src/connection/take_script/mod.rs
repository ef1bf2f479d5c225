//! What the scripts of the algorithms are asked and what they answer, in bytes. The formats stand
//! in `lua/include/read_question.lua` and `lua/include/reply_format.lua`.
//!
//! The names of the keys travel in KEYS. All questions of a call are one argument, and all answers
//! one string: Lua builds no array, and none is parsed here. Both sides must change together: a
//! field that is added here is added there. No version is needed, since a script is called by its
//! hash: two releases of this crate use two scripts.
//!
//! Every reply is checked: a reply that is too short, too long or of another call is no answer,
//! and the link is closed. What is written is bounded by the types and by
//! [`TakeCall`](super::take_call::TakeCall).

mod answers;
mod questions;
mod refund;

pub(super) use answers::{Answer, id_in, read_answers};
pub(super) use questions::write_questions;
pub(crate) use refund::{read_refund, write_refund};
