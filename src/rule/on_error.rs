/// What becomes of a request for which the store made no decision, once no error callback has answered it.
///
/// A rule that [says nothing](crate::Rule::on_error) is answered by a [`Fallback`](crate::store::Fallback) where its store has
/// one, and with a 503 where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnError {
    /// It is answered with a 503, also where there is a fallback.
    Respond,
    /// It goes on to the handler, unlimited, also where there is a fallback.
    Proceed,
    /// A [`Fallback`](crate::store::Fallback) decides, by this process's share of the quotas. Where the store has none, it is
    /// answered with a 503, and the log says so.
    Fallback,
}
