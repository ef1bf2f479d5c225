/// How permits are counted: the ways that Redisson's rate limiter had one after the other.
///
/// Only of the third is a grant known by its own: of the others a dropped future gives nothing back.
///
/// All processes that share a limiter use the same one. They keep the same keys, so a fleet may go from one to the next;
/// what was granted counts on, or for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Generation {
    /// As Redisson 3.10: the permits that are left, in a value that expires an interval after the first grant. A fixed
    /// window: around its end up to twice the rate is granted within an interval. Whoever is denied comes back when the
    /// window ends. No [release](super::RateLimiter::release), no [fair](super::RateLimiter::fair) waiting.
    First,
    /// As the versions after it: grants in a sorted set, a sliding window. Whoever is denied comes back when the earliest
    /// grant leaves, which need not be enough for them. No release, no fair waiting.
    Second,
    /// As Redisson since 3.30, with what it gets wrong mended: a sliding window, and whoever is denied comes back when
    /// as many permits as they want have left.
    #[default]
    Third,
}
