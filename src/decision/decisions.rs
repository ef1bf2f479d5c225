use super::Decision;

/// The answers to several takes, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decisions(Answers);

/// A single answer, the common case, stays off the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answers {
    One(Decision),
    Many(Vec<Decision>),
}

impl Decisions {
    /// The only answer, if there is exactly one.
    #[must_use]
    pub fn into_single(self) -> Option<Decision> {
        match self.0 {
            Answers::One(decision) => Some(decision),
            Answers::Many(mut decisions) if decisions.len() == 1 => decisions.pop(),
            Answers::Many(_) => None,
        }
    }
}

impl From<Decision> for Decisions {
    fn from(decision: Decision) -> Self {
        Self(Answers::One(decision))
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        Self(Answers::Many(decisions.into_iter().collect()))
    }
}

impl std::ops::Deref for Decisions {
    type Target = [Decision];

    fn deref(&self) -> &[Decision] {
        match &self.0 {
            Answers::One(decision) => std::slice::from_ref(decision),
            Answers::Many(decisions) => decisions,
        }
    }
}
