use std::time::Duration;

use super::outcomes::Outcomes;
use super::subject::MAX_SUBJECTS;
use crate::quota::{MAX_QUOTAS, Quota};

/// Why a [`Rule`](crate::Rule) cannot be made, or not be shown to customers.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The path is the empty string.
    #[error("the path is empty, expected the name of what is limited")]
    EmptyPath,
    /// There are no quotas, or more than 16.
    #[error("{0} quotas, expected 1 to {MAX_QUOTAS}")]
    NumberOfQuotas(usize),
    /// Two quotas have the same name.
    #[error("two quotas are named \"{0}\", expected a name of its own for each")]
    SameName(String),
    /// Two quotas of one subject and cost have the same window.
    #[error("\"{0}\" is a second quota of one window, expected one: the smaller max decides")]
    SameWindow(String),
    /// A [weight](super::Quotas::with_fair_weight) is 0 or more than 1,000.
    #[error("the weight {0}, expected 1 to 1,000")]
    FairWeight(u16),
    /// There are no subjects, or more than 8.
    #[error("{0} subjects, expected 1 to {MAX_SUBJECTS}")]
    NumberOfSubjects(usize),
    /// The name of a subject is the empty string.
    #[error("a subject has no name")]
    EmptySubject,
    /// Two subjects have the same name.
    #[error("two subjects are named \"{0}\", expected a name of its own for each")]
    SameSubject(String),
    /// A subject has no quota.
    #[error("the subject \"{0}\" has no quota")]
    NoQuotaOfSubject(String),
    /// A quota, or a key, is of a subject that the rule does not have.
    #[error("there is no subject \"{0}\"")]
    UnknownSubject(String),
    /// A plan has quotas of a subject, or of the only key's kind, that is
    /// [unlimited](super::Quotas::unlimited) under it.
    #[error("a quota of the plan is of \"{0}\", which it leaves unlimited, expected one of both")]
    UnlimitedQuota(String),
    /// Each subject may be absent, so that a request could count nowhere.
    #[error("each subject may be absent, expected one at least that is in every request")]
    NoCertainSubject,
    /// Each subject that a plan limits may be absent: a request that leaves them out would count
    /// nowhere.
    #[error(
        "each subject of the plan \"{0}\" may be absent, expected a quota of one that is in every \
         request"
    )]
    NoCertainSubjectOfPlan(String),
    /// A quota counts nothing.
    #[error("the quota \"{0}\" has a cost of 0, which counts nothing: expected at least 1")]
    NoCost(String),
    /// A quota of a plan has a cost of its own, and no quota of the rule has one.
    #[error("the quota \"{0}\" of a plan has a cost of its own, expected one in its rule, too")]
    CostWithoutSubject(String),
    /// Several subjects for calls to a partner.
    #[error("outgoing calls have one key, which a partner's answer holds: expected one subject")]
    OutgoingSubjects,
    /// A max of requests at a time for calls to a partner.
    #[error(
        "outgoing calls have no max-concurrent: a turn ends where the answer begins, expected a \
         bound in the client that holds until the body was read, such as a semaphore"
    )]
    OutgoingConcurrent,
    /// No quota counts the cost of a call to a partner.
    #[error(
        "each quota has a cost of its own, expected one without: it counts what an outgoing call \
         costs, and a partner's answer holds it"
    )]
    OutgoingCost,
    /// A [calendar](super::Policy::calendar) quota for calls to a partner.
    #[error("outgoing calls have no calendar quota: a partner's answer holds a key of windows")]
    OutgoingCalendar,
    /// A max of requests at a time for a key that has one.
    #[error("\"{0}\" is a second max of requests at a time for one key, expected one")]
    SameMaxConcurrent(String),
    /// A max of requests at a time with a cost.
    #[error("\"{0}\" limits requests at a time, which have no cost: each holds one permit")]
    CostOfPermits(String),
    /// How long a permit lives without a renewal is too short or too long.
    #[error("a permit's lease of {0:?}, expected 1 s to 1 day")]
    PermitLeaseLength(Duration),
    /// The name of a plan is the empty string.
    #[error("the plan has no name")]
    EmptyPlan,
    /// Two plans have the same name.
    #[error("two plans are named \"{0}\", expected a name of its own for each")]
    SamePlan(String),
    /// A quota of a plan has another time zone than its rule.
    #[error("a plan in the time zone {0:?}, expected that of the rule, {1:?}")]
    AnotherZone(String, String),
    /// The rule has no plan of this name.
    #[error("there is no plan \"{0}\"")]
    UnknownPlan(String),
    /// A text that is not one of the outcomes of
    /// [`Rule::with_refund_on`](crate::Rule::with_refund_on).
    #[error("{0:?} is no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcome(String),
    /// An empty list of outcomes.
    #[error("no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcomes,
    /// What [`Rule::with_hold_on`](crate::Rule::with_hold_on) was told is no status of a refusal.
    #[error("{0} is no status of a refusal, expected {expected}", expected = Outcomes::STATUSES)]
    NoStatus(String),
    /// A [lock-out](super::Lockout) does not make sense, or not beside what the rule says.
    #[error("{0}")]
    Lockout(&'static str),
    /// A quota lets fewer requests pass than have to fail.
    #[error("{0} admits fewer than {1} requests within that time")]
    LockoutAfter(Quota, usize),
    /// [`Limits::usage`](crate::Limits::usage) is told no path.
    #[error("no path to show the usage of, expected those of one rule at least")]
    NoPath,
    /// It is told a path without a rule.
    #[error("there is no rule {0:?}: correct the path, or add the rule")]
    NoRule(String),
    /// It is told a rule whose key, or that of a subject, is said nowhere or by a layer alone.
    #[error(
        "nothing says whom the rule {0:?} counts, and a layer's own key is not known here: give a \
         key to the rule or to Limits, or \"everyone\" for one count of all requests"
    )]
    NoKey(String),
}

crate::error::debug_as_message!(RuleError);
