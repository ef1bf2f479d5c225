//! The spec of a count, which is all that a store knows of a limit.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::calendar::Calendar;
#[cfg(feature = "redis")]
use super::constants::EXACT;
use super::lockout::LockoutSpec;
#[cfg(feature = "redis")]
use super::pace::Pace;
use super::share::Share;
use super::{Algorithm, AlgorithmConfig};
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::quota::Quota;

/// The spec of a count: its kind, its quotas, and what may hold its keys.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) held_by: HeldBy,
    /// Its bytes in a question to Redis.
    #[cfg(feature = "redis")]
    question: OnceLock<Box<[u8]>>,
    /// The specs of a fallback's share, for the share that was asked for first.
    shared: OnceLock<(Share, SharedSpecs)>,
}

/// The specs of the counts by which a fallback admits a share.
#[derive(Debug, Clone)]
pub(crate) struct SharedSpecs {
    /// The part of each quota, in the quota's own window.
    pub(crate) part: Arc<Spec>,
    /// The whole quotas, in longer windows: they bound requests that are larger than the part.
    pub(crate) whole: Option<Arc<Spec>>,
}

/// What may hold the keys of a count.
#[derive(Debug, Clone, Default)]
pub(crate) enum HeldBy {
    #[default]
    Nobody,
    /// The answers of a partner.
    Partner,
    Failures(Arc<LockoutSpec>),
}

/// A count is of units in windows, of units in a period of the calendar, or of permits.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Windows(Windows),
    Calendar(Calendar),
    Permits(Permits),
}

/// The quotas of a count of units in windows.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    pub(crate) config: AlgorithmConfig,
    pub(crate) quotas: Box<[Quota]>,
    /// The longest time for which a charge counts, in microseconds.
    pub(crate) life: u64,
    pub(crate) owe_at_most: Option<u64>,
    /// How a bucket of the only quota drains.
    #[cfg(feature = "redis")]
    pace: Option<Pace>,
}

/// The limit of a count of permits, which requests in progress hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permits {
    /// How many there are at a time.
    pub(crate) quotas: [Quota; 1],
    /// Whether no take is denied: under a shadow rule.
    pub(crate) is_unlimited: bool,
    pub(crate) lease: Duration,
    pub(crate) busy_retry: Duration,
}

impl Spec {
    pub(crate) fn new(kind: Kind, held_by: HeldBy) -> Self {
        Self {
            kind,
            held_by,
            #[cfg(feature = "redis")]
            question: OnceLock::new(),
            shared: OnceLock::new(),
        }
    }

    /// A spec of counts whose keys nothing holds.
    pub(crate) fn plain(kind: Kind) -> Arc<Self> {
        Arc::new(Self::new(kind, HeldBy::Nobody))
    }

    #[inline]
    pub(crate) const fn windows(&self) -> Option<&Windows> {
        match &self.kind {
            Kind::Windows(windows) => Some(windows),
            Kind::Calendar(_) | Kind::Permits(_) => None,
        }
    }

    #[inline]
    pub(crate) const fn permits(&self) -> Option<&Permits> {
        match &self.kind {
            Kind::Windows(_) | Kind::Calendar(_) => None,
            Kind::Permits(permits) => Some(permits),
        }
    }

    #[inline]
    pub(crate) const fn calendar(&self) -> Option<&Calendar> {
        match &self.kind {
            Kind::Calendar(calendar) => Some(calendar),
            Kind::Windows(_) | Kind::Permits(_) => None,
        }
    }

    #[inline]
    pub(crate) const fn is_permits(&self) -> bool {
        self.permits().is_some()
    }

    #[inline]
    pub(crate) const fn may_be_held(&self) -> bool {
        !matches!(self.held_by, HeldBy::Nobody)
    }

    /// After how many failures its keys are held; `None` if failures do not count.
    pub(crate) fn lockout(&self) -> Option<&LockoutSpec> {
        match &self.held_by {
            HeldBy::Failures(spec) => Some(spec),
            HeldBy::Nobody | HeldBy::Partner => None,
        }
    }

    /// The verdict on a take of a key that is held for this time.
    pub(crate) const fn held_verdict(&self, retry_after: Duration) -> Verdict {
        match self.held_by {
            HeldBy::Failures(_) => Verdict::LockedOut { retry_after },
            HeldBy::Nobody | HeldBy::Partner => Verdict::OnHold { retry_after },
        }
    }

    /// The longest time for which a charge counts, in microseconds.
    pub(crate) fn life(&self) -> u64 {
        match &self.kind {
            Kind::Windows(windows) => windows.life,
            Kind::Calendar(calendar) => calendar.life(),
            Kind::Permits(_) => 0,
        }
    }

    /// The quotas that are charged, of which an answer tells.
    pub(crate) fn quotas(&self) -> &[Quota] {
        match &self.kind {
            Kind::Windows(windows) => &windows.quotas,
            Kind::Calendar(calendar) => &calendar.quotas,
            Kind::Permits(permits) => &permits.quotas,
        }
    }

    /// The highest cost that each of its quotas, or its permits, admit when nothing is charged.
    pub(crate) fn limits(&self) -> impl Iterator<Item = u64> {
        let of_windows = self.windows().into_iter().flat_map(Windows::limits);
        let of_calendar = self.calendar().map(Calendar::max);
        let of_permits = self.permits().map(Permits::max);
        of_windows.chain(of_calendar).chain(of_permits)
    }

    /// A share of it, which has room for one request of this cost. That for the first share is made
    /// once and kept; a process rarely uses a second share, or costs above its part.
    pub(crate) fn for_share(&self, share: Share, cost: u64) -> SharedSpecs {
        let make = || SharedSpecs {
            part: self.part_for(share, 1),
            whole: self.whole_for(share),
        };
        let (known, shared) = self.shared.get_or_init(|| (share, make()));
        let mut shared = match *known == share {
            true => shared.clone(),
            false => make(),
        };
        let has_room = |it: &Windows| it.limits().all(|limit| cost <= limit);
        if !shared.part.windows().is_none_or(has_room) {
            shared.part = self.part_for(share, cost);
        }
        shared
    }

    /// The share of what is spent.
    pub(crate) fn of_nothing() -> Arc<Self> {
        let (log, nothing) = (Algorithm::SlidingLog.into(), [Quota::per_hour(0)]);
        Self::plain(Kind::Windows(Windows::new(log, nothing.into(), None)))
    }

    fn part_for(&self, share: Share, cost: u64) -> Arc<Self> {
        let kind = match &self.kind {
            Kind::Windows(windows) => Kind::Windows(windows.part_for(share, cost)),
            Kind::Calendar(calendar) => Kind::Windows(calendar.part_for(share, cost)),
            Kind::Permits(permits) => Kind::Permits(permits.for_share(share)),
        };
        Arc::new(Self::new(kind, self.held_by.clone()))
    }

    fn whole_for(&self, share: Share) -> Option<Arc<Self>> {
        let whole = match &self.kind {
            Kind::Windows(windows) => windows.whole_for(share)?,
            Kind::Calendar(calendar) => calendar.whole_for(share),
            Kind::Permits(_) => return None,
        };
        Some(Self::plain(Kind::Windows(whole)))
    }
}

#[cfg(feature = "redis")]
impl Spec {
    /// Whether the usual case of its algorithm knows it: that of a log knows several quotas, that
    /// of the others one.
    pub(crate) fn is_usual(&self) -> bool {
        self.windows().is_some_and(|it| match it.algorithm() {
            Algorithm::SlidingLog => !it.quotas.is_empty(),
            Algorithm::SlidingWindow | Algorithm::Gcra | Algorithm::FixedWindow => {
                it.quotas.len() == 1
            }
        })
    }

    /// Whether an answer tells what a quota's state holds.
    pub(crate) fn tells_held(&self) -> bool {
        self.windows()
            .is_some_and(|it| it.algorithm().drains_evenly())
    }

    /// Its bytes in a question to Redis. `encode` is called once.
    pub(crate) fn question(&self, encode: impl FnOnce(&Self) -> Box<[u8]>) -> &[u8] {
        self.question.get_or_init(|| encode(self))
    }

    /// How many units may be used under each quota together with those owed.
    pub(crate) fn limits_with_debt(&self) -> impl Iterator<Item = u64> {
        self.windows().into_iter().flat_map(|windows| {
            let (algorithm, at_most) = (windows.algorithm(), windows.owe_at_most);
            let quotas = windows.quotas.iter();
            quotas.map(move |quota| algorithm.limit_with_debt(quota, at_most))
        })
    }
}

impl Windows {
    pub(crate) fn new(
        config: AlgorithmConfig,
        quotas: Box<[Quota]>,
        owe_at_most: Option<u64>,
    ) -> Self {
        let lives = quotas.iter().map(|quota| config.algorithm().life(quota));
        Self {
            #[cfg(feature = "redis")]
            pace: match &*quotas {
                [quota] if config.algorithm().drains_evenly() => Some(Pace::new(quota)),
                _ => None,
            },
            config,
            life: lives.max().unwrap_or(0),
            quotas,
            owe_at_most,
        }
    }

    #[inline]
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.config.algorithm()
    }

    /// The highest cost that each quota admits when nothing is charged.
    pub(crate) fn limits(&self) -> impl Iterator<Item = u64> {
        let algorithm = self.algorithm();
        self.quotas.iter().map(move |quota| algorithm.limit(quota))
    }

    fn part_for(&self, share: Share, cost: u64) -> Self {
        let algorithm = self.algorithm();
        let quotas = self.quotas.iter();
        let quotas = quotas.map(|quota| share.part(quota, algorithm, cost));
        Self::new(self.config, quotas.collect(), self.owed_by(share))
    }

    /// It is `None` where the part suffices: a bucket's rate is that of the whole.
    fn whole_for(&self, share: Share) -> Option<Self> {
        if self.algorithm().drains_evenly() || share.is_whole() {
            return None;
        }
        let quotas = self.quotas.iter().map(|quota| share.whole(quota));
        let counts = Algorithm::SlidingWindow.into();
        Some(Self::new(counts, quotas.collect(), self.owed_by(share)))
    }

    fn owed_by(&self, share: Share) -> Option<u64> {
        self.owe_at_most.map(|units| share.times(units))
    }
}

#[cfg(feature = "redis")]
impl Windows {
    /// Whether a lone take of it has a usual case of its own: under one quota, which has units and
    /// whose numbers are exact in a double.
    pub(crate) fn is_lone(&self) -> bool {
        let [quota] = &*self.quotas else {
            return false;
        };
        let is_exact = |pace: &Pace| {
            let units = quota.burst().saturating_add(pace.units);
            units.saturating_mul(pace.micros) < EXACT
        };
        quota.max() > 0 && self.pace.as_ref().is_none_or(is_exact)
    }

    /// The units of the only quota in use, when a state says since when it is busy and what was
    /// charged since then.
    pub(crate) fn used(&self, now: u64, start: u64, units: u64) -> u64 {
        let drained = |pace: &Pace| pace.drained(now.saturating_sub(start)).0;
        units.saturating_sub(self.pace.as_ref().map_or(0, drained))
    }

    /// When at most `limit` of these units are in use.
    pub(crate) fn fits_at(&self, start: u64, units: u64, limit: u64) -> u64 {
        let time = |pace: &Pace| pace.time_for(units.saturating_sub(limit));
        start.saturating_add(self.pace.as_ref().map_or(self.life, time))
    }
}

impl Permits {
    /// How many there are at a time.
    pub(crate) const fn max(&self) -> u64 {
        self.quotas[0].max()
    }

    /// A share of it, which has at least one permit where there is any.
    fn for_share(&self, share: Share) -> Self {
        let [quota] = &self.quotas;
        let max = share.at_least_one_of(quota.max());
        let quotas = [Quota::from_micros(max, quota.window_micros())];
        Self { quotas, ..*self }
    }

    /// The decision about a take of one permit, when so many are held: with a holder, that among
    /// them. Where there is no limit, that may be more than the max.
    pub(crate) fn decision(
        &self,
        only_looks: bool,
        source: Source,
        held: u64,
        holder: Option<Receipt>,
    ) -> Decision {
        let max = self.max();
        let verdict = if only_looks || holder.is_some() {
            Verdict::Allowed
        } else if max == 0 {
            Verdict::Never
        } else if held >= max {
            let retry_after = self.busy_retry;
            Verdict::Busy { retry_after }
        } else {
            // Another count denies the take.
            let retry_after = Duration::ZERO;
            Verdict::Denied { retry_after }
        };
        let is_exceeded = match verdict {
            Verdict::Allowed => !only_looks && held > max,
            _ => held >= max,
        };
        let state = QuotaState::from_micros(max.saturating_sub(held), 0);
        let state = state.with_max(max).exceeded(is_exceeded);
        Decision::of_state(verdict, source, state, holder)
    }
}
