use crate::algorithm::lockout::{LockoutSpec, LockoutState, Reported};
use crate::swept_map::SweptMap;

/// Which keys are held, by the names of their counts. Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Until when a partner's answer holds them.
    partner: SweptMap<String, u64>,
    /// What is known of their failures.
    failures: SweptMap<String, LockoutState>,
}

/// What is known of a key that may be held.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownHold {
    /// For how much longer it is held.
    pub(super) time: Option<u64>,
    pub(super) has_failures: bool,
}

impl Holds {
    /// What is known of the key.
    pub(super) fn of(&self, name: &str, now: u64) -> KnownHold {
        let partner = self.partner.get(name);
        let partner = partner.and_then(|until| until.checked_sub(now).filter(|held| *held > 0));
        let failures = self.failures.get(name);
        KnownHold {
            time: partner.or_else(|| failures?.held_for(now)),
            has_failures: failures.is_some_and(|it| it.has_failures(now)),
        }
    }

    /// Holds the key at least so long, and says how long it is held. `None`: there is no room.
    pub(super) fn hold(&mut self, name: String, now: u64, time: u64, max: usize) -> Option<u64> {
        if time == 0 {
            return Some(self.of(&name, now).time.unwrap_or(0));
        }
        if !has_room(&mut self.partner, &name, max, |until| *until > now) {
            return None;
        }
        let until = self.partner.entry(name).or_default();
        *until = now.saturating_add(time).max(*until);
        Some(*until - now)
    }

    /// Notes what became of a take that was admitted then: see [`LockoutState::report`]. `None`:
    /// there is no room.
    pub(super) fn report(
        &mut self,
        name: String,
        spec: &LockoutSpec,
        now: u64,
        (admitted, what): (u64, Reported),
        max: usize,
    ) -> Option<u64> {
        if !has_room(&mut self.failures, &name, max, |it| it.is_needed(now)) {
            return None;
        }
        let state = self.failures.entry(name).or_default();
        Some(state.report(spec, now, admitted, what))
    }

    /// Ends the hold and what is known of failures, and says whether there was something.
    pub(super) fn end(&mut self, name: String, spec: Option<&LockoutSpec>, now: u64) -> bool {
        let known = self.of(&name, now);
        self.partner.remove(&name);
        self.failures.remove(&name);
        if let Some(spec) = spec {
            let state = LockoutState::reset(spec, now);
            self.failures.insert(name, state);
        }
        known.time.is_some() || known.has_failures
    }
}

/// Whether there is room for this name, once what is not needed has gone.
fn has_room<V>(
    map: &mut SweptMap<String, V>,
    name: &str,
    max: usize,
    is_needed: impl Fn(&V) -> bool,
) -> bool {
    map.sweep(&is_needed);
    if map.len() >= max && !map.contains_key(name) {
        map.retain(|_, it| is_needed(it));
    }
    map.len() < max || map.contains_key(name)
}
