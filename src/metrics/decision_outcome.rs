use crate::decision::{Decision, Verdict};

/// What became of a request that a store decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionOutcome {
    /// The request was admitted, and charged.
    Allowed,
    /// The request was denied, at the end of its wait if it waited.
    Denied,
    /// The request was denied because it costs more than a quota's max: no wait helps.
    Never,
    /// A [shadow rule](crate::Rule::with_shadow) would have denied the request.
    ShadowDenied,
}

impl DecisionOutcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::Never, Self::ShadowDenied];

    pub(crate) fn of(decision: &Decision) -> Self {
        match decision.verdict() {
            Verdict::Allowed => Self::Allowed,
            Verdict::Denied { .. } => Self::Denied,
            Verdict::Never => Self::Never,
        }
    }

    /// The outcome in metrics: `allowed`, `denied`, `never`, `shadow_denied`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Never => "never",
            Self::ShadowDenied => "shadow_denied",
        }
    }
}
