//! What stores are asked: about which counts, at what cost, and what becomes of them.
//!
//! It knows no rule and no key extractor: a [`Take`](crate::Take) makes the question of a rule and
//! a key, and stores answer it without knowing them. [`RuleCounts`] is what a rule has prepared for
//! its questions: specs, names, and its path, which is here only a text for the log. What a store
//! may be told beside takes is a [`Change`]. How it is answered stands in `src/store/`, and what
//! the answers say about the quotas of a rule in `src/take.rs`.

mod ask;
mod change;
mod counts;
mod key_text;
mod name;

pub use ask::{Ask, CountAsk};
pub use change::Change;
pub(crate) use counts::{RuleCount, RuleCounts};
pub(crate) use key_text::{KeyText, as_str};
pub(crate) use name::{Name, Names, hash};
#[cfg(feature = "redis")]
pub(crate) use name::{beside, has_tag};
