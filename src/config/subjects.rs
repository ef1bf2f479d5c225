//! The subjects of a rule, and which of them each quota of a file is of.

use std::collections::HashSet;
use std::sync::Arc;

use super::config_error::{ConfigError, shorten_value};
use super::key_names::{NamedKey, is_key, named_key, names_client_ip};
use super::rule_table::policy;
use super::table::Value;
use crate::algorithm::Algorithm;
use crate::key::{ClientIp, KeyExtractor};
use crate::quota::Quota;
use crate::rule::{Policy, Rule, RuleError, Subject};

/// A quota of a file, and what the file says of its subject.
pub(super) struct QuotaEntry<'a> {
    pub(super) table: Value<'a>,
    pub(super) policy: Policy,
    key: Option<NamedKey>,
    subject: Option<&'a str>,
    may_be_absent: bool,
    /// Whether the table of the rule or plan says it, and no list.
    is_of_table: bool,
}

impl<'a> QuotaEntry<'a> {
    /// The one quota of a table, or its max of requests at a time.
    pub(super) fn of_table(table: &Value<'a>, policy: impl Into<Policy>) -> Self {
        Self {
            table: table.clone(),
            policy: policy.into(),
            key: None,
            subject: None,
            may_be_absent: false,
            is_of_table: true,
        }
    }

    /// A quota of a list.
    pub(super) fn read(
        table: Value<'a>,
        algorithm: Algorithm,
        client_ip: Option<&ClientIp>,
    ) -> Result<Self, ConfigError> {
        let name = table.read("name", |name| name.text("a name", Some))?;
        let subject = table.read("subject", |name| {
            name.text("a name", |name| (!name.is_empty()).then_some(name))
        })?;
        let absent = table.read("absent", |absent| {
            absent.text("\"skip\"", |text| (text == "skip").then_some(()))
        })?;
        let mut policy = policy(&table, algorithm)?;
        // Quotas without a name get the names that they have in code.
        if let Some(name) = name {
            policy = policy.named(name);
        }
        policy = table.set("cost", policy, |policy, cost| {
            let cost = checked_cost(cost, algorithm, [policy.quota()])?;
            Ok(policy.with_cost(cost))
        })?;
        if table.read("hidden", Value::boolean)?.unwrap_or(false) {
            policy = policy.hidden();
        }
        Ok(Self {
            key: table.read("key", |names| named_key(names, client_ip))?,
            subject,
            may_be_absent: absent.is_some(),
            is_of_table: false,
            ..Self::of_table(&table, policy)
        })
    }

    /// The text of its key.
    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|(text, _)| &**text)
    }

    /// The key of its number.
    fn field(&self) -> &'static str {
        if self.policy.is_concurrent() {
            "max-concurrent"
        } else {
            "max-count"
        }
    }
}

/// The units of a request. None, or more than a quota can ever admit, are a mistake.
pub(super) fn checked_cost(
    cost: &Value<'_>,
    algorithm: Algorithm,
    quotas: impl IntoIterator<Item = Quota>,
) -> Result<u64, ConfigError> {
    let units = cost.number()?;
    let too_small = |quota: &Quota| quota.max() > 0 && units > algorithm.limit(quota);
    if units == 0 {
        return Err(cost.mistake("a cost of 0 charges nothing, expected 1 or more"));
    }
    if quotas.into_iter().any(|quota| too_small(&quota)) {
        let message = "more than max-count (or burst), so that no request would ever be allowed";
        return Err(cost.mistake(message));
    }
    Ok(units)
}

/// The subjects of a rule, by the keys and the names that its file gives them.
pub(super) struct Subjects {
    known: Vec<KnownSubject>,
    /// Whether there are several counts: of several subjects, or at several costs.
    is_joint: bool,
}

struct KnownSubject {
    /// What `subject` says.
    name: Option<String>,
    /// The text of the key; `None` for that of a rule which says none.
    key: Option<String>,
    /// Whether its key is that of the rule, which code may replace.
    is_own: bool,
    /// The key, if it is not that of the rule.
    extractor: Option<Arc<dyn KeyExtractor>>,
    may_be_absent: bool,
}

impl KnownSubject {
    fn name(&self) -> &str {
        let name = self.name.as_deref().or(self.key.as_deref());
        // Code may say whom the rule counts: the name says nothing of that.
        name.unwrap_or("key")
    }

    /// The subject, without quotas.
    fn subject(&self) -> Subject {
        let subject = Subject::with_key(self.name(), self.extractor.clone());
        if self.may_be_absent {
            subject.skip_absent()
        } else {
            subject
        }
    }

    /// Names it as `subject` of an entry does.
    fn set_name(&mut self, name: &str, entry: &QuotaEntry<'_>) -> Result<(), ConfigError> {
        let shown = shorten_value(name);
        let message = match &self.name {
            Some(other) => {
                let other = shorten_value(other);
                format!(
                    "\"{other}\" and \"{shown}\" are names for one key, expected one of them, or \
                     the key of the other"
                )
            }
            None if is_key(name) => format!(
                "\"{shown}\" is the name of another key, expected key = \"{shown}\", or a name of \
                 your own"
            ),
            None => {
                self.name = Some(name.to_owned());
                return Ok(());
            }
        };
        Err(entry.table.mistake_in("subject", message))
    }
}

impl Subjects {
    /// The subjects of a rule's quotas, and for each quota the place of its own. `own_key` is the
    /// text of the rule's key.
    pub(super) fn of_rule(
        entries: &[QuotaEntry<'_>],
        own_key: Option<&str>,
    ) -> Result<(Self, Vec<usize>), ConfigError> {
        let mut subjects = Self {
            known: Vec::new(),
            is_joint: entries.iter().any(|entry| entry.policy.cost().is_some()),
        };
        let mut places = vec![0; entries.len()];
        // An entry that says a name alone means one of the keys of the others, or the rule's own.
        let says_a_name_alone =
            |entry: &QuotaEntry<'_>| entry.key.is_none() && entry.subject.is_some();
        let depends = |entry: &QuotaEntry<'_>| says_a_name_alone(entry) || entry.is_of_table;
        for is_dependent in [false, true] {
            for (entry, place) in entries.iter().zip(&mut places) {
                if depends(entry) == is_dependent {
                    *place = subjects.add(entry, own_key)?;
                }
            }
        }
        let mut with_permits = HashSet::new();
        for (entry, place) in entries.iter().zip(&places) {
            if entry.policy.is_concurrent() && !with_permits.insert(*place) {
                let message = "a second max of requests at a time for one key, expected one";
                return Err(entry.table.mistake_in(entry.field(), message));
            }
        }
        subjects.is_joint |= subjects.known.len() > 1;
        for (entry, place) in entries.iter().zip(&places) {
            let name = subjects.known[*place].name();
            if subjects.of_name(name) != Some(*place) {
                let message = format!(
                    "two keys have the name \"{}\", expected another name for one of them: \
                     subject = \"..\"",
                    shorten_value(name)
                );
                return Err(entry.table.mistake_in("key", message));
            }
        }
        if let Some(entry) = entries.iter().rfind(|entry| entry.may_be_absent)
            && subjects.known.iter().all(|known| known.may_be_absent)
        {
            let mistake = RuleError::NoCertainSubject;
            return Err(entry.table.mistake_in("absent", mistake));
        }
        Ok((subjects, places))
    }

    /// The place of the subject of a rule's quota.
    fn add(&mut self, entry: &QuotaEntry<'_>, own_key: Option<&str>) -> Result<usize, ConfigError> {
        let key = entry.key().or(own_key);
        let named = entry.subject.filter(|_| entry.key.is_none());
        let named = named.and_then(|name| self.of_name(name));
        // Without a key of the rule, it is of the only one that there is.
        let needs_known = entry.is_of_table && own_key.is_none() && !self.known.is_empty();
        let only = (needs_known && self.known.len() == 1).then_some(0);
        let place = named
            .or_else(|| self.of_key(key))
            .or(only)
            .unwrap_or(self.known.len());
        if place == self.known.len() && needs_known {
            let message = "each quota has a key of its own, expected an entry of quotas in place \
                 of this: { max-concurrent = 4, key = \"..\" }";
            return Err(entry.table.mistake_in(entry.field(), message));
        }
        if place == self.known.len() {
            let is_own = key == own_key;
            let key_of_entry = entry.key.as_ref().filter(|_| !is_own);
            self.known.push(KnownSubject {
                name: None,
                key: key.map(str::to_owned),
                is_own,
                extractor: key_of_entry.map(|(_, extractor)| Arc::clone(extractor)),
                may_be_absent: false,
            });
        }
        let known = &mut self.known[place];
        // The last of its alternatives decides, and a joined key has each of its parts.
        let is_in_all = |key: &str| {
            let mut last = key.split(", ").map(|it| it.rsplit(" | ").next());
            last.all(|it| it.is_some_and(|it| ["everyone", "peer-ip", "method"].contains(&it)))
        };
        if entry.may_be_absent && known.key.as_deref().is_some_and(is_in_all) {
            let message = "every request has this key, expected \"skip\" beside one that some leave \
                 out, such as header:x-user";
            return Err(entry.table.mistake_in("absent", message));
        }
        known.may_be_absent |= entry.may_be_absent;
        if let Some(name) = entry.subject.filter(|name| *name != known.name()) {
            known.set_name(name, entry)?;
        }
        Ok(place)
    }

    fn of_name(&self, name: &str) -> Option<usize> {
        let mut known = self.known.iter();
        known.position(|known| known.name() == name)
    }

    fn of_key(&self, key: Option<&str>) -> Option<usize> {
        let mut known = self.known.iter();
        known.position(|known| known.key.as_deref() == key)
    }

    /// Whether a quota is of the rule's own key.
    pub(super) fn has_own(&self) -> bool {
        self.known.iter().any(|known| known.is_own)
    }

    /// Whether a quota counts by the client's address.
    pub(super) fn have_client_ip(&self) -> bool {
        let mut keys = self.known.iter().filter_map(|known| known.key.as_deref());
        keys.any(names_client_ip)
    }

    /// The key of a rule of one subject, if it is not the rule's own.
    pub(super) fn only_key(&self) -> Option<Arc<dyn KeyExtractor>> {
        let first = self.known.first().filter(|_| !self.is_joint);
        first?.extractor.clone()
    }

    /// The rule of a path with these quotas, each with the place of its subject.
    pub(super) fn rule(
        &self,
        path: &str,
        policies: Vec<(usize, Policy)>,
    ) -> Result<Rule, RuleError> {
        if !self.is_joint {
            return Rule::with_policies(path, policies.into_iter().map(|(_, policy)| policy));
        }
        let subjects = self.known.iter().enumerate().filter_map(|(place, known)| {
            let mut own = policies.iter().filter(|(of, _)| *of == place).peekable();
            own.peek()?;
            let limit = |subject: Subject, (_, policy): &(_, Policy)| subject.limit(policy.clone());
            Some(own.fold(known.subject(), limit))
        });
        Rule::joint(path, subjects)
    }

    /// A quota of a plan, with the place of its subject among those of the rule.
    pub(super) fn resolve(&self, entry: QuotaEntry<'_>) -> Result<(usize, Policy), ConfigError> {
        let place = self.place_of(&entry)?;
        if entry.policy.cost().is_some() && !self.is_joint {
            let message = "no quota of the rule has a cost of its own, expected one there, too";
            return Err(entry.table.mistake_in("cost", message));
        }
        let mut policy = entry.policy;
        if self.is_joint {
            policy = policy.with_subject(self.known[place].name());
        }
        Ok((place, policy))
    }

    fn place_of(&self, entry: &QuotaEntry<'_>) -> Result<usize, ConfigError> {
        let known = &self.known;
        let unknown = |field: &str, what: &str| {
            let names = known
                .iter()
                .map(|it| format!("\"{}\"", shorten_value(it.name())));
            let names = names.collect::<Vec<_>>().join(", ");
            let message = format!("no quota of the rule {what}, expected one of {names}");
            entry.table.mistake_in(field, message)
        };
        let by_key = entry.key().map(|key| {
            let of_key = self.of_key(Some(key));
            of_key.ok_or_else(|| unknown("key", "has this key"))
        });
        let by_name = entry.subject.map(|name| {
            let of_name = self.of_name(name);
            of_name.ok_or_else(|| unknown("subject", "has this subject"))
        });
        match (by_key.transpose()?, by_name.transpose()?) {
            (Some(key), Some(name)) if key != name => {
                let message = "this subject has another key, expected either a key or a subject";
                Err(entry.table.mistake_in("subject", message))
            }
            (Some(place), _) | (None, Some(place)) => Ok(place),
            (None, None) if known.len() == 1 => Ok(0),
            (None, None) => {
                let own = known.iter().position(|known| known.is_own);
                own.ok_or_else(|| unknown(entry.field(), "is without a key"))
            }
        }
    }
}
