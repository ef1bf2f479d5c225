/// Timers of Node.js take at most 2^31 - 1 milliseconds: clients on it that are told to wait for
/// longer come again at once.
pub(crate) const MAX_RETRY_AFTER: u64 = 2_147_483;

/// Which header fields tell a client about its limits.
///
/// All have `Retry-After` on denials: seconds, rounded up, never 0, and at most 2,147,483 (24 days).
/// Above that, timers of Node.js overflow, and its clients come again at once. A request that costs
/// more than a quota's max gets none. Of a [busy](crate::decision::Verdict::Busy) rule it is a hint.
/// The other fields are left out where the store's decision tells nothing about the quotas.
///
/// They replace those of the same names that a handler has written, such as an upstream's that a
/// gateway passes on: these are about the limit of the gateway. A handler's own refusal (429, 503,
/// or `grpc-status` 8 and 14) and the answer of a callback keep such fields: if they have one of
/// these names, they get no other but `Retry-After`, which they keep, too. Without one they get all.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Headers, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("api", Duration::from_secs(60), 100)
///     // X-RateLimit-Limit, -Remaining and -Reset, as many older clients read them.
///     .headers(Headers::Legacy);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy` of
    /// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/),
    /// with an item for each quota. The default.
    ///
    /// `r` is the number of units that remain, and `t` the seconds for which they are meant: a
    /// client that spreads them over `t` is not denied, if nobody else asks, and sends no faster
    /// than `max` units per window. `t` is rounded up, and never 0. It is the longer of two times:
    /// the one in which `r` units come at the quota's rate, for an untouched quota the window, and
    /// the one until all units are back, under [`Algorithm::Gcra`](crate::Algorithm::Gcra) until
    /// one more is. Of a [calendar](crate::rule::Policy::calendar) quota it is the end of its
    /// period, none before something of it is used, and the window of its policy is the length of
    /// that.
    ///
    /// On a denial `t` is never later than `Retry-After`, but for waits above 24 days: for a quota
    /// that denied, it ends with it at the latest, and for another quota it is left out if it would
    /// be later. Layers within one
    /// another each add their items. A window that is not a whole number of seconds is left out of
    /// the policy.
    ///
    /// The policy of requests [at a time](crate::Rule::with_max_concurrent) has the quota unit
    /// `concurrent-requests` and no window: `"export-concurrent";q=4;qu="concurrent-requests"`. `r`
    /// is how many more may run, and there is no `t`: nobody knows when one ends.
    #[default]
    Draft11,
    /// The fields as draft 7 had them, for the tightest quota of all layers: `limit=100,
    /// remaining=50, reset=5`. That is the one with the fewest units left; of several, the one that
    /// is replenished last. `reset` is when all of its units are back, 0 if they are, and on a
    /// denial not later than `Retry-After`, but for waits above 24 days. It knows no requests [at a
    /// time](crate::Rule::with_max_concurrent): their number is no limit of a window, so it is not
    /// shown.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` (in seconds from now) and
    /// `RateLimit-Policy` as draft 6 had them, and express-rate-limit: the numbers of
    /// [`Legacy`](Self::Legacy), and the policies of [`Draft7`](Self::Draft7). Draft 11 writes a
    /// `RateLimit-Policy`, too, so layers within one another use one of the two.
    Draft6,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` (in seconds from now), for the tightest
    /// quota of all layers, without the number of requests at a time.
    Legacy,
    /// The fields of [`Legacy`](Self::Legacy), with `X-RateLimit-Reset` as seconds since 1970 by the
    /// clock of this host, as GitHub's API has it: its clients read any other number as an instant
    /// of 1970, and come again at once. Layers within one another use one of the two: an outer layer
    /// with the other one replaces the fields of an inner layer that admitted the request.
    GitHub,
    /// Only `Retry-After`.
    None,
}
