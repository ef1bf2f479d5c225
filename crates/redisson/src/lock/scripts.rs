//! The scripts that locks call.

use crate::connection::{Library, includes, scripts};

/// The files of `lua/include/` that these scripts have. A new file has to be listed here.
const LIBRARY: Library = Library {
    includes: includes!["lock",],
    constants: "",
};

scripts! {
    OF_LOCKS of LIBRARY =>
    /// Takes a lock.
    LOCK_ACQUIRE = new("lock/acquire.lua");
    /// Makes a lock's lease last longer.
    LOCK_RENEW = new("lock/renew.lua");
    /// Gives a lock back.
    LOCK_RELEASE = new("lock/release.lua");
    /// Takes a lock away from its holder.
    LOCK_FORCE = new("lock/force.lua");
    /// Looks at a lock.
    LOCK_LOOK = new("lock/look.lua");
}
