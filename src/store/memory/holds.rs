use crate::algorithm::lockout::LockoutState;
use crate::swept_map::SweptMap;

/// What is known of keys that are held, or have failed, by the names of their counts.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) known: SweptMap<String, LockoutState>,
    /// When something was forgotten last because there was no room, in microseconds.
    forgot_at: Option<u64>,
}

impl Holds {
    /// Whether one more key may be known. Room is made ten times a second at most: a flood does not
    /// make each caller look at all keys.
    pub(super) fn has_room(&mut self, now: u64, max: usize) -> bool {
        const PAUSE: u64 = 100_000;
        let is_due = self.forgot_at.is_none_or(|at| now.abs_diff(at) >= PAUSE);
        if self.known.len() >= max && is_due {
            self.forgot_at = Some(now);
            self.forget(now, max - max.div_ceil(8));
        }
        self.known.len() < max
    }

    /// Forgets what is over, and then of what is known of keys that are not held the least worth,
    /// until no more than this number is left.
    fn forget(&mut self, now: u64, most: usize) {
        self.known.retain(|_, it| it.is_needed(now));
        let known = self.known.iter();
        let worth = known.filter_map(|(name, it)| Some((it.worth(now)?, name)));
        let mut worth: Vec<_> = worth.collect();
        let excess = self.known.len().saturating_sub(most).min(worth.len());
        if excess > 0 {
            worth.select_nth_unstable(excess - 1);
        }
        let least: Vec<_> = worth[..excess].iter().map(|it| it.1.clone()).collect();
        least.iter().for_each(|name| _ = self.known.remove(name));
    }

    /// What is known of the key, to be changed. `None`: there is no room.
    pub(super) fn of_new(
        &mut self,
        name: String,
        now: u64,
        max: usize,
    ) -> Option<&mut LockoutState> {
        self.known.sweep(|it| it.is_needed(now));
        let has_room = self.known.contains_key(&name) || self.has_room(now, max);
        has_room.then(|| self.known.entry(name).or_default())
    }
}
