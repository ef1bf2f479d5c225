//! `Limits::check`: rules that are replaced, charges that are refunded and settled.

use std::rc::Rc;

use kit::steps::Spec;

use super::*;

pub(crate) struct Checks {
    name: String,
    limits: Limits,
    clock: ManualClock,
    spec: Option<Rc<Spec>>,
    operator: Operator,
    is_over: bool,
    charges: Vec<Charge>,
}

impl Checks {
    pub(crate) fn new(name: String, make: impl FnOnce(ManualClock) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::default();
        Self {
            name,
            limits: Limits::new(Rules::default()).store(make(clock.clone())),
            clock,
            spec: None,
            operator: Operator::default(),
            is_over: false,
            charges: Vec::new(),
        }
    }

    fn keys(step: &Played) -> SubjectKeys {
        match step.spec.is_joint() {
            true => step.spec.named(step.keys).collect(),
            false => step.take.key().clone().into(),
        }
    }

    async fn check(&mut self, step: &Played, cost: u64) -> (Decision, Option<Receipt>) {
        let path = step.take.rule().path();
        let call = self.limits.check(path, Self::keys(step));
        let call = call.cost(cost);
        let call = match (Operator::value(&self.limits, step), step.plan % RAISED) {
            (Some(value), _) => call.plan_value(value),
            (None, 0) => call,
            (None, plan) => call.plan(&plan.to_string()),
        };
        match call.await {
            Ok(admitted) => {
                let decision = admitted.decision.expect("there is a rule");
                let receipt = charged(&decision);
                let charge = admitted.charge.filter(|_| receipt.is_some());
                self.charges.extend(charge);
                (decision, receipt)
            }
            Err(refused) => {
                let decision = refused.decision();
                (
                    decision.unwrap_or_else(|| panic!("{refused}")).clone(),
                    None,
                )
            }
        }
    }
}

impl Target for Checks {
    fn name(&self) -> &str {
        &self.name
    }

    async fn play(&mut self, step: &Played) -> Option<Vec<Fact>> {
        let has_gone_back = step.now < self.clock.now() && self.clock.now() > 1_000_000_000;
        let has_permits = step.spec.all().any(|limit| limit.quota.is_none());
        // The key of a subject cannot be left out, and a permit that is not kept goes back.
        self.is_over |= step.spec.skipped(step.keys).is_some() || has_permits;
        self.is_over |= has_gone_back;
        if self.is_over {
            return None;
        }
        self.clock.set(step.now);
        if self.spec.as_ref() != Some(&step.spec) {
            let rule = step.spec.rule(step.take.rule().path());
            self.limits
                .rules()
                .replace(Rules::from_iter([(*rule).clone()]));
            self.spec = Some(Rc::clone(&step.spec));
        }
        self.operator.act(&self.limits, step).await;
        // They are in use from now on, whatever the step does.
        let path = step.take.rule().path();
        let store = self.limits.shared_store();
        Some(match &step.act {
            Act::Take(costs) => {
                let mut facts = Vec::new();
                for cost in costs {
                    let (decision, receipt) = self.check(step, *cost).await;
                    facts.push(fact(&decision, receipt, step.spec.is_joint()));
                }
                facts
            }
            Act::Refund(charge, units) => {
                let charge = &self.charges[*charge];
                let cost = charge.take().cost();
                if *units >= cost {
                    return Some(vec![Fact::Units(charge.refund().await.expect("an answer"))]);
                }
                // What was settled stays a request where requests are counted.
                if charge.take().counts().len() > 1 {
                    self.is_over = true;
                    return None;
                }
                let settled = charge.settle(cost - *units).await;
                vec![Fact::Units(settled.expect("an answer").given_back)]
            }
            // It is about the counts of all plans.
            Act::Reset if step.spec.is_joint() => {
                self.is_over = true;
                return None;
            }
            Act::Reset => {
                let keys = Self::keys(step);
                vec![Fact::Reset(
                    self.limits.reset(path, keys).await.expect("an answer"),
                )]
            }
            Act::Owe(_, None) => {
                let charged = store.owe(&step.take, &Receipt::new(0, 0, 1)).await;
                vec![Fact::Units(charged.expect("an answer"))]
            }
            Act::Hold(time) => {
                let held = store.hold(&step.take, *time).await;
                vec![Fact::Held(held.expect("an answer"))]
            }
            Act::Owe(..) | Act::Release(_) | Act::Renew(_) | Act::Evict(_) => {
                self.is_over = true;
                return None;
            }
        })
    }
}
