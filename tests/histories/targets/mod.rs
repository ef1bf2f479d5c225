//! What plays the same histories as the pure functions. Each is an adapter: it makes calls of the
//! steps, and facts of the answers.

mod checks;
mod http;
mod stores;

use kit::steps::{Broken, RAISED, factor};
use tidegate::layer::SubjectKeys;
use tidegate::rule::Plan;

use crate::reference::{Act, Fact, Played, states};
use crate::*;
pub(crate) use checks::Checks;
pub(crate) use http::Http;
pub(crate) use stores::StoreTarget;

/// Something that counts.
pub(crate) trait Target {
    fn name(&self) -> &str;

    /// What it answers to a step; `None` for one that it lacks.
    async fn play(&mut self, step: &Played) -> Option<Vec<Fact>>;
}

/// Plays a history to its end, or to where the answers differ. Returns how many steps it played,
/// and how many of a kind that it lacks it left out.
pub(crate) async fn compare(
    target: &mut impl Target,
    played: &[Played],
) -> Result<(u64, u64), (usize, Broken)> {
    let (mut number, mut left_out) = (0, 0);
    for (at, step) in played.iter().enumerate() {
        match target.play(step).await {
            None => left_out += 1,
            Some(facts) => {
                number += 1;
                if is_stricter(&played[..=at], &facts) {
                    return Ok((number, left_out));
                }
                if !are_alike(step, &facts) {
                    let name = target.name();
                    return Err((
                        at,
                        format!("{name} answers {facts:?} at last, not as it should"),
                    ));
                }
            }
        }
    }
    Ok((number, left_out))
}

/// What an operator does as the plan of a step says, where no other process hears of it.
#[derive(Default)]
struct Operator(HashMap<String, f64>);

impl Operator {
    async fn act(&mut self, limits: &Limits, step: &Played) {
        let (path, wanted) = (step.take.rule().path(), factor(step.plan));
        let first = step.spec.named(step.keys).next();
        let keys: SubjectKeys = match first.clone() {
            Some(first) => [first].into(),
            None => step.take.key().clone().into(),
        };
        let name = first.map(|(_, key)| key.to_string()).unwrap_or_default();
        let before = self.0.get(&name).copied();
        if limits.shared_store().fleet().is_none() && before != wanted {
            let time = if wanted.is_some() { 3_600 } else { 0 };
            let (factor, time) = (wanted.unwrap_or(1.0), Duration::from_secs(time));
            let raised = limits.raise(path, keys, factor, time, "").replace();
            raised.await.expect("it can be raised");
            match wanted {
                Some(factor) => self.0.insert(name, factor),
                None => self.0.remove(&name),
            };
        }
    }

    /// What a request says of its plan.
    fn value(limits: &Limits, step: &Played) -> Option<Plan> {
        let has_fleet = limits.shared_store().fleet().is_some();
        let raised = || step.spec.raised_value(step.plan).filter(|_| has_fleet);
        raised().or_else(|| step.spec.value(step.plan))
    }
}

/// Whether a cached denial is of a rule that was changed before it was charged: its wait may have
/// been longer than need be. From there on it counts in another way.
fn is_stricter(played: &[Played], facts: &[Fact]) -> bool {
    let is_cached = |fact: &Fact| matches!(fact, Fact::Decided(Verdict::Denied { .. }, told, _) if told.is_empty());
    let (step, mut others) = (&played[played.len() - 1], played.iter());
    let was_changed = others.any(|it| it.spec != step.spec || it.plan != step.plan);
    was_changed && facts.iter().any(is_cached) && !are_alike(step, facts)
}

fn are_alike(step: &Played, facts: &[Fact]) -> bool {
    let are_alike = |expected: &Fact, got: &Fact| match (expected, got) {
        // A cached denial tells what was so when it was made: others may have taken more since.
        (Fact::Decided(verdict, ..), Fact::Decided(got, told, None)) if told.is_empty() => {
            *verdict != Verdict::Allowed && wait(*got) <= wait(*verdict)
        }
        (Fact::Decided(verdict, states, receipt), Fact::Decided(got, told, of_got)) => {
            let has_receipt = receipt.is_none() || of_got.is_none() || receipt == of_got;
            let is_charged = *verdict == Verdict::Allowed || of_got.is_none();
            verdict == got && states == told && has_receipt && is_charged
        }
        // It may still have what counts no longer.
        (Fact::Reset(expected), Fact::Reset(got)) => *got || !expected,
        // One whose lease has ended may be there still, and counts no more.
        (Fact::Units(0), Fact::Units(_)) if matches!(step.act, Act::Release(_)) => true,
        _ => expected == got,
    };
    let mut pairs = step.facts.iter().zip(facts);
    step.facts.len() == facts.len() && pairs.all(|(expected, got)| are_alike(expected, got))
}

/// How long a denied take has to wait.
fn wait(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::Denied { retry_after } | Verdict::OnHold { retry_after } => retry_after,
        Verdict::Busy { retry_after } => retry_after,
        _ => Duration::MAX,
    }
}

/// What a decision says, with a receipt unless those of each store differ.
fn fact(decision: &Decision, receipt: Option<Receipt>, is_joint: bool) -> Fact {
    let told = match decision.source() {
        Source::Cache => Vec::new(),
        _ => states(decision),
    };
    Fact::Decided(decision.verdict(), told, receipt.filter(|_| !is_joint))
}

/// Redis forgets keys by the real time, whatever the history's clock shows: what took this long
/// proves nothing, since a machine that is busy otherwise may have let a key go that still counts.
pub(crate) const KEPT: Duration = Duration::from_millis(900);
