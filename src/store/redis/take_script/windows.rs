//! Counts of windows, in questions and replies. The scripts' side is `read_quota` of each algorithm,
//! `answer` and `answers` of `lua/include/core.lua`, and the usual case of each script.

use std::time::Duration;

use super::{Fields, QuotaReply, ReplyGroup, write};
use crate::algorithm::constants::{
    ALLOWED, DENIED, DENIED_STATE, FIXED_MARK, FIXED_STATE_SIZE, GCRA_MARK, GCRA_STATE_SIZE, SLICE,
};
use crate::algorithm::spec::Windows;
use crate::algorithm::{Algorithm, MODULUS_MASK};
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
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

/// The answer to one take under one quota.
pub(in crate::store::redis) struct Told {
    code: u64,
    /// The serial number if it was charged, and how long to wait if it was denied.
    number: u64,
    remaining: u64,
    reset_after: u64,
}

impl Told {
    pub(in crate::store::redis) fn read(
        windows: &Windows,
        now: u64,
        cost: u64,
        fields: &mut Fields<'_>,
    ) -> Option<Self> {
        let code = fields.integer::<1>()?;
        if code >= DENIED_STATE {
            return Self::by_state(windows, code, now, cost, fields);
        }
        let takes = fields.integer::<2>()?;
        let told = Self {
            code,
            number: fields.number()?,
            remaining: fields.number()?,
            reset_after: fields.number()?,
        };
        (takes == 1).then_some(told)
    }

    /// By the state that it left, or by what denied it of one: behind the mark stand the serial
    /// number, or the units in it, and the instant.
    pub(in crate::store::redis) fn by_state(
        windows: &Windows,
        mark: u64,
        now: u64,
        cost: u64,
        fields: &mut Fields<'_>,
    ) -> Option<Self> {
        let (number, stamp) = (fields.number()?, fields.number()?);
        // No other field is needed: the rule, until when they are needed, and since when
        // takes are given back.
        let size = match (windows.algorithm(), mark) {
            (Algorithm::Gcra, GCRA_MARK) => GCRA_STATE_SIZE as usize,
            (Algorithm::FixedWindow, FIXED_MARK) => FIXED_STATE_SIZE as usize,
            (Algorithm::Gcra | Algorithm::FixedWindow, DENIED_STATE) => 0,
            (Algorithm::Gcra | Algorithm::FixedWindow, _)
            | (Algorithm::SlidingLog | Algorithm::SlidingWindow, _) => return None,
        };
        fields.take(size.saturating_sub(1 + 4 * 7))?;
        let (start, is_denied) = (fields.number()?, mark == DENIED_STATE);
        let units = if is_denied { number } else { fields.number()? };
        let limit = windows.algorithm().limit(windows.quotas.first()?);
        let time_to = |limit| windows.fits_at(start, units, limit).saturating_sub(now);
        let (code, number) = match is_denied {
            true => (DENIED, time_to(limit.saturating_sub(cost))),
            false => (ALLOWED, number),
        };
        let told = Self {
            code,
            number,
            remaining: limit.saturating_sub(windows.used(now, start, units)),
            reset_after: time_to(0),
        };
        (stamp == now).then_some(told)
    }

    pub(in crate::store::redis) fn decision(
        &self,
        windows: &Windows,
        now: u64,
        cost: u64,
    ) -> Option<Decision> {
        let [quota] = &*windows.quotas else {
            return None;
        };
        let (verdict, receipt) = match self.code {
            ALLOWED => {
                let receipt = Receipt::new(now, self.number & MODULUS_MASK, cost);
                (Verdict::Allowed, Some(receipt))
            }
            DENIED => {
                let retry_after = Duration::from_micros(self.number);
                (Verdict::Denied { retry_after }, None)
            }
            _ => return None,
        };
        let max = windows.algorithm().limit(quota);
        let state = QuotaState::from_micros(self.remaining.min(max), self.reset_after);
        let (source, state) = (Source::Redis, state.with_max(max));
        let decision = Decision::from_state(verdict, source, cost, state, receipt);
        Some(decision)
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
