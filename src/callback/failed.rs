use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::decision::Decision;
use crate::error::{KeyError, KeyErrorKind, StoreError, StoreErrorKind};
use crate::rule::Rule;

type BoxError = Box<dyn Error + Send + Sync>;

/// A request for which no decision could be made, or whose handler failed.
///
/// Drop it before the callback returns. An error of the handler that the callback
/// [propagates](crate::Recovery::Propagate) must have no other owner by then; otherwise the request
/// is answered with a 500.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failed {
    /// The rule that limits the request.
    pub rule: Arc<Rule>,
    /// The request without its body.
    pub head: Parts,
    cause: Cause,
}

/// What failed: the store, the key or the handler.
///
/// ```
/// use tidegate::Failed;
/// use tidegate::callback::FailureKind;
/// use tidegate::key::KeyErrorKind;
/// use tidegate::store::StoreErrorKind;
///
/// fn status(failed: &Failed) -> u16 {
///     match failed.kind() {
///         FailureKind::Key(KeyErrorKind::Client) => 400,
///         FailureKind::Key(_) => 500,
///         FailureKind::Store(StoreErrorKind::Timeout) => 504,
///         _ => 503,
///     }
/// }
/// # let _ = status;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The store could not decide.
    Store(StoreErrorKind),
    /// The request has no key, because of a mistake of the client or of the server.
    Key(KeyErrorKind),
    /// The handler failed, after the request had been allowed.
    Inner,
}

#[derive(Clone)]
pub(crate) enum Cause {
    Key(KeyError),
    /// With the decision that a fallback made in place of the store.
    Store(StoreError, Option<Decision>),
    Inner(Arc<dyn Any + Send + Sync>, &'static str),
}

impl Cause {
    pub(super) fn inner<E: Send + Sync + 'static>(error: Arc<E>) -> Self {
        Self::Inner(error, type_name::<E>())
    }
}

impl Failed {
    pub(crate) const fn new(rule: Arc<Rule>, head: Parts, cause: Cause) -> Self {
        Self { rule, head, cause }
    }

    /// What failed, and how.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        match &self.cause {
            Cause::Key(error) => FailureKind::Key(error.kind()),
            Cause::Store(error, _) => FailureKind::Store(error.kind()),
            Cause::Inner(..) => FailureKind::Inner,
        }
    }

    /// The decision that a [`Fallback`](crate::store::Fallback) made in place of the store. It
    /// applies if the callback [propagates](crate::Recovery::Propagate) the error.
    #[must_use]
    pub const fn fallback(&self) -> Option<&Decision> {
        match &self.cause {
            Cause::Store(_, fallback) => fallback.as_ref(),
            Cause::Key(_) | Cause::Inner(..) => None,
        }
    }

    /// Whether the handler failed, after the request had been allowed.
    #[must_use]
    pub const fn is_inner(&self) -> bool {
        matches!(self.cause, Cause::Inner(..))
    }

    /// The error of the type `E`, if the failure is one or was caused by one.
    ///
    /// Without a decision the failure is a [`StoreError`] or a [`KeyError`]. An error of the
    /// handler is found by its own type, also inside of a `Box<dyn Error + Send + Sync>`. Its
    /// causes are found only if it is boxed.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &self.cause {
            Cause::Key(error) => in_chain(error),
            Cause::Store(error, _) => in_chain(error),
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
            Cause::Store(error, _) => write!(f, "no decision for \"{path}\": {error}"),
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
