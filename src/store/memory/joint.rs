use super::memory_store::{MemoryStore, lock};
use super::shard::{Answer, Shard};
use super::sync::MutexGuard;
use crate::decision::Decision;
use crate::store::Take;
use crate::store::joint_take::JointTake;

impl MemoryStore {
    /// Decides a take over several counts: looks at all of them, and then charges all, or none,
    /// under one instant. `None` if there is no room for all counts that are new.
    pub(super) fn decide_joint(&self, take: &Take, joint: &JointTake) -> Answer {
        let places: Vec<_> = joint
            .takes
            .iter()
            .map(|it| self.place_of(it.count_name()))
            .collect();
        let mut indexes: Vec<_> = places.iter().map(|(_, at)| *at).collect();
        indexes.sort_unstable();
        indexes.dedup();
        // In the order of the shards: two takes that need the same ones never wait for each other.
        let mut shards: Vec<_> = indexes.iter().map(|at| lock(self.shard(*at))).collect();
        let now = self.now();
        for shard in &mut shards {
            if shard.is_due(now) {
                self.freed(shard.drop_forgotten(now, 2 * joint.takes.len()));
            }
        }

        let counts = joint.takes.iter().zip(&places);
        let counts = counts.map(|(take, (hash, at))| {
            let shard = indexes.binary_search(at).expect("its shard is locked");
            (take, *hash, shard)
        });
        let looks = counts
            .clone()
            .map(|count| decide(&mut shards, now, count, 0));
        let looks: Option<Vec<_>> = looks.collect();
        let looks = looks?;
        let has_room = |look: &Decision, cost| {
            let mut states = look.quotas().iter();
            states.all(|state| state.remaining() >= cost)
        };
        let all_fit = || {
            let mut looks = looks.iter().zip(&joint.takes);
            looks.all(|(look, take)| has_room(look, take.cost()))
        };
        let decisions = match take.cost() > 0 && all_fit() {
            true => {
                let is_new = |(take, hash, shard): &(&Take, u32, usize)| {
                    !shards[*shard].knows(*hash, take.count_name())
                };
                let new = counts.clone().filter(is_new).count();
                if new > 0 && !self.reserve(new) {
                    return None;
                }
                let charged = counts.map(|count| decide(&mut shards, now, count, count.0.cost()));
                charged.collect::<Option<Vec<_>>>()?
            }
            false => {
                let answers =
                    counts
                        .zip(looks)
                        .map(|(count, look)| match has_room(&look, count.0.cost()) {
                            true => Some(look),
                            false => decide(&mut shards, now, count, count.0.cost()),
                        });
                answers.collect::<Option<Vec<_>>>()?
            }
        };
        Some(Ok(joint.decision(take.rule(), take.cost(), decisions)))
    }
}

/// Decides about one count, for which there is room.
fn decide(
    shards: &mut [MutexGuard<'_, Shard>],
    now: u64,
    (take, hash, shard): (&Take, u32, usize),
    cost: u64,
) -> Option<Decision> {
    let answer = shards[shard].take(hash, now, take, cost, || true)?;
    answer.ok()
}
