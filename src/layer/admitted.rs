use std::sync::Arc;

use super::action::Admission;
use crate::charge::{Charge, Effect, LateCharge, LatePermit, Permit};
use crate::decision::Decision;

/// The answer to a [check](crate::Limits::check) that may go on.
///
/// Under a rule that says how many may run [at a time](crate::Rule::with_max_concurrent) it has
/// the permit, so it has to have a name that lives as long as the work takes:
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn export() {}
/// let rule = Rule::new("export", [Quota::per_minute(60)])?.with_max_concurrent(1)?;
/// let limits = Limits::new([rule]);
/// // Neither `limits.check("export", "alice").await?;` nor `let _ = ..` would keep it.
/// let admitted = limits.check("export", "alice").await?;
/// export().await;
/// assert!(limits.check("export", "alice").await.is_err(), "it still runs");
/// drop(admitted); // The next one may run.
/// # Ok(())
/// # }
/// ```
///
/// Its charge can be given back:
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("mail", [Quota::per_minute(10)])?]);
/// let admitted = limits.check("mail", "alice").await?;
/// // The mail could not be sent: alice does not pay for it.
/// if let Some(charge) = admitted.charge {
///     assert_eq!(charge.refund().await?, 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Admitted {
    /// The store's decision. `None` if nobody decided: there is no rule for the path, it is
    /// switched off or a shadow rule, an operator lets the key through, or the store failed and the
    /// rule says `on-error = "proceed"`.
    pub decision: Option<Decision>,
    /// The charge, which can be given back. `None` where there is no decision.
    pub charge: Option<Charge>,
    /// The right to run, under a rule that says how many may [at a
    /// time](crate::Rule::with_max_concurrent): keep it, or this answer, as long as the work takes.
    /// It goes back when it is dropped, and what is dropped [at
    /// once](crate::warning::WarningKind::PermitNotKept) limits nothing. `None` under other rules.
    pub permit: Option<Permit>,
    /// That of a shadow rule.
    #[allow(dead_code, reason = "it goes back with the answer")]
    in_shadow: Option<LatePermit>,
    /// What a shadow rule was charged.
    charge_in_shadow: Option<Arc<LateCharge>>,
}

impl Admitted {
    /// What a check gets, which may go on.
    pub(super) fn new(mut admission: Admission) -> Self {
        // Its caller has it: what is dropped is no request.
        let (charge, permit) = (admission.answer.take(), admission.permit.take());
        let (rule, gate) = (&admission.rule, &admission.gate);
        Self {
            decision: charge.as_ref().map(|charge| charge.decision().clone()),
            charge: charge.and_then(|charge| charge.for_settling()),
            permit: permit.map(|it| gate.watch_permit(it, rule)),
            in_shadow: admission.permit_in_shadow.take(),
            charge_in_shadow: admission.shadow.take(),
        }
    }

    /// Does this with what was charged.
    pub(crate) fn apply(&self, effect: Effect) {
        self.charge.iter().for_each(|it| effect.apply(it));
        let in_shadow = &self.charge_in_shadow;
        in_shadow.iter().for_each(|it| it.apply(effect));
    }
}
