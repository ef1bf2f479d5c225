/// How permits are counted: Redisson's rate limiter has counted them in three ways.
///
/// All processes that share a limiter must use the same generation. The generations use the same
/// keys, so a fleet can move from one to the next; permits that were granted before keep counting,
/// some of them for longer. Only the third generation can tell grants apart: with the others, a
/// dropped future gives nothing back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Generation {
    /// Redisson 3.10: a fixed window.
    ///
    /// A value holds the remaining permits and expires one interval after the first grant. Around
    /// the end of a window, up to twice the rate is granted within one interval. A denied caller
    /// asks again when the window ends. It supports neither
    /// [`release`](super::RateLimiter::release) nor [`fair`](super::RateLimiter::fair).
    First,
    /// Redisson after 3.10: a sliding window.
    ///
    /// A sorted set holds the grants. A denied caller asks again when the earliest grant expires,
    /// even if too few permits are available then. It supports neither `release` nor `fair`.
    Second,
    /// Redisson since 3.30, with its errors corrected: a sliding window.
    ///
    /// A denied caller asks again when as many permits as it wants have expired.
    #[default]
    Third,
}
