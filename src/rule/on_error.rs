/// What happens to a request for which the store could not decide, unless an error callback answers
/// it.
///
/// A rule without a [choice](crate::Rule::with_on_error) behaves as [`OnError::Fallback`] if its
/// store has a [`Fallback`](crate::store::Fallback), and as [`OnError::Respond`] if it has none.
///
/// ```
/// use tidegate::rule::OnError;
/// use tidegate::{Quota, Rule};
///
/// // Searching goes on, unlimited, while Redis cannot be reached.
/// let search = Rule::new("search", [Quota::per_second(100)])?.with_on_error(OnError::Proceed);
/// assert_eq!(search.on_error(), Some(OnError::Proceed));
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnError {
    /// The request is answered with a 503, even if the store has a fallback.
    Respond,
    /// The handler runs, unlimited, even if the store has a fallback.
    Proceed,
    /// A [`Fallback`](crate::store::Fallback) decides, by this process's share of the quotas. If
    /// the store has none, the request is answered with a 503, and the log says so.
    Fallback,
}
