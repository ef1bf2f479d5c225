use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::text::{Text, either};
use super::time_unit::TimeUnit;
use crate::algorithm::Algorithm;
use crate::quota::{Quota, QuotaError};

/// An element of the list `quotas`, or the quota that a rule's table describes itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct QuotaTable {
    /// The name that clients see.
    pub(super) name: Option<String>,
    /// Units in the window.
    pub(super) max_count: Option<Spanned<Number>>,
    /// The window as a duration: `"10s"`.
    pub(super) window: Option<Spanned<Text<Duration>>>,
    /// The window as a number of `window_time_unit`.
    pub(super) window_time: Option<Spanned<Number>>,
    /// The unit of `window_time`: `"MINUTES"`.
    pub(super) window_time_unit: Option<Spanned<Text<TimeUnit>>>,
    /// Units at once, under `algorithm = "gcra"`.
    pub(super) burst: Option<Spanned<Number>>,
}

impl QuotaTable {
    /// The name of the quota, if it has one, and the quota.
    pub(super) fn into_named_quota(
        table: Spanned<Self>,
        algorithm: Algorithm,
    ) -> Result<(Option<String>, Quota), Mistake> {
        let span = table.span();
        let mut table = table.into_inner();
        let name = table.name.take();
        Ok((name, table.into_quota(span, algorithm)?))
    }

    /// Whether the table says nothing of a quota.
    pub(super) fn is_empty(&self) -> bool {
        self.max_count.is_none()
            && self.window.is_none()
            && self.window_time.is_none()
            && self.window_time_unit.is_none()
            && self.burst.is_none()
    }

    /// The quota. `span` is that of the whole table.
    pub(super) fn into_quota(
        self,
        span: Range<usize>,
        algorithm: Algorithm,
    ) -> Result<Quota, Mistake> {
        let Some(max) = self.max_count else {
            return mistake(span, "a window without max-count, expected both");
        };
        let (window, window_span) = match (self.window, self.window_time, self.window_time_unit) {
            (Some(window), None, None) => {
                let span = window.span();
                (window.into_inner().0, span)
            }
            (None, Some(time), Some(unit)) => {
                let Text(TimeUnit(millis)) = unit.into_inner();
                let window = millis.saturating_mul(time.get_ref().0);
                (Duration::from_millis(window), time.span())
            }
            (None, Some(time), None) => {
                return mistake(
                    time.span(),
                    "a time without its unit, expected window-time-unit",
                );
            }
            (None, None, Some(unit)) => {
                return mistake(unit.span(), "a unit without its time, expected window-time");
            }
            (Some(window), _, _) => {
                return mistake(
                    window.span(),
                    "both window and window-time, expected one of them",
                );
            }
            (None, None, None) => {
                return mistake(max.span(), "a max-count without a window, expected both");
            }
        };
        let max_span = max.span();
        let quota = Quota::new(max.into_inner().0, window).or_else(|error| match error {
            QuotaError::MaxTooLarge => mistake(max_span, error),
            _ => mistake(window_span, error),
        })?;
        match self.burst {
            None => Ok(quota),
            Some(burst) if !algorithm.has_burst() => {
                let with_one = Algorithm::ALL.into_iter().filter(|it| it.has_burst());
                let message = format!("only algorithm = {} has a burst", either(with_one));
                mistake(burst.span(), message)
            }
            Some(burst) => {
                let with_burst = quota.with_burst(burst.get_ref().0);
                with_burst.or_else(|error| mistake(burst.span(), error))
            }
        }
    }
}
