//! Counts of windows, in questions and replies. The scripts' side is `read_quota` of each algorithm,
//! `answer` and `answers` of `lua/include/core.lua`, and the usual case of each script.

use super::{QuotaReply, ReplyGroup, write};
use crate::algorithm::constants::SLICE;
use crate::algorithm::spec::Windows;
use crate::algorithm::{Algorithm, MODULUS_MASK};
use crate::decision::{Decision, QuotaState, Receipt, Source};
use crate::quota::Quota;

/// What a question says of such a count: how long a key lives, and its quotas.
pub(super) fn write_spec(windows: &Windows, into: &mut Vec<u8>) {
    let sub_windows = windows.config.number_of_sub_windows();
    into.push(u8::try_from(windows.quotas.len()).expect("at most 16 quotas"));
    let slice = (windows.life / 16).max(SLICE);
    let expiry = (windows.life + 2 * slice).div_ceil(1_000);
    write(&[expiry, slice], into);
    for quota in &windows.quotas {
        let numbers = windows.algorithm().script_numbers(quota, sub_windows);
        write(&[quota.max(), quota.window_micros()], into);
        write(&numbers, into);
    }
}

/// The decision on a take before the last `later` units were charged.
pub(super) fn decision(windows: &Windows, group: &ReplyGroup, later: u64) -> Decision {
    let states = group.states.iter().zip(&windows.quotas);
    let states = states.map(|(state, quota)| before(state, windows.algorithm(), quota, later));
    let receipt = group.receipt.as_ref().map(|last| {
        let serial = last.serial().wrapping_sub(later) & MODULUS_MASK;
        Receipt::new(last.stamp(), serial, group.cost)
    });
    Decision::from_states(group.verdict, Source::Redis, group.cost, states, receipt)
}

/// How the quota stood before the last `later` units were charged. It never has more left than its
/// limit, whatever the reply says.
fn before(state: &QuotaReply, algorithm: Algorithm, quota: &Quota, later: u64) -> QuotaState {
    let delay = state.held.map(|held| algorithm.delay(quota, held, later));
    let reset_after = state.reset_after.saturating_sub(delay.unwrap_or(0));
    let (remaining, max) = (
        state.remaining.saturating_add(later),
        algorithm.limit(quota),
    );
    QuotaState::from_micros(remaining.min(max), reset_after).with_max(max)
}
