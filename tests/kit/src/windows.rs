//! Another look at what was admitted: a list of what was charged when, and the fullest window over
//! it. It predicts nothing, so it also judges what several processes did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, Key, Take};

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

impl Limit {
    pub const fn new(algorithm: Algorithm, max: u64, window: u64) -> Self {
        Self {
            algorithm,
            max,
            window,
        }
    }

    /// A take of 1 under it.
    pub fn take(self, path: &str) -> Take {
        let rule = crate::owned_rule(path, self.max, Duration::from_micros(self.window));
        let rule = rule.with_algorithm(self.algorithm);
        Take::new(Arc::new(rule), Key::default())
    }
}

/// What workers printed of grants, in the order of their stamps: `grant`, the number of the limit,
/// the stamp and the cost.
pub fn grants_of(outputs: &[String]) -> BTreeMap<u64, Vec<Grant>> {
    let mut grants: BTreeMap<_, Vec<Grant>> = BTreeMap::new();
    for line in crate::workers::lines_of(outputs, "grant") {
        let [limit, stamp, cost] = line[..] else {
            panic!("{line:?}");
        };
        grants.entry(limit).or_default().push(Grant { stamp, cost });
    }
    for grants in grants.values_mut() {
        grants.sort_by_key(|grant| grant.stamp);
    }
    grants
}

/// The lines of which [`grants_of`] reads grants.
pub fn lines_of(grants: impl IntoIterator<Item = (u64, Grant)>) -> String {
    let grants = grants.into_iter();
    let line = |(limit, it): (u64, Grant)| format!("\ngrant {limit} {} {}", it.stamp, it.cost);
    grants.map(line).collect::<String>() + "\n"
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

/// How many units each window holds that ends with one of these, which are in the order of their
/// `until`. Of those charged until an instant, all but those that may have been charged before the
/// window until then were charged inside of it.
pub fn inside(spent: &[Spent], window: u64) -> impl Iterator<Item = u128> {
    let mut begins = begins(spent);
    let (mut ended, mut begun) = (0, 0_u128);
    spent.iter().map(move |last| {
        ended += u128::from(last.units);
        let is_before = |from: u64| from.saturating_add(window) <= last.until;
        while let Some((_, units)) = begins.next_if(|(from, _)| is_before(*from)) {
            begun += u128::from(units);
        }
        ended - begun.min(ended)
    })
}

/// Why such a window holds more than its bound; or nothing.
pub fn too_full(spent: &[Spent], window: u64) -> Option<String> {
    let mut windows = spent.iter().zip(inside(spent, window));
    let (last, inside) = windows.find(|(last, inside)| *inside > last.bound.into())?;
    Some(format!("{inside} in a window until {last:?}"))
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
