use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::question::CountAsk;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// Until when the store inside denies keys, as far as this process was told, by the names of their
/// counts.
#[derive(Debug, Default)]
pub(super) struct Holds {
    known: Mutex<SweptMap<String, Held>>,
    /// How many there are: while there is none, a take waits for no lock.
    number: AtomicUsize,
}

#[derive(Debug)]
struct Held {
    end: Instant,
    /// A take that costs no more is not held.
    left: u64,
}

/// How many are kept. Beyond that, the one that ends first is forgotten.
const MAX: usize = 10_000;

impl Holds {
    /// Keeps that this count has only so many units left for so long; or that it is not held.
    pub(super) fn set(&self, count: &CountAsk, time: Option<Duration>, left: u64) {
        if time.is_none() && self.number.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (mut known, now) = (lock(&self.known), Instant::now());
        known.sweep(|hold| hold.end > now);
        match time.and_then(|time| now.checked_add(time)) {
            None => known.remove(&count.name("")),
            Some(end) => known.insert(count.name(""), Held { end, left }),
        };
        if known.len() > MAX {
            let first = known.iter().min_by_key(|it| it.1.end);
            let first = first.map(|it| it.0.clone());
            first.and_then(|name| known.remove(&name));
        }
        self.number.store(known.len(), Ordering::Relaxed);
    }

    /// For how much longer a take of this count is held.
    pub(super) fn time(&self, count: &CountAsk) -> Option<Duration> {
        let known = (self.number.load(Ordering::Relaxed) > 0).then(|| lock(&self.known))?;
        let hold = known.get(&count.name(""));
        let hold = hold.filter(|hold| count.cost().max(1) > hold.left)?;
        let time = hold.end.saturating_duration_since(Instant::now());
        Some(time).filter(|it| !it.is_zero())
    }
}
