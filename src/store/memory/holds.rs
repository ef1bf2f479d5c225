use crate::algorithm::lockout::LockoutState;
use crate::swept_map::SweptMap;

/// What is known of keys that are held, or have failed, by the names of their counts.
#[derive(Debug, Default)]
pub(super) struct Holds(pub(super) SweptMap<String, LockoutState>, FullSweep);

/// When all were looked at last, because there was no room.
#[derive(Debug, Default)]
struct FullSweep(u64);

/// In microseconds: a flood does not look at all of them for each request.
const PAUSE: u64 = 100_000;

impl Holds {
    /// Whether one more key may be known.
    pub(super) fn has_room(&mut self, now: u64, max: usize) -> bool {
        if self.0.len() >= max && now.abs_diff(self.1.0) >= PAUSE {
            self.1.0 = now;
            self.0.retain(|_, it| it.is_needed(now));
        }
        self.0.len() < max
    }

    /// What is known of the key, to be changed. `None`: there is no room.
    pub(super) fn of_new(
        &mut self,
        name: String,
        now: u64,
        max: usize,
    ) -> Option<&mut LockoutState> {
        self.0.sweep(|it| it.is_needed(now));
        let has_room = self.0.contains_key(&name) || self.has_room(now, max);
        has_room.then(|| self.0.entry(name).or_default())
    }
}
