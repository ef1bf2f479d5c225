use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::error::{KeyError, StoreError};
use crate::rule::Rule;

type BoxError = Box<dyn Error + Send + Sync>;

/// A request for which no decision could be made, or whose handler failed.
///
/// Drop it before the callback returns: an error of the handler that is to
/// [go on](super::Recovery::Propagate) must have no other owner by then.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failed {
    /// The rule that was to decide.
    pub rule: Arc<Rule>,
    /// The request without its body.
    pub head: Parts,
    cause: Cause,
}

#[derive(Clone)]
enum Cause {
    Key(KeyError),
    Store(StoreError),
    Inner(Arc<dyn Any + Send + Sync>, &'static str),
}

impl Failed {
    pub(crate) fn key(rule: Arc<Rule>, head: Parts, error: KeyError) -> Self {
        let cause = Cause::Key(error);
        Self { rule, head, cause }
    }

    pub(crate) fn store(rule: Arc<Rule>, head: Parts, error: StoreError) -> Self {
        let cause = Cause::Store(error);
        Self { rule, head, cause }
    }

    pub(crate) fn inner<E: Send + Sync + 'static>(
        rule: Arc<Rule>,
        head: Parts,
        error: Arc<E>,
    ) -> Self {
        let cause = Cause::Inner(error, type_name::<E>());
        Self { rule, head, cause }
    }

    /// Whether it is the handler that failed, after the request had been allowed.
    #[must_use]
    pub const fn is_inner(&self) -> bool {
        matches!(self.cause, Cause::Inner(..))
    }

    /// The error if it is of this type, or was caused by one that is.
    ///
    /// [`StoreError`] and [`KeyError`] are why no decision could be made. An error of the handler is
    /// found by its own type, also inside of a boxed error; what caused it only if it is boxed.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &self.cause {
            Cause::Key(error) => in_chain(error),
            Cause::Store(error) => in_chain(error),
            Cause::Inner(error, _) => match error.downcast_ref::<BoxError>() {
                Some(boxed) => in_chain(&**boxed),
                None => error.downcast_ref(),
            },
        }
    }
}

fn in_chain<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.rule.path();
        match &self.cause {
            Cause::Key(error) => write!(f, "no key for \"{path}\": {error}"),
            Cause::Store(error) => write!(f, "no decision for \"{path}\": {error}"),
            Cause::Inner(error, name) => match error.downcast_ref::<BoxError>() {
                Some(boxed) => write!(f, "\"{path}\" failed: {boxed}"),
                None => write!(f, "\"{path}\" failed with a {name}"),
            },
        }
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("cause", &format_args!("{self}"))
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}
