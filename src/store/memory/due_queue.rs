use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::split_micros::SplitMicros;

/// The slots by the instant at which each has to be looked at, the earliest first.
#[derive(Debug)]
pub(super) struct DueQueue {
    entries: BinaryHeap<Reverse<Entry>>,
    /// The instant of the first entry; `u64::MAX` if there is none.
    earliest: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    due: SplitMicros,
    at: u32,
}

impl DueQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    pub(super) fn push(&mut self, due: u64, at: u32) {
        if self.entries.len() == self.entries.capacity() {
            // Doubling would leave half of it empty.
            self.entries.reserve_exact(16 + self.entries.len() / 8);
        }
        let due = due.into();
        self.entries.push(Reverse(Entry { due, at }));
        self.update_earliest();
    }

    /// Takes out the first entry, if it is due.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, u32)> {
        if self.earliest > now {
            return None;
        }
        let Reverse(Entry { due, at }) = self.entries.pop()?;
        self.update_earliest();
        Some((due.into(), at))
    }

    /// Keeps one of each of the entries that `is_kept` accepts.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64, u32) -> bool) {
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.retain(|Reverse(entry)| is_kept(entry.due.into(), entry.at));
        entries.sort_unstable();
        entries.dedup();
        self.entries = entries.into();
        self.update_earliest();
    }

    fn update_earliest(&mut self) {
        let first = self.entries.peek();
        self.earliest = first.map_or(u64::MAX, |Reverse(entry)| entry.due.into());
    }
}

impl Default for DueQueue {
    fn default() -> Self {
        Self {
            entries: BinaryHeap::new(),
            earliest: u64::MAX,
        }
    }
}
