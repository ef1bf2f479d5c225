use std::sync::LazyLock;

use super::script::Script;
use crate::algorithm::Algorithm;

/// The script that decides by this algorithm.
pub(crate) fn algorithm_script(algorithm: Algorithm) -> &'static Script {
    static SCRIPTS: LazyLock<[Script; Algorithm::ALL.len()]> =
        LazyLock::new(|| Algorithm::ALL.map(|algorithm| Script::new(algorithm.script())));
    // `ALL` is in the order of the variants.
    &SCRIPTS[algorithm as usize]
}

/// The script that gives back what was charged by this algorithm.
///
/// It is loaded ahead, although it is called rarely: with its text, a refund costs the server almost
/// twice as much, and one that is sent again because the server does not know the script
/// would lose its place among the takes.
pub(crate) fn refund_script(algorithm: Algorithm) -> &'static Script {
    static SCRIPTS: LazyLock<[Script; Algorithm::ALL.len()]> =
        LazyLock::new(|| Algorithm::ALL.map(|algorithm| Script::new(algorithm.refund_script())));
    // `ALL` is in the order of the variants.
    &SCRIPTS[algorithm as usize]
}

#[cfg(any(feature = "limiter", feature = "lock"))]
macro_rules! scripts {
    ($list:ident: $($(#[$doc:meta])* $name:ident = $file:literal $(, $with:ident)?;)+) => {
        $($(#[$doc])*
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(include_str!(concat!("../../lua/", $file)))$(.$with())?
        });)+

        const $list: &[&LazyLock<Script>] = &[$(&$name),+];
    };
}

/// Those that a connection loads at its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preload {
    /// What stores call. Each script that a server knows makes all others slower by a little, since
    /// its memory is looked through for garbage again and again.
    Stores,
    /// What limiters and locks call, too.
    All,
}

impl Preload {
    pub(super) fn scripts(self) -> impl Iterator<Item = &'static Script> {
        let others: &[&[&LazyLock<Script>]] = match self {
            Self::Stores => &[],
            Self::All => &[
                #[cfg(feature = "limiter")]
                OF_LIMITERS,
                #[cfg(feature = "lock")]
                OF_LOCKS,
            ],
        };
        let others = others.iter().copied().flatten();
        let others = others.map(|script| LazyLock::force(script));
        let of_stores = Algorithm::ALL.map(|one| [algorithm_script(one), refund_script(one)]);
        others.chain(of_stores.into_iter().flatten())
    }
}

/// Forgets what counts under one key of a store. It is called rarely, so it is not loaded ahead:
/// each call carries its text.
pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/reset.lua")));

#[cfg(feature = "limiter")]
scripts! {
    OF_LIMITERS:
    /// Grants permits of a rate limiter.
    LIMITER_ACQUIRE = "limiter/acquire.lua", with_deadline;
    /// Grants permits in the order in which callers came.
    LIMITER_ACQUIRE_FAIR = "limiter/acquire_fair.lua", with_deadline;
    /// Gives back grants, and ends fair waiting.
    LIMITER_GIVE_BACK = "limiter/give_back.lua";
    /// Gives back permits.
    LIMITER_RELEASE = "limiter/release.lua";
    /// How many permits there are.
    LIMITER_AVAILABLE = "limiter/available.lua";
    /// Sets a rate.
    LIMITER_CONFIGURE = "limiter/configure.lua";
    /// Lets a rate be forgotten.
    LIMITER_EXPIRE = "limiter/expire.lua";
    /// Forgets a rate.
    LIMITER_DELETE = "limiter/delete.lua";
    /// How many permits a fixed window has.
    LIMITER_AVAILABLE_FIRST = "limiter/available_first.lua";
    /// Grants permits of a fixed window.
    LIMITER_FIRST = "limiter/first.lua";
    /// Grants permits, and sends who is denied back too early.
    LIMITER_SECOND = "limiter/second.lua";
}

#[cfg(feature = "lock")]
scripts! {
    OF_LOCKS:
    /// Takes a lock.
    LOCK_ACQUIRE = "lock/acquire.lua";
    /// Makes a lock's lease last longer.
    LOCK_RENEW = "lock/renew.lua";
    /// Gives a lock back.
    LOCK_RELEASE = "lock/release.lua";
    /// Takes a lock away from its holder.
    LOCK_FORCE = "lock/force.lua";
    /// Looks at a lock.
    LOCK_LOOK = "lock/look.lua";
    /// Takes one of several permits.
    SEMAPHORE_ACQUIRE = "semaphore/acquire.lua";
    /// Makes a permit's lease last longer.
    SEMAPHORE_RENEW = "semaphore/renew.lua";
    /// Gives a permit back.
    SEMAPHORE_RELEASE = "semaphore/release.lua";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_be_included() {
        for script in Preload::All.scripts() {
            assert!(!script.source.contains("include:"), "{}", script.source);
        }
    }

    #[test]
    fn scripts_that_refuse_late_calls_get_a_deadline() {
        for script in Preload::All.scripts() {
            let refuses = script.source.contains("redis.error_reply('LATE");
            assert_eq!(script.has_deadline, refuses, "{}", script.source);
        }
    }
}
