use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::question::{Question, QuestionBody, SendOptions, TakeQuestion};
use super::scripts::algorithm_script;

/// Where a question stands in its flight: the questions are sorted by this, and neighbours are put
/// into one call. The questions about one key stay in order of arrival.
///
/// The fields are compared from the top down, so their order matters: first what has to be sent
/// earlier, then what may share a call, then the key, and last the order of arrival. It is a sort
/// and no map of vectors because a flight of 1,024 questions is sorted in place, without an
/// allocation for each key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    /// The calls of one round are sent after those of all earlier rounds.
    round: usize,
    call: CallKind,
    /// The index of the first of the takes of the same key and round.
    first: usize,
    /// The index of this question.
    pub(super) index: usize,
}

/// The call that a question needs. Calls of takes are sent before the other calls of their round.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CallKind {
    Shared(SharedCall),
    Single,
}

/// Takes share a call only if they agree in all of this.
///
/// In a cluster that includes the slot: a node refuses a call with keys of two slots, even if it
/// serves both.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SharedCall {
    /// The script's address in memory.
    script: usize,
    now: Option<u64>,
    options: SendOptions,
    /// A question that has to be sent alone has its index here, and all others have none.
    alone: Option<usize>,
    slot: u16,
}

impl SortKey {
    /// Whether both are takes of one key and of one round.
    pub(super) fn has_key_of(&self, other: &Self) -> bool {
        self.first == other.first
    }

    /// Whether both may share a call.
    pub(super) fn has_call_of(&self, other: &Self) -> bool {
        self.round == other.round && self.call == other.call
    }
}

/// The sort key of each question of a flight.
pub(super) fn sort_keys(questions: &[Question]) -> Vec<SortKey> {
    let mut rounds = Rounds {
        last: HashMap::with_capacity(questions.len()),
    };
    let sort_keys = questions.iter().enumerate().map(|(index, question)| {
        let (round, first, call) = match &question.body {
            QuestionBody::Take(take, _) => {
                let (round, first) = rounds.add_take(take, index, question.options.is_alone);
                let call = SharedCall::of(take, question, index);
                (round, first, CallKind::Shared(call))
            }
            QuestionBody::Call(call, _) => {
                let round = call.count.as_deref().map(|count| rounds.add_change(count));
                (round.unwrap_or(0), index, CallKind::Single)
            }
        };
        SortKey {
            round,
            call,
            first,
            index,
        }
    });
    sort_keys.collect()
}

/// The rounds of a flight. They keep the questions about each key in order of arrival.
///
/// Rounds are counted for each key apart: however many rounds the refunds of one key need, the
/// takes of all other keys share the calls of the first.
///
/// ```text
/// questions about one key    round
/// take                       0
/// take                       0    shares the call of the first
/// refund                     0    is sent behind the calls of takes of its round
/// refund                     0
/// take                       1
/// reset                      1
/// ```
///
/// A take costs one look-up, whether or not there are refunds. Only a refund or a reset costs a
/// further one.
struct Rounds<'a> {
    last: HashMap<&'a str, LastRound<'a>>,
}

/// The last round that has a question about one key.
struct LastRound<'a> {
    number: usize,
    /// The round's first take of the key, and its index. `None` behind a call that changes the
    /// count: a further take needs another round.
    first: Option<(&'a TakeQuestion, usize)>,
}

impl<'a> Rounds<'a> {
    /// The round of a take, and the index of the first take of its key in that round.
    ///
    /// The round is another one than that of the key's last question if the take cannot share a
    /// call with it: that was a refund or a reset, the rule was replaced, a test has set the clock,
    /// or the take has to be sent alone.
    fn add_take(&mut self, take: &'a TakeQuestion, index: usize, is_alone: bool) -> (usize, usize) {
        match self.last.entry(&take.name) {
            Entry::Vacant(entry) => {
                let first = Some((take, index));
                entry.insert(LastRound { number: 0, first });
                (0, index)
            }
            Entry::Occupied(entry) => {
                let last = entry.into_mut();
                match last.first {
                    Some((first, at)) if first.is_like(take) && !is_alone => (last.number, at),
                    _ => {
                        last.number += 1;
                        last.first = Some((take, index));
                        (last.number, index)
                    }
                }
            }
        }
    }

    /// The round of a call that changes this count: that of the last take of the key.
    fn add_change(&mut self, count: &'a str) -> usize {
        let last = self.last.entry(count).or_insert(LastRound {
            number: 0,
            first: None,
        });
        last.first = None;
        last.number
    }
}

impl TakeQuestion {
    /// Whether a take of the same key can share a call with this one.
    fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rule, &other.rule) && self.now == other.now
    }
}

impl SharedCall {
    /// The call of a take, which is the question with this index.
    fn of(take: &TakeQuestion, question: &Question, index: usize) -> Self {
        let script: *const _ = algorithm_script(take.rule.algorithm().algorithm());
        Self {
            script: script as usize,
            now: take.now,
            options: question.options,
            alone: question.options.is_alone.then_some(index),
            slot: question.slot,
        }
    }
}
