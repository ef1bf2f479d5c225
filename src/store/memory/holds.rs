use crate::algorithm::lockout::LockoutState;
use crate::swept_map::SweptMap;

/// What is known of keys that are held, or have failed, by the names of their counts.
#[derive(Debug, Default)]
pub(super) struct Holds(pub(super) SweptMap<String, LockoutState>);

impl Holds {
    /// What is known of the key, to be changed. `None`: there is no room.
    pub(super) fn of_new(
        &mut self,
        name: String,
        now: u64,
        max: usize,
    ) -> Option<&mut LockoutState> {
        self.0.sweep(|it| it.is_needed(now));
        if self.0.len() >= max && !self.0.contains_key(&name) {
            self.0.retain(|_, it| it.is_needed(now));
            if self.0.len() >= max {
                return None;
            }
        }
        Some(self.0.entry(name).or_default())
    }
}
