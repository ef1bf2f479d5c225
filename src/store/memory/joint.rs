use super::memory_store::{MemoryStore, lock};
use super::permits::Permits;
use super::shard::{Answer, Shard};
use super::sync::MutexGuard;
use crate::decision::Decision;
use crate::store::Take;
use crate::store::joint_take::JointTake;

/// A count of a take: what is locked of it.
#[derive(Clone, Copy)]
enum CountPlace {
    /// The hash of its name, and its shard among those that are locked.
    Shard(u32, usize),
    /// It is of permits, of which so many are held.
    Permits(u64),
}

/// What a take over several counts has locked, and its instant.
struct Locked<'a> {
    shards: Vec<MutexGuard<'a, Shard>>,
    permits: Option<MutexGuard<'a, Permits>>,
    now: u64,
}

impl MemoryStore {
    /// Decides a take over several counts: looks at all of them, and then charges all, or none,
    /// under one instant. `None` if there is no room for all counts that are new.
    pub(super) fn decide_joint(&self, take: &Take, joint: &JointTake) -> Answer {
        let shard_of = |take: &Take| {
            let is_permits = take.rule().is_permits();
            (!is_permits).then(|| self.place_of(take.count_name()))
        };
        let places: Vec<_> = joint.takes.iter().map(shard_of).collect();
        let mut indexes: Vec<_> = places.iter().flatten().map(|(_, at)| *at).collect();
        indexes.sort_unstable();
        indexes.dedup();
        // In the order of the shards: two takes that need the same ones never wait for each other.
        let shards: Vec<_> = indexes.iter().map(|at| lock(self.shard(*at))).collect();
        let has_permits = places.contains(&None);
        let permits = has_permits.then(|| lock(&self.permits));
        let now = self.now();
        let mut locked = Locked {
            shards,
            permits,
            now,
        };
        for shard in &mut locked.shards {
            if shard.is_due(now) {
                self.freed(shard.drop_forgotten(now, 2 * joint.takes.len()));
            }
        }

        let counts = joint.takes.iter().zip(&places).map(|(take, place)| {
            let place = match place {
                Some((hash, at)) => {
                    let shard = indexes.binary_search(at).expect("its shard is locked");
                    CountPlace::Shard(*hash, shard)
                }
                None => CountPlace::Permits(locked.held(take)),
            };
            (take, place)
        });
        let counts: Vec<_> = counts.collect();
        let looks = counts.iter().map(|count| locked.decide(*count, 0));
        let looks: Option<Vec<_>> = looks.collect();
        let looks = looks?;
        let has_room = |look: &Decision, take: &Take| {
            let mut states = look.quotas().iter();
            let is_unlimited = take.rule().is_permits() && take.rule().is_shadow();
            // Without a cost nothing but the verdict says whether units are owed.
            let is_open = look.is_allowed() || take.rule().is_permits();
            is_unlimited || is_open && states.all(|state| state.remaining() >= take.cost())
        };
        let all_fit = || {
            let mut looks = looks.iter().zip(&joint.takes);
            looks.all(|(look, take)| has_room(look, take))
        };
        let decisions = match all_fit() {
            true => {
                let is_new = |(take, place): &&(&Take, CountPlace)| match place {
                    CountPlace::Shard(hash, at) => {
                        !locked.shards[*at].knows(*hash, take.count_name())
                    }
                    CountPlace::Permits(_) => false,
                };
                let charged = counts.iter().filter(|(take, _)| take.cost() > 0);
                let new = charged.filter(is_new).count();
                if new > 0 && !self.reserve(new) {
                    return None;
                }
                let charged = counts
                    .iter()
                    .map(|count| locked.decide(*count, count.0.cost()));
                charged.collect::<Option<Vec<_>>>()?
            }
            false => {
                let counts = counts.iter().zip(looks);
                let answers = counts.map(|(count, look)| match count.1 {
                    CountPlace::Shard(..) if !has_room(&look, count.0) => {
                        locked.decide(*count, count.0.cost())
                    }
                    CountPlace::Shard(..) | CountPlace::Permits(_) => Some(look),
                });
                answers.collect::<Option<Vec<_>>>()?
            }
        };
        Some(Ok(joint.decision(take.rule(), take.cost(), decisions)))
    }
}

impl Locked<'_> {
    fn held(&mut self, take: &Take) -> u64 {
        let permits = self.permits.as_mut();
        permits.map_or(0, |permits| permits.held(take.count_name(), self.now))
    }

    /// Decides about one count, for which there is room.
    fn decide(&mut self, (take, place): (&Take, CountPlace), cost: u64) -> Option<Decision> {
        match place {
            CountPlace::Shard(hash, at) => {
                let answer = self.shards[at].take(hash, self.now, take, cost, || true)?;
                answer.ok()
            }
            CountPlace::Permits(held) => {
                let permits = self.permits.as_mut()?;
                Some(permits.decide(take, held, self.now, cost > 0))
            }
        }
    }
}
