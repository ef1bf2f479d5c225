use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::quota_settings::QuotaSettings;
use super::quota_table::QuotaTable;
use super::text::Text;
use super::time_unit::TimeUnit;
use crate::algorithm::Algorithm;
use crate::rule::Rule;

/// The value of `shadow` in a rule.
#[derive(Debug)]
pub(super) enum Shadow {
    /// Whether the rule itself is a shadow rule.
    Itself(bool),
    /// A candidate beside the rule: `[rules.<path>.shadow]`.
    Candidate(Box<CandidateTable>),
}

/// The quotas of a candidate. It has the rule's keys and costs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CandidateTable {
    max_count: Option<Spanned<Number>>,
    window: Option<Spanned<Text<Duration>>>,
    window_time: Option<Spanned<Number>>,
    window_time_unit: Option<Spanned<Text<TimeUnit>>>,
    quotas: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    burst: Option<Spanned<Number>>,
    /// Default: the rule's.
    algorithm: Option<Text<Algorithm>>,
    sub_windows: Option<Spanned<Number>>,
}

impl Shadow {
    /// The rule with its shadow. `span` is that of the value.
    pub(super) fn add_to(self, of: Rule, span: Range<usize>) -> Result<Rule, Mistake> {
        Ok(match self {
            Self::Itself(true) => of.into_shadow(),
            Self::Itself(false) => of,
            Self::Candidate(table) => {
                let candidate = table.into_rule(&of, span)?;
                of.with_shadow(candidate)
            }
        })
    }
}

impl CandidateTable {
    fn into_rule(self, of: &Rule, span: Range<usize>) -> Result<Rule, Mistake> {
        let algorithm = self.algorithm.map(|Text(name)| name);
        let settings = QuotaSettings {
            own: QuotaTable {
                name: None,
                max_count: self.max_count,
                window: self.window,
                window_time: self.window_time,
                window_time_unit: self.window_time_unit,
                burst: self.burst,
            },
            list: self.quotas,
            algorithm: algorithm.unwrap_or(of.algorithm().algorithm()),
            sub_windows: self.sub_windows,
        };
        let candidate = settings.into_rule(of.path(), &span)?;
        candidate.or_else(|error| mistake(span, error))
    }
}

impl<'de> Deserialize<'de> for Shadow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShadowVisitor)
    }
}

/// Reads `true`, `false`, or a table.
struct ShadowVisitor;

impl<'de> Visitor<'de> for ShadowVisitor {
    type Value = Shadow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a table with quotas")
    }

    fn visit_bool<E: Error>(self, is_shadow: bool) -> Result<Shadow, E> {
        Ok(Shadow::Itself(is_shadow))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shadow, A::Error> {
        let table = CandidateTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Shadow::Candidate(Box::new(table)))
    }
}
