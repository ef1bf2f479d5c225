use std::sync::Arc;

use super::decisions::check_capabilities;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::rule::{Rule, Subject};
use crate::store::Store;
use crate::take::Take;

/// Whose count a [check](crate::Limits::check), a [peek](crate::Limits::peek) or a
/// [reset](crate::Limits::reset) is about: a key, or under a [joint](Rule::joint) rule the keys of
/// its subjects by their names.
///
/// A check needs the key of each subject, except for those that
/// [may be absent](Subject::skip_absent), which are not counted then, and those that count
/// [everyone](crate::key::Everyone). A peek and a reset are about the subjects that are named, one
/// or several. A joint rule with one subject takes its key alone, too.
///
/// An empty text is a key as any other: `""` names another count than `Key::default()`, which is no
/// key, that of a rule or a [`call`](crate::Limits::call) to which nobody gave one.
///
/// ```
/// use tidegate::key::{Bearer, Everyone};
/// use tidegate::rule::Subject;
/// use tidegate::{Key, Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let user = Subject::new("user", Bearer).limit(Quota::per_minute(10));
/// let all = Subject::new("everyone", Everyone).limit(Quota::per_minute(5_000));
/// let limits = Limits::new([Rule::joint("api", [user, all])?]);
///
/// let alice = [("user", Bearer.key("secret"))];
/// limits.check("api", alice.clone()).await?;
/// let left = limits.peek("api", alice.clone()).await?.expect("there is a rule");
/// assert_eq!(left.remaining(), 9);
/// assert!(limits.reset("api", alice).await?);
/// assert_ne!(Key::from(""), Key::default());
/// # Ok(())
/// # }
/// ```
///
/// Keys of several types, or so many as a request has, are collected:
///
/// ```
/// use std::net::IpAddr;
/// use tidegate::Key;
/// use tidegate::layer::SubjectKeys;
///
/// fn keys(address: IpAddr, user: Option<&str>) -> SubjectKeys {
///     let user = user.map(|user| ("user", Key::from(user)));
///     user.into_iter().chain([("address", Key::from(address))]).collect()
/// }
/// # let _ = keys;
/// ```
#[derive(Debug, Clone)]
pub struct SubjectKeys(Given);

#[derive(Debug, Clone)]
enum Given {
    One(Key),
    Named(Vec<(Box<str>, Key)>),
}

impl<K: Into<Key>> From<K> for SubjectKeys {
    fn from(key: K) -> Self {
        Self(Given::One(key.into()))
    }
}

impl<K: Into<Key>, const N: usize> From<[(&str, K); N]> for SubjectKeys {
    fn from(keys: [(&str, K); N]) -> Self {
        keys.into_iter().collect()
    }
}

impl<'a, K: Into<Key>> FromIterator<(&'a str, K)> for SubjectKeys {
    fn from_iter<I: IntoIterator<Item = (&'a str, K)>>(keys: I) -> Self {
        let keys = keys.into_iter();
        let keys = keys.map(|(name, key)| (name.into(), key.into()));
        Self(Given::Named(keys.collect()))
    }
}

impl SubjectKeys {
    /// A take of the subjects that are named, for a store that decides such takes.
    pub(crate) fn take_asked(
        self,
        rule: Arc<Rule>,
        store: &Arc<dyn Store>,
    ) -> Result<Take, StoreError> {
        let take = self.take(rule);
        let wrong = |message| StoreError::new(StoreErrorKind::Configuration, message);
        let take = take.map_err(wrong)?;
        check_capabilities(store, &take)?;
        Ok(take)
    }

    /// A take of the subjects that are named. The error says what is wrong with the names.
    fn take(self, rule: Arc<Rule>) -> Result<Take, String> {
        match self.0 {
            Given::One(key) if rule.subjects().is_empty() => Ok(Take::new(rule, key)),
            keys => Ok(Take::joint(Arc::clone(&rule), keys.by_subject(&rule)?)),
        }
    }

    /// The only key that is named, with the name of its subject, which is empty without one.
    pub(crate) fn only(self, rule: Option<&Rule>) -> Result<(Box<str>, Key), String> {
        let mut named = match (self.0, rule) {
            (Given::One(key), None) => return Ok(("".into(), key)),
            (Given::One(key), Some(rule)) if rule.subjects().is_empty() => {
                return Ok(("".into(), key));
            }
            (Given::Named(named), None) => named,
            (keys, Some(rule)) => {
                let keys = keys.by_subject(rule)?.into_iter();
                let named = rule.subjects().iter().zip(keys);
                let named = named.filter_map(|(it, key)| Some((it.name().into(), key?)));
                named.collect()
            }
        };
        match named.len() {
            1 => Ok(named.remove(0)),
            keys => Err(format!("{keys} keys, expected that of one subject")),
        }
    }

    /// The only key that has this name in lists of operators' keys; `None` if no key has it.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (subject, key) = Key::split_subject(name);
        let key = Key::from_text(key)?;
        Some(subject.map_or(key.clone().into(), |it| [(&*it, key)].into()))
    }

    /// The take over all subjects that cannot be absent. `is_everyone` says which of them need no
    /// key, beside those that say so themselves.
    pub(super) fn take_of_all(
        self,
        rule: Arc<Rule>,
        is_everyone: impl Fn(&Subject) -> bool,
    ) -> Result<Take, String> {
        if rule.subjects().is_empty() {
            return self.take(rule);
        }
        let mut keys = self.0.by_subject(&rule)?;
        // The only subject of a rule has the key that it is given.
        let has_others = keys.len() > 1;
        for (subject, key) in rule.subjects().iter().zip(&mut keys) {
            if has_others && is_everyone(subject) || subject.is_everyone() {
                *key = Some(Key::default());
            }
            if key.is_none() && !subject.may_be_absent() {
                let (path, name) = (rule.path(), subject.name());
                return Err(format!(
                    "the check of {path:?} has no key of the subject {name:?}"
                ));
            }
        }
        Ok(Take::joint(rule, keys))
    }
}

impl Given {
    /// The key of each subject of a joint rule that is given one.
    fn by_subject(self, rule: &Rule) -> Result<Box<[Option<Key>]>, String> {
        let (path, subjects) = (rule.path(), rule.subjects());
        let named = match (self, subjects) {
            (Self::Named(_), []) => {
                return Err(format!(
                    "the rule {path:?} has one subject without a name, expected its key alone"
                ));
            }
            (Self::Named(named), _) => named,
            (Self::One(key), [only]) => vec![(only.name().into(), key)],
            (Self::One(_), _) => Vec::new(),
        };
        let names = |is_named: fn(&Subject) -> bool| {
            let named = subjects.iter().filter(|subject| is_named(subject));
            let names: Vec<_> = named.map(Subject::name).collect();
            names.join(", ")
        };
        if named.is_empty() {
            return Err(format!(
                "the rule {path:?} has several subjects, expected a key by the name of each: {}",
                names(|subject| !subject.is_everyone())
            ));
        }
        let mut keys: Box<[_]> = subjects.iter().map(|_| None).collect();
        for (name, key) in named {
            let Some(place) = rule.place_of_subject(&name) else {
                return Err(format!(
                    "the rule {path:?} has no subject {name:?}, expected one of: {}",
                    names(|_| true)
                ));
            };
            if keys[place].is_some() {
                return Err(format!(
                    "two keys of the subject {name:?} of the rule {path:?}, expected one"
                ));
            }
            let is_everyone = subjects[place].is_everyone();
            keys[place] = Some(if is_everyone { Key::default() } else { key });
        }
        Ok(keys)
    }
}
