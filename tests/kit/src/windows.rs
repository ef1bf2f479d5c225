//! Another look at what was admitted: a list of what was charged when, and the fullest window over
//! it. It predicts nothing, so it also judges what several processes did.

use tidegate::Algorithm;

/// Units that were charged between two instants, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub units: u64,
    pub from: u64,
    pub until: u64,
    /// No window that ends with them holds more.
    pub bound: u64,
}

/// How much was granted, and when by the server's clock.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    pub stamp: u64,
    pub cost: u64,
}

/// The limit that was to hold, in units and microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub algorithm: Algorithm,
    pub max: u64,
    pub window: u64,
}

/// Why these grants, in the order of their stamps, break the limit; or nothing.
pub fn violation(limit: Limit, grants: &[Grant]) -> Option<String> {
    let spent = grants.iter().map(|grant| Spent {
        units: grant.cost,
        from: grant.stamp,
        until: grant.stamp,
        bound: limit.max,
    });
    let spent: Vec<_> = spent.collect();
    match limit.algorithm {
        Algorithm::SlidingLog | Algorithm::SlidingWindow => too_full(&spent, limit.window),
        Algorithm::Gcra => too_fast(&spent, limit.max, limit.window),
        Algorithm::FixedWindow => {
            let fullest = fullest_fixed_window(grants, limit.window);
            (fullest > limit.max).then(|| format!("{fullest} in a fixed window"))
        }
        other => panic!("no law for {other:?}"),
    }
}

/// The most units in any `(t - window, t]`.
pub fn fullest_window(grants: &[Grant], window: u64) -> u64 {
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

/// When each began, in order.
fn begins(spent: &[Spent]) -> std::iter::Peekable<std::vec::IntoIter<(u64, u64)>> {
    let mut begins: Vec<_> = spent.iter().map(|it| (it.from, it.units)).collect();
    begins.sort_unstable();
    begins.into_iter().peekable()
}

/// The units are in the order of their `until`. Of those charged until an instant, all but those
/// that may have been charged before the window until then were charged inside of it.
pub fn too_full(spent: &[Spent], window: u64) -> Option<String> {
    let mut begins = begins(spent);
    let (mut ended, mut begun) = (0, 0_u128);
    spent.iter().find_map(|last| {
        ended += u128::from(last.units);
        let is_before = |from: u64| from.saturating_add(window) <= last.until;
        while let Some((_, units)) = begins.next_if(|(from, _)| is_before(*from)) {
            begun += u128::from(units);
        }
        let inside = ended - begun.min(ended);
        (inside > last.bound.into()).then(|| format!("{inside} in a window until {last:?}"))
    })
}

/// The same for all spans, of whose units some drain meanwhile: for all pairs of charges at once,
/// since units charged until one of them, times the window, less its instant times max, must not
/// exceed the same until before the other by more than the bound times the window.
pub fn too_fast(spent: &[Spent], max: u64, window: u64) -> Option<String> {
    let mut begins = begins(spent);
    let [max, window] = [max, window].map(i128::from);
    let (mut ended, mut begun, mut least) = (0, 0, i128::MAX);
    spent.iter().find_map(|last| {
        ended += i128::from(last.units);
        while let Some((from, units)) = begins.next_if(|(from, _)| *from <= last.until) {
            least = least.min(begun * window - i128::from(from) * max);
            begun += i128::from(units);
        }
        let level = ended * window - i128::from(last.until) * max - least;
        let excess = level - i128::from(last.bound) * window;
        (excess > 0).then(|| format!("{excess} / {window} units too many until {last:?}"))
    })
}
