use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::micros::Micros;

/// When which slot has to be looked at: the earliest first.
#[derive(Debug)]
pub(super) struct Due {
    entries: BinaryHeap<Reverse<Entry>>,
    /// That of the first entry; later than any instant if there is none.
    earliest: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    due: Micros,
    at: u32,
}

impl Due {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    pub(super) fn push(&mut self, due: u64, at: u32) {
        if self.entries.len() == self.entries.capacity() {
            // Not twice as many: that would be half empty.
            self.entries.reserve_exact(16 + self.entries.len() / 8);
        }
        let due = due.into();
        self.entries.push(Reverse(Entry { due, at }));
        self.look();
    }

    /// The first one, if it is due.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, u32)> {
        if self.earliest > now {
            return None;
        }
        let Reverse(Entry { due, at }) = self.entries.pop()?;
        self.look();
        Some((due.into(), at))
    }

    /// Keeps one of each of these.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64, u32) -> bool) {
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.retain(|Reverse(entry)| is_kept(entry.due.into(), entry.at));
        entries.sort_unstable();
        entries.dedup();
        self.entries = entries.into();
        self.look();
    }

    fn look(&mut self) {
        let first = self.entries.peek();
        self.earliest = first.map_or(u64::MAX, |Reverse(entry)| entry.due.into());
    }
}

impl Default for Due {
    fn default() -> Self {
        Self {
            entries: BinaryHeap::new(),
            earliest: u64::MAX,
        }
    }
}
