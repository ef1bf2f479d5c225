use crate::algorithm::lockout::LockoutState;
use crate::swept_map::SweptMap;

/// What is known of keys that are held, or have failed, by the names of their counts.
#[derive(Debug, Default)]
pub(super) struct Holds(pub(super) SweptMap<String, LockoutState>);

impl Holds {
    /// Whether one more key may be known.
    pub(super) fn has_room(&mut self, now: u64, max: usize) -> bool {
        self.0.has_room(1, max, now, |it| it.is_needed(now))
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
