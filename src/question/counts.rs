//! What a store keeps of a rule. It names no rule: takes carry it to stores.

use std::sync::Arc;

use super::Names;
use crate::algorithm::spec::Spec;
use crate::decision::QuotaState;

/// The counts that a rule's takes are charged in.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    /// For the log.
    pub(crate) path: Arc<str>,
    /// Whether the answers about them are made one: there are several, some have a cost of their own,
    /// or the rule has several subjects.
    pub(crate) is_joint: bool,
    /// Whether no request is denied by them.
    pub(crate) in_shadow: bool,
    /// Whether a fallback may decide.
    pub(crate) falls_back: bool,
    /// The counts in the order of a take: those of permits behind all others.
    pub(crate) list: Box<[RuleCount]>,
    /// The states of all quotas if nothing is counted: they limit nothing, and clients do not see
    /// them.
    pub(crate) untouched: Box<[QuotaState]>,
}

/// A count of a rule: a subject under one cost, or its permits.
#[derive(Debug)]
pub(crate) struct RuleCount {
    /// The place of the subject in the rule.
    pub(crate) subject: usize,
    /// That of its quotas, or 1 for permits; `None` for that of the request.
    pub(crate) cost: Option<u64>,
    /// How it counts.
    pub(crate) spec: Arc<Spec>,
    pub(crate) names: Names,
    /// Which of the rule's quotas these are.
    pub(crate) places: Box<[usize]>,
}
