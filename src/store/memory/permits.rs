use std::collections::HashMap;
use std::time::Duration;

use crate::algorithm::spec::Permits as PermitSpec;
use crate::decision::{Decision, Receipt, Source};
use crate::name::Name;
use crate::swept_map::SweptMap;

/// The requests in progress of each key. A key without one has no entry.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// By the names of the counts: each holder, and the millisecond at which its lease ends.
    keys: SweptMap<String, HashMap<u64, u64>>,
    /// The number of the last holder.
    last: u64,
}

impl Permits {
    /// How many permits of this count are held.
    pub(super) fn held(&mut self, name: &Name, now: u64) -> u64 {
        let name = name.plain();
        let Some(holders) = self.keys.get_mut(&name) else {
            return 0;
        };
        // Those of takes whose answers nobody has read.
        holders.retain(|_, until| *until > now / 1_000);
        if holders.is_empty() {
            self.keys.remove(&name);
            return 0;
        }
        u64::try_from(holders.len()).unwrap_or(u64::MAX)
    }

    /// The decision about a take of one permit, of which `held` are held: it gets one if it `fits`.
    pub(super) fn decide(
        &mut self,
        (name, spec, only_looks): (&Name, &PermitSpec, bool),
        held: u64,
        now: u64,
        fits: bool,
    ) -> Decision {
        let holder = fits.then(|| {
            self.last += 1;
            let holder = Receipt::new(0, self.last, 1);
            self.renew(name, spec.lease, &holder, now);
            holder
        });
        spec.decision(only_looks, Source::Local, held + u64::from(fits), holder)
    }

    /// Keeps the permit for another lease, also one that is not there.
    pub(super) fn renew(&mut self, name: &Name, lease: Duration, holder: &Receipt, now: u64) {
        let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let now = now / 1_000;
        let is_held = |holders: &HashMap<u64, u64>| holders.values().any(|until| *until > now);
        self.keys.sweep(is_held);
        let holders = self.keys.entry(name.plain()).or_default();
        holders.insert(holder.serial(), now + 1 + lease);
    }

    /// Gives a permit back, and returns 1 if it was held.
    pub(super) fn release(&mut self, name: &Name, holder: &Receipt) -> u64 {
        let name = name.plain();
        let Some(holders) = self.keys.get_mut(&name) else {
            return 0;
        };
        let was_held = holders.remove(&holder.serial()).is_some();
        if holders.is_empty() {
            self.keys.remove(&name);
        }
        u64::from(was_held)
    }
}
