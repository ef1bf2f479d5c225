//! The scripts that limiters on Redis call.

use crate::connection::{Library, includes, scripts};

/// The files of `lua/include/` that these scripts have. A new file has to be listed here.
const LIBRARY: Library = Library {
    includes: includes!["generation", "permits", "give_way", "permits_wait",],
    constants: "",
};

scripts! {
    OF_LIMITERS of LIBRARY =>
    /// Grants permits of a rate limiter.
    LIMITER_ACQUIRE = with_deadline("limiter/acquire.lua");
    /// Grants permits in the order in which callers came.
    LIMITER_ACQUIRE_FAIR = with_deadline("limiter/acquire_fair.lua");
    /// Gives back grants, and ends fair waiting.
    LIMITER_GIVE_BACK = new("limiter/give_back.lua");
    /// Gives back permits.
    LIMITER_RELEASE = new("limiter/release.lua");
    /// How many permits there are.
    LIMITER_AVAILABLE = new("limiter/available.lua");
    /// Sets a rate. A call that is held up must not make an old choice of a rate look new.
    LIMITER_CONFIGURE = with_deadline("limiter/configure.lua");
    /// Lets a rate be forgotten.
    LIMITER_EXPIRE = new("limiter/expire.lua");
    /// Forgets a rate.
    LIMITER_DELETE = new("limiter/delete.lua");
    /// How many permits a fixed window has.
    LIMITER_AVAILABLE_FIRST = new("limiter/available_first.lua");
    /// Grants permits of a fixed window.
    LIMITER_FIRST = new("limiter/first.lua");
    /// Grants permits, and sends who is denied back too early.
    LIMITER_SECOND = new("limiter/second.lua");
}
