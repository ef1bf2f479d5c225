//! Counts of windows, in questions and replies.

use super::super::holder;
use super::{MAX_NUMBER, SLICE, write};
use crate::algorithm::Algorithm;
use crate::algorithm::spec::{Kind, Spec};
use crate::decision::QuotaState;
use crate::quota::Quota;

/// What a question says of a count: how long a key lives, and its quotas. Of permits it says their
/// lease, who asks, and how many there are.
pub(super) fn encode(spec: &Spec) -> Box<[u8]> {
    let windows = match &spec.kind {
        Kind::Windows(windows) => windows,
        Kind::Calendar(_) => unreachable!("it is written anew for each call"),
        Kind::Permits(permits) => {
            let lease = u64::try_from(permits.lease.as_millis()).unwrap_or(MAX_NUMBER);
            let max = if permits.is_unlimited {
                MAX_NUMBER
            } else {
                permits.max()
            };
            let mut bytes = vec![0];
            write(&[lease, holder::process(), max], &mut bytes);
            return bytes.into();
        }
    };
    let counting = windows.config;
    let mut bytes = vec![u8::try_from(windows.quotas.len()).expect("at most 16 quotas")];
    let into = &mut bytes;
    let slice = (windows.life / 16).max(SLICE);
    let expiry = (windows.life + 2 * slice).div_ceil(1_000);
    write(&[expiry, slice], into);
    for quota in &windows.quotas {
        let algorithm = counting.algorithm();
        write(&[quota.max(), quota.window_micros()], into);
        write(
            &algorithm.script_numbers(quota, counting.number_of_sub_windows()),
            into,
        );
    }
    bytes.into()
}

/// What the reply says about a quota.
pub(super) struct QuotaReply {
    pub(super) remaining: u64,
    pub(super) reset_after: u64,
    /// The units that the quota's state holds, if the answer tells that.
    pub(super) held: Option<u64>,
}

impl QuotaReply {
    /// How the quota stood before the last `later` units were charged. It never has more left than
    /// its limit, whatever the reply says.
    pub(super) fn before(&self, algorithm: Algorithm, quota: &Quota, later: u64) -> QuotaState {
        let delay = self.held.map(|held| algorithm.delay(quota, held, later));
        let reset_after = self.reset_after.saturating_sub(delay.unwrap_or(0));
        let (remaining, max) = (self.remaining.saturating_add(later), algorithm.limit(quota));
        QuotaState::from_micros(remaining.min(max), reset_after).with_max(max)
    }
}
