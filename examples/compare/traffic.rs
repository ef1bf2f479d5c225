//! What is offered: the same takes for every algorithm.

use std::time::Duration;

use crate::limit::{MAX, SPAN, micros};
use crate::random::Random;

/// So many units, asked for at one instant of the virtual clock, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Take {
    pub(crate) at: u64,
    pub(crate) cost: u64,
}

pub(crate) struct Traffic {
    /// Also the name of its picture.
    pub(crate) name: &'static str,
    /// What is offered.
    pub(crate) about: &'static str,
    /// What to look at.
    pub(crate) look: &'static str,
    /// In the order of time.
    pub(crate) offered: Vec<Take>,
    /// What each take asks for, if what it costs is known only afterwards, and charged then.
    pub(crate) reserved: Option<u64>,
}

pub(crate) fn all() -> [Traffic; 5] {
    [steady(), burst_at_edge(), flood(), weights(), owed()]
}

fn steady() -> Traffic {
    Traffic {
        name: "steady",
        about: "12 units a second come evenly, a fifth more than the limit of 100 in 10 s.",
        look: "The log and the windows admit all of it, then pause until units come back. \
               GCRA admits its burst on top of the rate, then the rate alone.",
        offered: evenly(0, SPAN, 12 * SPAN.as_secs()),
        reserved: None,
    }
}

fn burst_at_edge() -> Traffic {
    let mut offered = vec![Take { at: 0, cost: 1 }];
    offered.extend(evenly(9_200, Duration::from_millis(800), MAX));
    offered.extend(evenly(10_000, Duration::from_millis(800), MAX));
    offered.extend(evenly(16_000, Duration::from_millis(500), 40));
    offered.extend(evenly(24_000, Duration::from_millis(800), MAX));
    Traffic {
        name: "burst-at-edge",
        about: "One take starts the fixed window at 0 s. A burst of 100 comes just before it ends at 10 s, \
                another just after; two more come later.",
        look: "The fixed window admits both, nearly twice the limit. \
               The sliding ones admit one, GCRA its burst and what has drained since.",
        offered,
        reserved: None,
    }
}

fn flood() -> Traffic {
    let mut random = Random::from_seed(1);
    let offered = at_random(&mut random, 2_000, 38_000, |_| 1);
    Traffic {
        name: "flood",
        about: "About 50 units a second, five times the limit, all the time, at random instants.",
        look: "The log and the windows admit 100 in gulps of about 2 s, then nothing for 8 s. \
               GCRA admits its burst, then one unit every 0.1 s.",
        offered,
        reserved: None,
    }
}

fn weights() -> Traffic {
    let mut random = Random::from_seed(2);
    let mut offered = at_random(&mut random, 100_000, 400_000, |random| random.between(1, 2));
    offered.extend((2..30).step_by(4).map(|second| Take {
        at: second * 1_000_000,
        cost: 30,
    }));
    offered.sort_by_key(|take| take.at);
    Traffic {
        name: "weights",
        about: "Small takes of 1 or 2 units all the time, and every 4 s a large one of 30.",
        look: "A large take is admitted where 30 units are free, and never where the burst is smaller than its cost.",
        offered,
        reserved: None,
    }
}

fn owed() -> Traffic {
    let mut random = Random::from_seed(3);
    let offered = at_random(&mut random, 200_000, 800_000, |random| {
        random.between(10, 60)
    });
    Traffic {
        name: "owed",
        about: "Requests that turn out to use 10 to 60 units reserve 5 each. What they use beyond is charged at once, \
                also above the limit: 100 more at most.",
        look: "After each request that goes above the limit all are denied until that has left: a window later, \
               at the edge of a fixed window, or drained at the rate.",
        offered,
        reserved: Some(5),
    }
}

/// So many takes of one unit each, evenly over `lasting`.
fn evenly(from_millis: u64, lasting: Duration, takes: u64) -> Vec<Take> {
    let at = |number| from_millis * 1_000 + number * micros(lasting) / takes;
    let take = |number| Take {
        at: at(number),
        cost: 1,
    };
    (0..takes).map(take).collect()
}

/// Takes with random gaps, in microseconds.
fn at_random(
    random: &mut Random,
    shortest: u64,
    longest: u64,
    cost: fn(&mut Random) -> u64,
) -> Vec<Take> {
    let mut takes = Vec::new();
    let mut at = 0;
    while at < micros(SPAN) {
        let cost = cost(random);
        takes.push(Take { at, cost });
        at += random.between(shortest, longest);
    }
    takes
}
