use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::sync::lock;
use crate::waiting::WaitQueues;

/// The charges of one path that this process may still give back, and the queues of the requests
/// that wait for units of their counts. Clones are the same.
///
/// A charge is *open* while its request is in progress under a rule that refunds by the outcome,
/// and while code that may settle it keeps it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenCharges(Arc<OpenChargesInner>);

#[derive(Debug, Default)]
struct OpenChargesInner {
    /// How many charges are open, for readers without the lock.
    open: AtomicUsize,
    /// The number of the last refund.
    last_refund: AtomicU64,
    /// The number of the last refund of the counts whose hash, modulo the length, is the index.
    last_refunds: [AtomicU64; 16],
    /// By the hashes of the counts' names. A count without open charges has no entry.
    counts: Mutex<HashMap<u64, OpenCount>>,
    queues: WaitQueues,
}

/// The open charges of a count.
#[derive(Debug, Default)]
struct OpenCount {
    /// The units of each, and until when they count, in the order in which the charges were opened.
    charges: BTreeMap<u64, (u64, Instant)>,
    /// The units of all of them.
    units: u64,
    /// The number of the last charge.
    last: u64,
    /// The callback for the next charge that is closed.
    on_closed: Option<OnClosed>,
}

/// The callback for a charge that is settled or closed: what its count has used may have changed.
#[derive(Clone)]
pub(crate) struct OnClosed(pub(crate) Arc<dyn Fn() + Send + Sync>);

crate::named::debug_fields!(OnClosed);

impl OpenCharges {
    /// Counts a charge as open until it is closed or its units have ceased to count. `counts` are
    /// the hash of each of its counts and the units there.
    pub(crate) fn open(
        &self,
        counts: impl Iterator<Item = (u64, u64)>,
        life: Duration,
    ) -> OpenCharge {
        let now = Instant::now();
        let until = now.checked_add(life).unwrap_or(now);
        let mut known = lock(&self.0.counts);
        let places = counts.map(|(hash, units)| {
            self.0.open.fetch_add(1, Ordering::Relaxed);
            let count = known.entry(hash).or_default();
            count.last += 1;
            count.units = count.units.saturating_add(units);
            count.charges.insert(count.last, (units, until));
            (hash, count.last)
        });
        OpenCharge {
            charges: self.clone(),
            places: places.collect(),
        }
    }

    /// The units of this count that are open.
    #[inline]
    pub(crate) fn units(&self, hash: u64) -> u64 {
        match self.0.open.load(Ordering::Acquire) {
            0 => 0,
            _ => self.change(hash, |count| count.units).unwrap_or(0),
        }
    }

    /// The units of this count that are open, if there are some. Then the callback is called when
    /// the next of its charges is closed.
    pub(crate) fn watch(&self, hash: u64, on_closed: impl FnOnce() -> OnClosed) -> Option<u64> {
        self.change(hash, |count| {
            count.on_closed = Some(on_closed());
            count.units
        })
    }

    /// The number of the latest refund.
    #[inline]
    pub(crate) fn last_refund(&self) -> u64 {
        self.0.last_refund.load(Ordering::Acquire)
    }

    /// Whether units of this count were given back since the refund of this number. It may also be
    /// true if units of another count were.
    pub(crate) fn refunded_since(&self, refund: u64, hash: u64) -> bool {
        self.last_refund_of(hash).load(Ordering::Acquire) > refund
    }

    fn last_refund_of(&self, hash: u64) -> &AtomicU64 {
        let refunds = &self.0.last_refunds;
        &refunds[hash as usize % refunds.len()]
    }

    fn number_refund(&self, hash: u64) {
        let number = self.0.last_refund.fetch_add(1, Ordering::AcqRel) + 1;
        self.last_refund_of(hash)
            .fetch_max(number, Ordering::Release);
    }

    /// The queues of the requests that wait for units of these counts.
    pub(crate) fn queues(&self) -> &WaitQueues {
        &self.0.queues
    }

    /// Units of this count were given back: the requests that wait for it ask.
    pub(crate) fn refunded(&self, hash: u64) {
        self.number_refund(hash);
        self.0.queues.wake_after_refund(hash);
    }

    /// A permit of this count is released. Where the store announces releases, waiters wake by
    /// that.
    pub(crate) fn released(&self, hash: u64) {
        self.number_refund(hash);
        self.0.queues.wake_after_release(hash);
    }

    /// The count was reset: its open charges count no more, and the requests that wait for it ask.
    pub(crate) fn was_reset(&self, hash: u64) {
        self.change(hash, |count| self.remove(count, |_, _| true));
        self.refunded(hash);
    }

    /// Drops the charges of the count that have ceased to count, and changes it. An empty count is
    /// dropped.
    fn change<T>(&self, hash: u64, change: impl FnOnce(&mut OpenCount) -> T) -> Option<T> {
        let mut counts = lock(&self.0.counts);
        let count = counts.get_mut(&hash)?;
        let first = count.charges.first_key_value();
        if first.is_some_and(|(_, (_, until))| *until <= Instant::now()) {
            let now = Instant::now();
            self.remove(count, |_, until| until <= now);
        }
        let changed = change(count);
        if count.charges.is_empty() {
            counts.remove(&hash);
        }
        Some(changed)
    }

    /// Removes the charges for which `is_over` is true.
    fn remove(&self, count: &mut OpenCount, is_over: impl Fn(u64, Instant) -> bool) {
        let (units, mut removed) = (&mut count.units, 0);
        count.charges.retain(|number, (of, until)| {
            let stays = !is_over(*number, *until);
            if !stays {
                *units = units.saturating_sub(*of);
                removed += 1;
            }
            stays
        });
        // A reader that finds the charges closed also sees the refund.
        self.0.open.fetch_sub(removed, Ordering::Release);
    }
}

/// An open charge, until it is closed or dropped.
#[derive(Debug)]
pub(crate) struct OpenCharge {
    charges: OpenCharges,
    /// The hash of each of its counts, and its number there.
    places: SmallVec<[(u64, u64); 1]>,
}

impl OpenCharge {
    /// The charge is settled. `refunded` returns how many units of its count at this place were
    /// given back, or may have been. Only the first call has an effect.
    pub(crate) fn close(&self, refunded: impl Fn(usize) -> u64) {
        for (at, (hash, own)) in self.places.iter().enumerate() {
            let is_open = |count: &mut OpenCount| count.charges.contains_key(own);
            if self.charges.change(*hash, is_open) != Some(true) {
                continue;
            }
            let refunded = refunded(at);
            if refunded > 0 {
                self.charges.refunded(*hash);
            }
            let is_own = |number, _| number == *own;
            let remove = |count: &mut OpenCount| {
                self.charges.remove(count, is_own);
                count.on_closed.take()
            };
            if let Some(OnClosed(call)) = self.charges.change(*hash, remove).flatten() {
                call();
            }
        }
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        self.close(|_| 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing stays behind of charges over several counts.
    #[test]
    fn a_count_without_charges_has_no_entry() {
        let charges = OpenCharges::default();
        let entries = || lock(&charges.0.counts).len();
        let open =
            |counts: &[(u64, u64)]| charges.open(counts.iter().copied(), Duration::from_secs(60));
        let (settled, dropped) = (open(&[(1, 5), (3, 5)]), open(&[(2, 5), (3, 1)]));
        assert_eq!((entries(), charges.units(3)), (3, 6));
        settled.close(|count| [5, 0][count]);
        settled.close(|_| unreachable!("it is closed"));
        assert_eq!((charges.units(1), charges.units(3)), (0, 1));
        let refunded = [1, 3].map(|hash| charges.refunded_since(0, hash));
        assert_eq!(refunded, [true, false]);
        drop((settled, dropped));
        assert_eq!((entries(), charges.0.open.load(Ordering::Relaxed)), (0, 0));
    }
}
