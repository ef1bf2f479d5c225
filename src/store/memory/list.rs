use smallvec::SmallVec;

use super::calendars::{CalendarOf, Calendars};
use super::memory_store::{MemoryStore, held, lock};
use super::permits::Permits;
use super::shard::{Answer, CountOf, Shard};
use super::sync::MutexGuard;
use crate::algorithm::spec::Spec;
use crate::decision::Decision;
use crate::store::{Ask, CountAsk};

/// A count of a take: what is locked of it.
#[derive(Clone, Copy)]
enum CountPlace {
    /// The hash of its name, and its shard among those that are locked.
    Shard(u32, usize),
    /// It is of a period of the calendar.
    Calendar,
    /// It is of permits, of which so many are held.
    Permits(u64),
}

/// What a take over several counts has locked, and its instant.
struct Locked<'a> {
    shards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
    permits: Option<MutexGuard<'a, Permits>>,
    calendars: Option<MutexGuard<'a, Calendars>>,
    now: u64,
    /// By the host's clock, where a count needs it.
    wall: u64,
}

impl MemoryStore {
    /// Decides a take over several counts: looks at all of them, and then charges all, or none,
    /// under one instant. `None` if there is no room for all counts that are new.
    pub(super) fn decide_list(&self, ask: &Ask) -> Answer {
        let shard_of = |ask: &CountAsk| {
            let windows = ask.spec().windows();
            windows.map(|_| self.place_of(ask.name_in_store()))
        };
        let places: SmallVec<[_; 4]> = ask.counts().iter().map(shard_of).collect();
        let mut indexes: SmallVec<[_; 4]> = places.iter().flatten().map(|(_, at)| *at).collect();
        indexes.sort_unstable();
        indexes.dedup();
        // In the order of the shards: two takes that need the same ones never wait for each other.
        let shards = indexes.iter().map(|at| lock(self.shard(*at)));
        let shards = shards.collect();
        let has = |is_it: fn(&Spec) -> bool| ask.counts().iter().any(|it| is_it(it.spec()));
        let permits = has(Spec::is_permits).then(|| lock(&self.permits));
        let calendars = has(|it| it.calendar().is_some()).then(|| lock(&self.calendars));
        let now = self.now();
        let wall = calendars.as_ref().map_or(0, |_| self.clock.wall());
        let only_looks = ask.only_looks();
        let mut locked = Locked {
            shards,
            permits,
            calendars,
            now,
            wall,
        };
        for shard in &mut locked.shards {
            if shard.is_due(now) {
                self.freed(shard.drop_forgotten(now, 2 * ask.counts().len()));
            }
        }

        let counts = ask.counts().iter().zip(&places).map(|(ask, place)| {
            let place = match place {
                Some((hash, at)) => {
                    let shard = indexes.binary_search(at).expect("its shard is locked");
                    CountPlace::Shard(*hash, shard)
                }
                None if ask.spec().is_permits() => CountPlace::Permits(locked.held(ask)),
                None => CountPlace::Calendar,
            };
            (ask, place)
        });
        let counts: SmallVec<[_; 4]> = counts.collect();
        let looks = counts
            .iter()
            .map(|count| locked.decide(*count, 0, only_looks));
        let looks: Option<SmallVec<[_; 4]>> = looks.collect();
        let looks = looks?;
        let holds = ask.counts().iter().map(|it| self.hold_of(ask, it, now));
        let holds: SmallVec<[_; 4]> = match holds.collect() {
            Ok(holds) => holds,
            Err(full) => return Some(Err(full)),
        };
        let has_room = |look: &Decision, count: &CountAsk| {
            let mut states = look.quotas().iter();
            let permits = count.spec().permits();
            // Without a cost nothing but the verdict says whether units are owed.
            let is_open = look.is_allowed() || permits.is_some();
            permits.is_some_and(|it| it.is_unlimited)
                || is_open && states.all(|state| state.remaining() >= count.cost())
        };
        let all_fit = || {
            let mut looks = looks.iter().zip(ask.counts());
            looks.all(|(look, ask)| has_room(look, ask))
        };
        let is_held = holds.iter().any(|(held_for, _)| held_for.is_some());
        let mut decisions = match !is_held && all_fit() {
            true => {
                let charged = || counts.iter().filter(|(ask, _)| ask.cost() > 0);
                if !locked.has_room(charged().map(|(ask, _)| *ask), self.max_keys) {
                    return None;
                }
                let is_new = |(ask, place): &&(&CountAsk, CountPlace)| match place {
                    CountPlace::Shard(hash, at) => {
                        !locked.shards[*at].knows(*hash, ask.name_in_store())
                    }
                    CountPlace::Calendar | CountPlace::Permits(_) => false,
                };
                let new = charged().filter(is_new).count();
                if new > 0 && !self.reserve(new) {
                    return None;
                }
                let charged = counts
                    .iter()
                    .map(|count| locked.decide(*count, count.0.cost(), only_looks));
                charged.collect::<Option<Vec<_>>>()?
            }
            false => {
                let counts = counts.iter().zip(looks);
                let answers = counts.map(|(count, look)| match count.1 {
                    CountPlace::Shard(..) | CountPlace::Calendar if !has_room(&look, count.0) => {
                        locked.decide(*count, count.0.cost(), only_looks)
                    }
                    _ => Some(look),
                });
                answers.collect::<Option<Vec<_>>>()?
            }
        };
        let of_counts = decisions.iter_mut().zip(ask.counts()).zip(&holds);
        for ((decision, count), (held_for, has_failures)) in of_counts {
            decision.has_failures = decision.is_allowed() && *has_failures;
            if let Some(time) = held_for {
                *decision = held(decision.clone(), count, *time);
            }
        }
        Some(Ok(ask.decision_of(decisions)))
    }
}

impl Locked<'_> {
    fn held(&mut self, ask: &CountAsk) -> u64 {
        let permits = self.permits.as_mut();
        permits.map_or(0, |permits| permits.held(ask.name_in_store(), self.now))
    }

    /// Whether there is room for those of these counts that are new and of the calendar.
    fn has_room<'a>(&mut self, charged: impl Iterator<Item = &'a CountAsk>, max: usize) -> bool {
        let Some(calendars) = &mut self.calendars else {
            return true;
        };
        let of_calendar = charged.filter(|ask| ask.spec().calendar().is_some());
        let new = of_calendar.filter(|ask| !calendars.knows(ask.name_in_store()));
        let new = new.count();
        calendars.has_room(new, self.wall, max)
    }

    /// Decides about one count, for which there is room.
    fn decide(
        &mut self,
        (ask, place): (&CountAsk, CountPlace),
        cost: u64,
        only_looks: bool,
    ) -> Option<Decision> {
        match place {
            CountPlace::Shard(hash, at) => {
                let (name, windows) = (ask.name_in_store(), ask.spec().windows()?);
                let of = CountOf { name, windows };
                let answer = self.shards[at].take(hash, self.now, of, cost, || true)?;
                answer.ok()
            }
            CountPlace::Calendar => {
                let (calendars, spec) = (self.calendars.as_mut()?, ask.spec().calendar()?);
                let (name, now) = (ask.name_in_store(), self.wall);
                Some(calendars.take(CalendarOf { name, spec, now }, cost))
            }
            CountPlace::Permits(held) => {
                let permits = self.permits.as_mut()?;
                Some(permits.decide(
                    (ask.name_in_store(), ask.spec().permits()?, only_looks),
                    held,
                    self.now,
                    cost > 0,
                ))
            }
        }
    }
}
