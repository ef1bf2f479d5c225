//! The table of what is counted for each rule: counters, snapshot and exporter are made of it.

use super::latency::Latency;
#[cfg(feature = "metrics")]
use super::publisher::Metric;
use super::rule_counters::AtomicCounter;
use super::rule_snapshot::{DecisionOutcome, LatencySnapshot, PlanSnapshot};
#[cfg(feature = "metrics")]
use super::samples::{self, Samples};
use crate::decision::Source;
use crate::error::{KeyErrorKind, StoreErrorKind};

/// Makes the [`Numbers`] of a rule, their [`RuleSnapshot`] and its [`METRICS`].
///
/// A row has the name and the docs of the snapshot's field, and the kind, the name and the help of
/// the metric. Behind `as` stands what reads the samples of a metric with labels of its own.
macro_rules! table {
    (
        numbers {$(
            $(#[$doc:meta])*
            $field:ident: $kind:ident $name:literal $help:literal $(as $samples:expr)?;
        )*}
        labelled {$($of_kind:ident $of_name:literal $of_help:literal as $of_samples:expr;)*}
    ) => {
        /// What the layers of one path have counted since they were made.
        ///
        /// The numbers only grow, except for [`waiting`](Self::waiting) and
        /// [`longest_wait_ms`](Self::longest_wait_ms). Each is read by itself: a
        /// request may be in one of them and not in another yet.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct RuleSnapshot {
            /// The path of the rule.
            pub path: String,
            pub(super) decisions: Decisions<u64>,
            /// The name of each quota of the rule, and how many denied requests it had no room for.
            /// A request may be denied by several quotas.
            pub denials: Vec<(String, u64)>,
            /// The name of each quota of a [shadow rule](crate::Rule::into_shadow), and how many
            /// requests it would have denied.
            pub shadow_denials: Vec<(String, u64)>,
            /// The decisions about requests with each [plan](crate::Rule::with_plan) of the rule.
            /// They are among those of the rule.
            pub plans: Vec<PlanSnapshot>,
            /// What may be decided, and by whom, if that is known.
            pub(crate) possible: Vec<(DecisionOutcome, Source)>,
            $($(#[$doc])* pub $field: u64,)*
            pub(super) store_errors: [u64; StoreErrorKind::ALL.len()],
            pub(super) key_errors: [u64; KeyErrorKind::ALL.len()],
            /// How long the store took to answer.
            pub latency: LatencySnapshot,
        }

        /// What counts the numbers of a [`RuleSnapshot`].
        #[derive(Debug, Default)]
        pub(crate) struct Numbers {
            pub(super) decisions: Decisions<AtomicCounter>,
            $(pub(crate) $field: AtomicCounter,)*
            pub(super) store_errors: [AtomicCounter; StoreErrorKind::ALL.len()],
            pub(super) key_errors: [AtomicCounter; KeyErrorKind::ALL.len()],
            pub(crate) latency: Latency,
        }

        impl Numbers {
            /// The numbers as they are, without those by the names of quotas and plans.
            pub(super) fn snapshot(&self, path: &str) -> RuleSnapshot {
                RuleSnapshot {
                    path: path.to_owned(),
                    decisions: self.decisions.each_ref().map(|of_outcome| {
                        of_outcome.each_ref().map(AtomicCounter::get)
                    }),
                    denials: Vec::new(),
                    shadow_denials: Vec::new(),
                    plans: Vec::new(),
                    possible: Vec::new(),
                    $($field: self.$field.get(),)*
                    store_errors: self.store_errors.each_ref().map(AtomicCounter::get),
                    key_errors: self.key_errors.each_ref().map(AtomicCounter::get),
                    latency: self.latency.snapshot(),
                }
            }
        }

        /// The metrics of a rule.
        #[cfg(feature = "metrics")]
        pub(super) const METRICS: &[(Metric, Samples)] = &[
            $((Metric::$of_kind($of_name, $of_help), $of_samples),)*
            $((Metric::$kind($name, $help), table!(@samples $field $($samples)?)),)*
        ];
    };
    (@samples $field:ident) => { |rule, publish| publish(Vec::new(), rule.$field) };
    (@samples $field:ident $samples:expr) => { $samples };
}

/// By outcomes and sources.
type Decisions<T> = [[T; Source::ALL.len()]; DecisionOutcome::ALL.len()];

table! {
    numbers {
        /// Units that allowed requests were charged.
        units: Counter "tidegate_units_total"
            "Units that allowed requests were charged.";

        /// Allowed requests after which a quota was used to 80 %, or
        /// [another part](crate::Limits::near_limit_ratio). Requests [at a
        /// time](crate::Rule::with_max_concurrent) are no such quota.
        near_limit: Counter "tidegate_near_limit_total"
            "Allowed requests after which a quota was nearly used up.";

        /// Charges that were [given back](crate::store::Charge::refund), wholly or in part.
        refunds: Counter "tidegate_refunds_total"
            "Charges that were given back, wholly or in part.";

        /// Units that were given back.
        refunded_units: Counter "tidegate_refunded_units_total"
            "Units that were given back.";

        /// Units that were used beyond a reservation, and [charged](crate::store::Charge::settle).
        /// They are not among the [units](Self::units) of allowed requests.
        owed_units: Counter "tidegate_owed_units_total"
            "Units that were used beyond a reservation, and charged.";

        /// Units that were used beyond a reservation, and not charged: more than a key
        /// [may owe](crate::Rule::with_owe_at_most).
        forgiven_units: Counter "tidegate_forgiven_units_total"
            "Units that were used beyond a reservation, and are more than a key may owe.";

        /// Charges that were to be given back [by their outcome](crate::Rule::with_refund_on), or
        /// settled later, or beyond the reservation, and stay as they are: the store failed, gave
        /// no answer in 10 s or still had 4,096 refunds to answer, or the runtime has ended. The
        /// store may have given back those whose answers were lost.
        refunds_lost: Counter "tidegate_refunds_lost_total"
            "Charges that were to be given back or settled later, and stay as they are.";

        /// Takes of a shadow rule that got no answer. They are not among the
        /// [errors](Self::store_errors) of the store, and their times are not in the
        /// [latency](Self::latency).
        shadow_errors: Counter "tidegate_shadow_errors_total"
            "Takes of a shadow rule that got no answer.";

        /// Decisions of Redis that came after the time-out and still count, because this process
        /// was late to send the take or to read the reply. They are not among the errors.
        lagged: Counter "tidegate_lagged_decisions_total"
            "Decisions that came after the time-out because this process was slow, not the store.";

        /// Requests of keys that an operator [lets through](crate::Limits::let_through) for a while:
        /// they were admitted without a question, and charged nothing.
        let_through: Counter "tidegate_let_through_total"
            "Requests of keys that an operator lets through: admitted without a question.";

        /// Requests of keys that an operator [blocks](crate::Limits::block) for a while: they were
        /// denied without a question. They are among the [decisions](Self::decisions).
        blocked: Counter "tidegate_blocked_total"
            "Requests of keys that an operator blocks: denied without a question.";

        /// How often failures have begun to [lock a key out](crate::rule::Lockout).
        lockouts: Counter "tidegate_lockouts_total"
            "How often failures have begun to lock a key out."
            as samples::lockouts;

        /// Requests that were admitted without a decision, because the rule or an error callback
        /// says so, as [`FailOpen`](crate::FailOpen) does.
        proceeded: Counter "tidegate_admitted_without_decision_total"
            "Requests that were admitted although no store decided.";

        /// Requests with a plan that the rule does not have, or that does not fit it: its own
        /// quotas applied.
        unknown_plans: Counter "tidegate_unknown_plans_total"
            "Requests with a plan that the rule does not have, or that does not fit it: its own \
             quotas applied."
            as samples::unknown_plans;

        /// Requests and calls that wait now: for units, a permit, or an overloaded store.
        waiting: Gauge "tidegate_waiting_requests"
            "Requests that wait for units now.";

        /// For how many milliseconds that request waits for units which has waited longest of those
        /// that wait now.
        longest_wait_ms: Gauge "tidegate_longest_wait_milliseconds"
            "For how long that request waits for units now which has waited longest.";

        /// Requests that waited for units, or still do.
        waited: Counter "tidegate_waited_requests_total"
            "Requests that waited for units, or still do.";

        /// Uploads that a layer answered and that were not
        /// [read to their end](crate::RateLimitLayer::close_denied_uploads): too long, too slow, or
        /// too many at a time. Their connections, or streams of HTTP/2, were closed.
        closed_uploads: Counter "tidegate_closed_uploads_total"
            "Uploads that were answered and not read to their end: too long, too slow or too many.";
    }
    labelled {
        Counter "tidegate_decisions_total"
            "Requests by rule, by what became of them, and by who decided."
            as samples::decisions;
        Counter "tidegate_plan_decisions_total"
            "Decisions about requests with a plan of the rule: a part of tidegate_decisions_total."
            as samples::plan_decisions;
        Counter "tidegate_denials_total"
            "Denied requests by the quota that had no room for them."
            as |rule, publish| samples::by_quota(&rule.denials, publish);
        Counter "tidegate_shadow_denials_total"
            "Requests that a quota of a shadow rule would have denied."
            as |rule, publish| samples::by_quota(&rule.shadow_denials, publish);
        Counter "tidegate_errors_total"
            "Failures of the store, and requests without a key, by kind."
            as samples::errors;
    }
}
