//! One traffic through one algorithm.

use tidegate::algorithm::Count;

use crate::contender::Contender;
use crate::traffic::Take;

pub(crate) struct Outcome<'a> {
    pub(crate) contender: &'a Contender,
    /// What of the offered was admitted.
    pub(crate) admitted: Vec<Take>,
}

/// The whole of a store is a count and a clock, and here the clock is the traffic's.
pub(crate) fn replay<'a>(contender: &'a Contender, offered: &[Take]) -> Outcome<'a> {
    let mut count = Count::default();
    let quotas = [contender.quota];
    let mut is_admitted = |take: &Take| {
        let decision = count.take(contender.algorithm, take.at, &quotas, take.cost);
        decision.is_allowed()
    };
    let admitted = offered.iter().copied().filter(|take| is_admitted(take));
    Outcome {
        contender,
        admitted: admitted.collect(),
    }
}
