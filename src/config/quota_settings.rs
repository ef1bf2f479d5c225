use std::ops::Range;

use toml::Spanned;

use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::quota_table::QuotaTable;
use super::text::either;
use crate::algorithm::{Algorithm, Counting, SlidingWindow};
use crate::quota::Quota;
use crate::rule::{Policy, Rule, RuleError};

/// What messages about missing or contradictory quotas expect.
const EXPECTED: &str = "either max-count and window, or quotas";

/// What the table of a rule and that of a candidate say of their quotas.
pub(super) struct QuotaSettings {
    /// The quota that the table describes itself.
    pub(super) own: QuotaTable,
    pub(super) list: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    pub(super) algorithm: Algorithm,
    pub(super) sub_windows: Option<Spanned<Number>>,
}

impl QuotaSettings {
    /// The rule of a path with these quotas, or why there is none. `span` is that of the table.
    pub(super) fn into_rule(
        self,
        path: &str,
        span: &Range<usize>,
    ) -> Result<Result<Rule, RuleError>, Mistake> {
        let quotas = quotas(self.own, self.list, span, self.algorithm)?;
        let counting = counting(self.algorithm, self.sub_windows);
        match rule(path, quotas) {
            Ok(rule) => Ok(Ok(rule.with_algorithm(counting?))),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// A quota, and its name if the file gives it one.
type NamedQuota = (Option<String>, Quota);

/// The quotas of the list, or the one that the table describes itself.
fn quotas(
    own: QuotaTable,
    list: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    span: &Range<usize>,
    algorithm: Algorithm,
) -> Result<Vec<NamedQuota>, Mistake> {
    match (list, own.is_empty()) {
        (None, false) => Ok(vec![(None, own.into_quota(span.clone(), algorithm)?)]),
        (Some(list), true) => {
            let tables = list.into_inner().into_iter();
            tables
                .map(|table| QuotaTable::into_named_quota(table, algorithm))
                .collect()
        }
        (None, true) => mistake(span.clone(), format!("no quota, expected {EXPECTED}")),
        (Some(list), false) => {
            let message = format!("two ways at once, expected {EXPECTED}");
            mistake(list.span(), message)
        }
    }
}

/// Quotas without a name get the names that they have in code.
fn rule(path: &str, quotas: Vec<NamedQuota>) -> Result<Rule, RuleError> {
    let only = quotas.len() == 1;
    let policies = quotas.into_iter().map(|(name, quota)| match name {
        Some(name) => Policy::new(&name, quota),
        None => Policy::unnamed(path, quota, only),
    });
    Rule::with_policies(path, policies)
}

/// The algorithm with its sub-windows.
fn counting(
    algorithm: Algorithm,
    sub_windows: Option<Spanned<Number>>,
) -> Result<Counting, Mistake> {
    let Some(number) = sub_windows else {
        return Ok(algorithm.into());
    };
    if !algorithm.has_sub_windows() {
        let with_them = Algorithm::ALL.into_iter().filter(|it| it.has_sub_windows());
        let message = format!("only algorithm = {} has sub-windows", either(with_them));
        return mistake(number.span(), message);
    }
    match u16::try_from(number.get_ref().0) {
        Ok(sub_windows @ 1..=SlidingWindow::MAX_SUB_WINDOWS) => {
            Ok(Counting::from(algorithm).sub_windows(sub_windows))
        }
        _ => mistake(
            number.span(),
            format!(
                "expected 1 to {} sub-windows",
                SlidingWindow::MAX_SUB_WINDOWS
            ),
        ),
    }
}
