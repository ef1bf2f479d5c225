use crate::swept_map::SweptMap;

/// Until when keys are held, by the names of their counts, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Holds(SweptMap<String, u64>);

impl Holds {
    /// For how long the key is held.
    pub(super) fn of(&self, name: &str, now: u64) -> Option<u64> {
        let until = self.0.get(name)?;
        until.checked_sub(now).filter(|held| *held > 0)
    }

    /// Holds the key at least so long, and says how long it is held. `None`: there is no room.
    pub(super) fn hold(&mut self, name: String, now: u64, time: u64, max: usize) -> Option<u64> {
        if time == 0 {
            return Some(self.of(&name, now).unwrap_or(0));
        }
        self.0.sweep(|until| *until > now);
        if self.0.len() >= max && !self.0.contains_key(&name) {
            self.0.retain(|_, until| *until > now);
            if self.0.len() >= max {
                return None;
            }
        }
        let until = self.0.entry(name).or_default();
        *until = now.saturating_add(time).max(*until);
        Some(*until - now)
    }

    /// Ends the hold, and says whether there was one.
    pub(super) fn end(&mut self, name: &str, now: u64) -> bool {
        self.0.remove(name).is_some_and(|until| until > now)
    }
}
