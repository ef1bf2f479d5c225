//! What takes add up to, counted from the takes alone: no algorithm is asked about itself.

use std::time::Duration;

use crate::limit::{SPAN, WINDOW, micros};
use crate::traffic::Take;

pub(crate) fn units(takes: &[Take]) -> u64 {
    takes.iter().map(|take| take.cost).sum()
}

/// A sum only grows at a take, so no window holds more than one that ends at a take.
pub(crate) fn most_in_any_window(takes: &[Take]) -> u64 {
    let sums = takes.iter().map(|take| in_window_to(takes, take.at));
    sums.max().unwrap_or(0)
}

/// Units in the window that ends at `end`. What came one whole window ago is outside.
fn in_window_to(takes: &[Take], end: u64) -> u64 {
    let is_in = |take: &&Take| take.at <= end && end < take.at + micros(WINDOW);
    takes.iter().filter(is_in).map(|take| take.cost).sum()
}

/// The sum of the last window over time: for each slot the most in it, so that no peak is lost.
pub(crate) fn sums_of_window(takes: &[Take], slot: Duration) -> Vec<u64> {
    let most = |start| {
        let in_slot = in_slot(takes, start, slot).map(|take| take.at);
        let ends = in_slot.chain([start]);
        ends.map(|end| in_window_to(takes, end)).max().unwrap_or(0)
    };
    starts(slot).map(most).collect()
}

/// The units of each slot.
pub(crate) fn units_by_slot(takes: &[Take], slot: Duration) -> Vec<u64> {
    let units = |start| in_slot(takes, start, slot).map(|take| take.cost).sum();
    starts(slot).map(units).collect()
}

fn in_slot(takes: &[Take], start: u64, slot: Duration) -> impl Iterator<Item = &Take> {
    let slot = start..start + micros(slot);
    takes.iter().filter(move |take| slot.contains(&take.at))
}

fn starts(slot: Duration) -> impl Iterator<Item = u64> {
    let slot = micros(slot);
    (0..micros(SPAN) / slot).map(move |number| number * slot)
}
