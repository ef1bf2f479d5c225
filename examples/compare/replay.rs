//! One traffic through one algorithm.

use tidegate::algorithm::Count;

use crate::contender::Contender;
use crate::traffic::{Take, Traffic};

pub(crate) struct Outcome<'a> {
    pub(crate) contender: &'a Contender,
    /// What of the offered was admitted.
    pub(crate) admitted: Vec<Take>,
}

/// The whole of a store is a count and a clock, and here the clock is the traffic's.
pub(crate) fn replay<'a>(contender: &'a Contender, traffic: &Traffic) -> Outcome<'a> {
    let mut count = Count::default();
    let (algorithm, quotas) = (contender.algorithm, [contender.quota]);
    let admit = |take: &Take| {
        let (at, reserved) = (take.at, traffic.reserved.unwrap_or(take.cost));
        let decision = count.take(algorithm, at, &quotas, reserved);
        let beyond = take.cost.saturating_sub(reserved);
        decision.is_allowed().then(|| Take {
            at,
            cost: reserved + count.owe(algorithm, at, &quotas, beyond, None),
        })
    };
    let admitted = traffic.offered.iter().filter_map(admit);
    Outcome {
        contender,
        admitted: admitted.collect(),
    }
}
