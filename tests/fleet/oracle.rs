//! Somebody who knows only when how much was granted, and replays the laws over every window.

use tidegate::Algorithm;

/// How much was granted, and when by the server's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) stamp: u64,
    pub(crate) cost: u64,
}

/// The limit that was to hold, in units and microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) algorithm: Algorithm,
    pub(crate) max: u64,
    pub(crate) window: u64,
}

/// Why these grants, in the order of their stamps, break the limit; or nothing.
pub(crate) fn violation(limit: Limit, grants: &[Grant]) -> Option<String> {
    match limit.algorithm {
        Algorithm::SlidingLog | Algorithm::SlidingWindow => {
            let fullest = fullest_window(grants, limit.window);
            (fullest > limit.max).then(|| format!("{fullest} in a window"))
        }
        Algorithm::Gcra => fastest_span(limit, grants),
        Algorithm::FixedWindow => {
            let fullest = fullest_fixed_window(grants, limit.window);
            (fullest > limit.max).then(|| format!("{fullest} in a fixed window"))
        }
        other => panic!("no law for {other:?}"),
    }
}

/// The most units in any `(t - window, t]`.
pub(crate) fn fullest_window(grants: &[Grant], window: u64) -> u64 {
    let (mut fullest, mut inside, mut oldest) = (0, 0, 0);
    for last in grants {
        inside += last.cost;
        while grants[oldest].stamp + window <= last.stamp {
            inside -= grants[oldest].cost;
            oldest += 1;
        }
        fullest = fullest.max(inside);
    }
    fullest
}

/// The most units in any window that begins with the first grant after the one before has ended.
fn fullest_fixed_window(grants: &[Grant], window: u64) -> u64 {
    let (mut fullest, mut inside, mut start) = (0, 0, None);
    for grant in grants {
        if start.is_none_or(|start| start + window <= grant.stamp) {
            (start, inside) = (Some(grant.stamp), 0);
        }
        inside += grant.cost;
        fullest = fullest.max(inside);
    }
    fullest
}

/// A span in which more was granted than the burst and what drains meanwhile: for all pairs of
/// grants at once, since units granted until one of them, times the window, less its stamp times
/// max, must not exceed the same until before the other by more than the burst times the window.
fn fastest_span(limit: Limit, grants: &[Grant]) -> Option<String> {
    let (max, window) = (i128::from(limit.max), i128::from(limit.window));
    let (mut granted, mut least) = (0_i128, i128::MAX);
    for grant in grants {
        let elapsed = i128::from(grant.stamp) * max;
        least = least.min(granted * window - elapsed);
        granted += i128::from(grant.cost);
        let excess = granted * window - elapsed - least - max * window;
        if excess > 0 {
            return Some(format!(
                "{excess} / {window} units too many by {}",
                grant.stamp
            ));
        }
    }
    None
}
