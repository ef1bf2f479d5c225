use super::algorithm_state::AlgorithmState;
use super::lease_end::LeaseEnd;
use crate::quota::Quota;

/// What defines an algorithm: its names, its bounds, its script, and the state that it keeps for a
/// key. Each algorithm's file has one, and the [table](super::table) names them all.
#[cfg_attr(
    not(all(feature = "config", feature = "redis")),
    allow(
        dead_code,
        reason = "scripts are for Redis, and some facts for configuration files"
    )
)]
pub(super) trait AlgorithmDefinition {
    /// Its name in configuration.
    const NAME: &'static str;

    /// What the names of its keys end with, behind the path. No escaped path has a bare `~`.
    const KEY_SUFFIX: &'static str;

    /// Its number in the bytes of a [`Count`](super::Count), which is never another algorithm's.
    const NUMBER: u8;

    /// Its script, a file of the folder `lua/`. It gives the same answers as the state does.
    const SCRIPT: &'static str;

    /// The script that gives back what was charged, a file of the folder `lua/refund/`.
    const REFUND_SCRIPT: &'static str;

    /// Whether its quotas have a burst apart from `max`.
    const HAS_BURST: bool = false;

    /// Whether it divides a window into sub-windows.
    const HAS_SUB_WINDOWS: bool = false;

    /// Whether several takes that are charged together put off the instant at which a quota is
    /// whole again, each by a part of its own. If so, the script's answer to them ends with the
    /// units that each quota's state holds (`TELLS_HELD` in the script), and [`delay`](Self::delay)
    /// says by how much they put it off.
    const TELLS_HELD: bool = false;

    /// Until when units that were taken ahead may be used; `None` if none can be.
    const LEASE_END: Option<LeaseEnd> = None;

    /// The state of one key.
    type State: AlgorithmState;

    /// The most units that may be used at once under this quota, and so the largest cost that ever
    /// fits.
    fn limit(quota: &Quota) -> u64 {
        quota.max()
    }

    /// How long a charge under this quota counts at most, in microseconds.
    fn life(quota: &Quota) -> u64 {
        quota.window_micros()
    }

    /// What a question tells the script about a quota, behind its max and its window.
    fn script_numbers(_quota: &Quota, _sub_windows: u16) -> Vec<u64> {
        Vec::new()
    }

    /// Where [`TELLS_HELD`](Self::TELLS_HELD) is set: by how many microseconds the last `later` of
    /// `held` units put off the instant at which the quota is whole again.
    fn delay(_quota: &Quota, _held: u64, _later: u64) -> u64 {
        0
    }
}
