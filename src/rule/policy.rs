use std::sync::OnceLock;

use bytes::Bytes;
use http::HeaderValue;

use crate::key::escape;
use crate::quota::{Quota, ShortWindow};

/// A quota with the name that clients see in the `RateLimit` fields.
///
/// ```
/// use tidegate::rule::Policy;
/// use tidegate::{Quota, Rule};
///
/// let rule = Rule::with_policies("login", [Policy::new("per-minute", Quota::per_minute(5))])?;
/// assert_eq!(rule.policies()[0].name(), "per-minute");
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    name: String,
    quota: Quota,
}

impl Policy {
    /// A quota with a name. Characters of the name that a header field cannot contain are
    /// percent-encoded.
    #[must_use]
    pub fn new(name: &str, quota: Quota) -> Self {
        let mut safe = String::with_capacity(name.len());
        for char in name.chars() {
            if matches!(char, ' '..='~') && !matches!(char, '"' | '\\') {
                safe.push(char);
            } else {
                escape(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut safe);
            }
        }
        Self { name: safe, quota }
    }

    /// A quota without a name: the only quota of a path is named like the path, one of several like
    /// the path and its window.
    pub(crate) fn unnamed(path: &str, quota: Quota, only: bool) -> Self {
        match only {
            true => Self::new(path, quota),
            false => Self::new(&format!("{path}-{}", ShortWindow(&quota)), quota),
        }
    }

    /// The same name with another quota.
    pub(super) fn with_quota(&self, quota: Quota) -> Self {
        let name = self.name.clone();
        Self { name, quota }
    }

    /// The name: printable ASCII without quotes and backslashes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

/// Texts for clients that depend on nothing but a rule's policies. The first caller that needs one
/// writes it.
#[derive(Clone, Default)]
pub(crate) struct PolicyTexts {
    /// The field `RateLimit-Policy`.
    pub(crate) field: OnceLock<HeaderValue>,
    /// The document of a denial, if there is only one quota that can deny.
    pub(crate) denial: OnceLock<Bytes>,
}
