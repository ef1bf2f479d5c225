//! Those of a queue that sleep, in lanes, which take turns by virtual time (start-time fair
//! queueing: Goyal, Vin and Cheng, 1996): the lane with the smallest tag is next, and a grant
//! moves its tag by what it costs. In a lane those that are overdue go first, in order of arrival,
//! and then the others, the lowest cost first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How many lanes there are for keys; those without one have another.
const LANES: u16 = 1_024;

/// The lane of the key of `fair-by` with this hash.
pub(crate) fn lane_of(hash: Option<u64>) -> u16 {
    hash.map_or(LANES, |hash| (hash % u64::from(LANES)) as u16)
}

/// The order of a waiter in its lane, and what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_passable: bool,
    /// Its cost, or 0 if it is overdue.
    passed_by: u64,
    pub(super) arrival: u64,
    pub(super) cost: u64,
    pub(super) lane: u16,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    lanes: BTreeMap<u16, Lane>,
    /// The lanes in which somebody sleeps, by their tags.
    order: BTreeSet<(u64, u16)>,
    /// The tag of the last grant: a lane that was idle begins there.
    time: u64,
}

#[derive(Debug, Default)]
struct Lane {
    tag: u64,
    sleeping: BTreeMap<Rank, Arc<Sleeper>>,
}

/// Wakes a waiter, which came then.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) changed: Notify,
    pub(super) since: Instant,
}

impl Rank {
    pub(super) fn new(lane: u16, arrival: u64, cost: u64, is_overdue: bool) -> Self {
        Self {
            is_passable: !is_overdue,
            passed_by: if is_overdue { 0 } else { cost },
            arrival,
            cost,
            lane,
        }
    }

    pub(super) fn is_overdue(&self) -> bool {
        !self.is_passable
    }
}

impl Line {
    pub(super) fn add(&mut self, rank: Rank, sleeper: Arc<Sleeper>) {
        let time = self.time;
        self.change(rank.lane, |lane| {
            if lane.sleeping.is_empty() {
                lane.tag = lane.tag.max(time);
            }
            lane.sleeping.insert(rank, sleeper)
        });
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Arc<Sleeper>> {
        self.change(rank.lane, |lane| lane.sleeping.remove(&rank))
    }

    /// This one asks, or was admitted: its lane pays for it.
    pub(super) fn grant(&mut self, rank: Rank) {
        let mut time = self.time;
        self.change(rank.lane, |lane| {
            time = lane.tag.max(time);
            lane.tag = lane.tag.saturating_add(rank.cost.max(1));
        });
        self.time = time;
    }

    /// It has its answer, or leaves.
    pub(super) fn give_back(&mut self, rank: Rank) {
        let back = |lane: &mut Lane| lane.tag = lane.tag.saturating_sub(rank.cost.max(1));
        self.change(rank.lane, back);
    }

    fn change<T>(&mut self, of: u16, change: impl FnOnce(&mut Lane) -> T) -> T {
        let lane = self.lanes.entry(of).or_default();
        let (tag, was_idle) = (lane.tag, lane.sleeping.is_empty());
        let changed = change(lane);
        let is_idle = lane.sleeping.is_empty();
        if (lane.tag, is_idle) != (tag, was_idle) {
            self.order.remove(&(tag, of));
            if !is_idle {
                self.order.insert((lane.tag, of));
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
