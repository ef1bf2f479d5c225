//! What holds and failures add to questions and replies. The scripts' side is
//! `lua/include/holds.lua`, and `held_for` and `allowed` of a state in `lua/include/core.lua`.

use std::time::Duration;

use crate::algorithm::constants::{
    ALLOWED, ALLOWED_AFTER_FAILURES, DENIED, DENIED_ON_HOLD, NEVER, ON_HOLD,
};
use crate::algorithm::spec::Spec;
use crate::decision::{Decision, Verdict};

/// The verdict that the script means by `code`; `None` if it is none. `number` are microseconds
/// where it denies.
pub(super) fn verdict(spec: &Spec, code: u64, number: u64) -> Option<Verdict> {
    let retry_after = Duration::from_micros(number);
    Some(match code {
        DENIED | DENIED_ON_HOLD => Verdict::Denied { retry_after },
        ON_HOLD => spec.held_verdict(retry_after),
        ALLOWED | ALLOWED_AFTER_FAILURES => Verdict::Allowed,
        NEVER => Verdict::Never,
        _ => return None,
    })
}

/// The decision with what `code` says of failures.
pub(super) fn mark(mut decision: Decision, spec: &Spec, code: u64) -> Decision {
    decision.has_failures = code == ALLOWED_AFTER_FAILURES;
    match code == DENIED_ON_HOLD && spec.lockout().is_some() {
        true => decision.and_locked_out(),
        false => decision,
    }
}
