//! Those of a queue that sleep, in lanes, which take turns by virtual time (start-time fair
//! queueing: Goyal, Vin and Cheng, 1996): the lane with the smallest tag is next, and who is
//! admitted moves its tag by what it costs. A question under way only claims that. In a lane those
//! that are overdue go first, in order of arrival, and then the others, the lowest cost first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::wait_queue::Lacking;

/// How many lanes there are for keys; those without one have another.
const LANES: u16 = 1_024;

/// The lane of the key of `fair-by` with this hash.
pub(crate) fn lane_of(hash: Option<u64>) -> u16 {
    hash.map_or(LANES, |hash| (hash % u64::from(LANES)) as u16)
}

/// A lane, and the text of its key, while somebody looks at who waits.
pub(super) type KeyedLane = (u16, Option<Arc<str>>);

/// The order of a waiter in its lane, and what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_passable: bool,
    /// Its cost, or 0 if it is overdue.
    passed_by: u64,
    pub(super) arrival: u64,
    pub(super) cost: u64,
    pub(super) lane: u16,
    pub(super) weight: u16,
}

/// How far units of this weight move the tag of a lane, so that a thousandth of one is exact enough.
fn step(units: u64, weight: u16) -> u128 {
    (u128::from(units) << 20) / u128::from(weight)
}

#[derive(Debug, Default)]
pub(super) struct Line {
    lanes: BTreeMap<u16, Lane>,
    /// The lanes in which somebody sleeps, by their places.
    order: BTreeSet<(u128, u16)>,
    /// Where the lane of the last that was admitted stood: a lane that was idle begins there. Were
    /// it moved by questions, it would run ahead of the lanes whenever all ask at once.
    time: u128,
}

#[derive(Debug, Default)]
struct Lane {
    /// What it has paid, and had when it began to wait.
    tag: u128,
    began: u128,
    /// What its questions under way ask for.
    claimed: u128,
    sleeping: BTreeMap<Rank, Arc<Sleeper>>,
    late: LateArrivals,
}

/// What those of a lane ask for that came last, and whose time ends about the same.
#[derive(Debug, Default)]
struct LateArrivals {
    /// The first of them.
    since: u64,
    /// When the time of one of them ends first. `None`: never.
    end: Option<Instant>,
    max_cost: u64,
    /// What they cost, and of these the ones that are overdue.
    cost: u64,
    overdue: u64,
}

/// Wakes a waiter, which came then.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) changed: Notify,
    pub(super) since: Instant,
    /// When it gives up. `None` for a waiter without a limit.
    pub(super) until: Option<Instant>,
    /// The hashes of the counts whose number of waiters it counts towards, and of its layer.
    pub(super) bounded_by: SmallVec<[u64; 2]>,
    pub(super) lane_key: Option<Arc<str>>,
}

impl Rank {
    pub(super) fn new(by: &Lacking, arrival: u64) -> Self {
        Self {
            is_passable: true,
            passed_by: by.cost,
            arrival,
            cost: by.cost,
            lane: by.lane,
            weight: by.weight,
        }
    }

    /// This one, which is overdue from now on.
    pub(super) fn overdue(mut self) -> Self {
        (self.is_passable, self.passed_by) = (false, 0);
        self
    }

    fn step(&self) -> u128 {
        step(self.cost.max(1), self.weight)
    }

    pub(super) fn is_overdue(&self) -> bool {
        !self.is_passable
    }
}

impl Lane {
    /// Its place among the lanes.
    fn place(&self) -> u128 {
        self.tag.saturating_add(self.claimed)
    }
}

impl LateArrivals {
    fn add(&mut self, rank: Rank, until: Option<Instant>) {
        if rank.arrival >= self.since {
            self.end = self.end.into_iter().chain(until).min();
            self.max_cost = self.max_cost.max(rank.cost);
            self.cost = self.cost.saturating_add(rank.cost);
            let overdue = rank.cost * u64::from(rank.is_overdue());
            self.overdue = self.overdue.saturating_add(overdue);
        }
    }

    fn remove(&mut self, rank: Rank) {
        if rank.arrival >= self.since {
            self.cost = self.cost.saturating_sub(rank.cost);
            let overdue = rank.cost * u64::from(rank.is_overdue());
            self.overdue = self.overdue.saturating_sub(overdue);
        }
    }
}

impl Line {
    pub(super) fn add(&mut self, rank: Rank, sleeper: Arc<Sleeper>) {
        let time = self.time;
        self.change(rank.lane, |lane| {
            if lane.sleeping.is_empty() {
                lane.tag = lane.tag.max(time.saturating_sub(lane.claimed));
                lane.began = lane.tag;
            }
            lane.late.add(rank, sleeper.until);
            lane.sleeping.insert(rank, sleeper)
        });
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Arc<Sleeper>> {
        self.change(rank.lane, |lane| {
            let removed = lane.sleeping.remove(&rank)?;
            lane.late.remove(rank);
            Some(removed)
        })
    }

    /// What those ask for that stay before a newcomer of this lane and cost until its time is over,
    /// and whom it cannot pass, or only those that are overdue: never too much. `has_units` says
    /// whether units come behind one instant and not behind another one.
    pub(super) fn ahead(
        &mut self,
        (lane, arrival, cost): (u16, u64, u64),
        until: Instant,
        only_overdue: bool,
        has_units: impl Fn(Instant, Instant) -> bool,
    ) -> u64 {
        let Some(Lane { late, .. }) = self.lanes.get_mut(&lane) else {
            return 0;
        };
        if late
            .end
            .is_some_and(|end| end < until && has_units(end, until))
        {
            // They may leave before, and then those units are for it.
            *late = LateArrivals {
                since: arrival,
                ..LateArrivals::default()
            };
        }
        match only_overdue {
            _ if cost < late.max_cost => 0,
            true => late.overdue,
            false => late.cost,
        }
    }

    /// This one asks. Returns the place that its lane had.
    pub(super) fn claim(&mut self, rank: Rank) -> u128 {
        self.change(rank.lane, |lane| {
            let place = lane.place();
            lane.claimed = lane.claimed.saturating_add(rank.step());
            place
        })
    }

    /// It has its answer, or leaves.
    pub(super) fn give_back(&mut self, rank: Rank) {
        let back = |lane: &mut Lane| lane.claimed = lane.claimed.saturating_sub(rank.step());
        self.change(rank.lane, back);
    }

    /// It was admitted, with a claim that found its lane at this place: its lane pays for it.
    pub(super) fn admit(&mut self, rank: Rank, place: u128) {
        let began = self.change(rank.lane, |lane| {
            // Others of its lane may ask before it and be denied.
            let began = lane.tag.min(place);
            lane.tag = lane.tag.saturating_add(rank.step());
            began
        });
        self.time = self.time.max(began);
    }

    /// Who was admitted has used more units than its lane has paid for, or gave some of them back. What
    /// was held for a part of a window was not there for others, so that part is paid; a lane in
    /// which nobody waits gets back none of what others have waited for since.
    pub(super) fn settle(&mut self, of: (u16, u16), more: u64, back: u64, held: [u128; 2]) {
        let (time, [more, back]) = (self.time, [more, back].map(|it| step(it, of.1)));
        let unused = back.saturating_sub(back.saturating_mul(held[0]) / held[1]);
        self.change(of.0, |lane| {
            let least = match lane.sleeping.is_empty() {
                true => lane.tag.min(time),
                false => lane.tag.min(lane.began),
            };
            let tag = lane.tag.saturating_add(more).saturating_sub(unused);
            lane.tag = tag.max(least);
        });
    }

    fn change<T>(&mut self, of: u16, change: impl FnOnce(&mut Lane) -> T) -> T {
        let lane = self.lanes.entry(of).or_default();
        let (place, was_idle) = (lane.place(), lane.sleeping.is_empty());
        let changed = change(lane);
        let is_idle = lane.sleeping.is_empty();
        if (lane.place(), is_idle) != (place, was_idle) {
            self.order.remove(&(place, of));
            if !is_idle {
                self.order.insert((lane.place(), of));
            }
        }
        changed
    }

    fn first_of_all(&self) -> Option<(&Rank, &Arc<Sleeper>)> {
        let (_, lane) = self.order.first()?;
        self.lanes.get(lane)?.sleeping.first_key_value()
    }

    pub(super) fn first(&self) -> Option<Rank> {
        self.first_of_all().map(|(rank, _)| *rank)
    }

    /// Lets the first one check whether it has to ask.
    pub(super) fn notify_first(&self) {
        if let Some((_, first)) = self.first_of_all() {
            first.changed.notify_one();
        }
    }

    /// How many are before this one in its lane, and how many lanes before that: two stands for
    /// more.
    pub(super) fn before(&self, rank: Rank) -> usize {
        let mut lanes = self.order.iter().take(2);
        let lanes = lanes.position(|(_, lane)| *lane == rank.lane).unwrap_or(2);
        let lane = self.lanes.get(&rank.lane);
        let before = lane.map_or(0, |it| it.sleeping.range(..rank).take(2).count());
        (lanes + before).min(2)
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        let lane = self.lanes.get(&rank.lane);
        lane.is_some_and(|it| it.sleeping.contains_key(&rank))
    }

    pub(super) fn has_lanes(&self) -> bool {
        self.lanes.len() > 1
    }

    /// Whether somebody sleeps at a lower cost.
    pub(super) fn has_cheaper(&self, cost: u64) -> bool {
        let mut ranks = self.lanes.values().flat_map(|it| it.sleeping.keys());
        ranks.any(|rank| rank.cost < cost)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn sleepers(&self) -> impl Iterator<Item = &Arc<Sleeper>> {
        self.lanes.values().flat_map(|it| it.sleeping.values())
    }
}
