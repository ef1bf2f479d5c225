use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::teller::{Place, Teller};
use crate::charge::{OnClosed, PathState, spawn};
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::InFlightCounter;
use crate::key::Key;
use crate::log_on_change::LogOnChange;
use crate::question::{Ask, CountAsk};
use crate::rule::{Period, Policy};
use crate::store::Store;
use crate::swept_map::SweptMap;
use crate::sync::lock;
use crate::take::Take;
use crate::trace;

/// A key has used a share of a [calendar quota](crate::rule::Policy::calendar): see
/// [`Limits::on_crossing`](crate::Limits::on_crossing).
///
/// ```
/// use tidegate::layer::Crossing;
///
/// fn mail(crossing: &Crossing) -> String {
///     let Crossing { key, share, used, max, .. } = crossing;
///     format!("{}: {} % of {max} are used, {used}", key.as_str(), share * 100.0)
/// }
/// # let _ = mail;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Crossing {
    /// The path of the rule.
    pub path: Arc<str>,
    /// The subject whose key it is; `None` under a rule of one.
    pub subject: Option<String>,
    /// The key.
    pub key: Key,
    /// The name of the plan, if the request has one.
    pub plan: Option<String>,
    /// The name of the quota.
    pub quota: String,
    /// The share of it, one of those that are watched.
    pub share: f64,
    /// Whether a denial by the quota tells of the share 1.0, before all of the max is used: the
    /// rest was too little for a request. The crossing itself, if it comes, is told as well.
    pub is_denial: bool,
    /// The units that are used now, without those that this process may still give back.
    pub used: u64,
    /// Its max, under the plan and while it is raised.
    pub max: u64,
    /// Where the period ends.
    pub until: SystemTime,
    /// Whether the rule is in shadow: it denies nothing.
    pub is_shadow: bool,
}

/// Tells of each crossing once in a period.
pub(crate) struct Crossings {
    /// In thousandths.
    shares: Box<[u64]>,
    /// The share from which on a denial tells, if all of a max is watched.
    at_denials: Option<u64>,
    callback: Box<dyn Fn(Crossing) -> BoxFuture<'static, ()> + Send + Sync>,
    teller: Teller,
    /// Looks that wait for the store to answer again.
    looks: InFlightCounter,
    /// What was told here, or by another process, until its period ends.
    noted: Mutex<SweptMap<Mark, Instant>>,
    since: Instant,
    /// Whether the other processes can be asked.
    claims: LogOnChange,
    /// Whether a layer has plans by value, or a period was looked at.
    is_expected: AtomicBool,
    /// Names this process to the others.
    own: String,
}

/// What tells crossings apart: the count, the max, the share or [`DENIAL`], and the end in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mark {
    count: u64,
    max: u64,
    share: u64,
    end: u64,
}

/// All of a max, in thousandths.
const ALL: u64 = 1_000;
/// A denial, in place of the share.
const DENIAL: u64 = 0;
/// From which share on a denial tells, where none below 1.0 is watched.
const USUAL_AT_DENIALS: u64 = 800;
/// How many looks wait at a time; others are tried once.
const MAX_LOOKS: usize = 1_024;
/// How many crossings are noted.
const MAX_NOTED: usize = 100_000;
/// How often the other processes are asked, with a pause that doubles.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A mark is kept behind the end of its period, for answers that come at its very end.
const KEPT_BEHIND: Duration = Duration::from_secs(3_600);

impl Crossings {
    /// # Panics
    ///
    /// If there is no share, or one that is not more than 0 and at most 1.
    #[track_caller]
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        shares: impl IntoIterator<Item = f64>,
        callback: impl Fn(Crossing) -> F + Send + Sync + 'static,
    ) -> Self {
        let shares: Vec<_> = shares.into_iter().collect();
        assert!(
            !shares.is_empty(),
            "on_crossing has no share, expected some such as 0.8"
        );
        if let Some(share) = shares.iter().find(|it| !(**it > 0.0 && **it <= 1.0)) {
            panic!("on_crossing has the share {share}, expected more than 0 and at most 1");
        }
        let thousandths = |share: &f64| (share * 1_000.0).round().max(1.0) as u64;
        let shares: Box<[u64]> = shares.iter().map(thousandths).collect();
        let below = shares.iter().copied().filter(|it| *it < ALL).max();
        let at_denials = below.unwrap_or(USUAL_AT_DENIALS);
        Self {
            at_denials: shares.contains(&ALL).then_some(at_denials),
            shares,
            callback: Box::new(move |crossing| Box::pin(callback(crossing))),
            teller: Teller::default(),
            looks: InFlightCounter::default(),
            noted: Mutex::default(),
            since: Instant::now(),
            claims: LogOnChange::default(),
            is_expected: AtomicBool::new(false),
            own: format!("{:032x}", fastrand::u128(..)),
        }
    }

    /// Notes that a plan by value may have a period, or that there was one.
    pub(crate) fn expect(&self) {
        self.is_expected.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.is_expected.load(Ordering::Relaxed)
    }

    /// Notes a crossing, and counts it until what this returns is dropped. `None` if it is known,
    /// or too many are under way.
    fn note(&self, mark: Mark, watch: &CrossingWatch, lasts: Duration) -> Option<Place> {
        let (mut noted, now) = (lock(&self.noted), Instant::now());
        if noted.contains_key(&mark) {
            return None;
        }
        let is_kept = |until: &Instant| *until > now;
        noted.sweep(is_kept);
        let micros = u64::try_from((now - self.since).as_micros()).unwrap_or(u64::MAX);
        let has_room = noted.has_room(1, MAX_NOTED, micros, is_kept);
        let Some(place) = self.teller.place(&watch.path).filter(|_| has_room) else {
            self.teller.is_lost(watch.take.rule().path());
            return None;
        };
        noted.insert(mark, now + lasts + KEPT_BEHIND);
        Some(place)
    }

    /// Whether no other process has told. `None`: nobody knows.
    async fn is_first(&self, store: &Arc<dyn Store>, name: &str, lasts: Duration) -> Option<bool> {
        // Without others this one is the first.
        let Some(fleet) = store.fleet() else {
            return Some(true);
        };
        let mut pause = FIRST_PAUSE;
        for _ in 0..ATTEMPTS {
            // Where an answer was lost, it may have been this process that was first.
            match fleet.claim(name, &self.own, lasts).await {
                Ok(is_first) => {
                    if self.claims.worked() {
                        trace::event!(info: "crossings can be told again");
                    }
                    return Some(is_first);
                }
                Err(error) => self.claim_failed(&error),
            }
            sleep(pause).await;
            pause *= 2;
        }
        None
    }

    /// Says what is missing, unless it is an outage, which passes.
    fn claim_failed(&self, error: &StoreError) {
        use StoreErrorKind::{Overloaded, Timeout, Unavailable};
        let kind = error.kind();
        if !matches!(kind, Overloaded | Timeout | Unavailable) && self.claims.failed() {
            let (kind, error) = (kind.name(), error.to_string());
            trace::event!(warn: kind, error,
                "no crossing can be told: the store's user needs SET and GET on the keys \
                 {{..~fleet}}:*, see docs/security.md");
        }
    }
}

/// Watches what is used of the calendar quotas of a take.
#[derive(Clone)]
pub(super) struct CrossingWatch {
    pub(super) crossings: Arc<Crossings>,
    pub(super) store: Arc<dyn Store>,
    pub(super) take: Take,
    /// Knows what this process may still give back.
    pub(super) path: Arc<PathState>,
}

impl CrossingWatch {
    /// Looks by an answer of the store.
    pub(super) fn look(&self, decision: &Decision) {
        if matches!(decision.source(), Source::Fallback | Source::Operator) {
            return;
        }
        for (count, calendar) in self.take.of_calendar() {
            let Some(state) = self.take.state_of(count, decision) else {
                continue;
            };
            self.crossings.expect();
            let used = state.used();
            let denies = state.is_exceeded() && decision.verdict() != Verdict::Never;
            let at_denial = self.crossings.at_denials.filter(|_| denies);
            let shares = self.crossings.shares.iter().map(|share| (*share, *share));
            for (share, at) in shares.chain(at_denial.map(|at| (DENIAL, at))) {
                if used > 0 && used * 1_000 >= state.max() * at {
                    self.reached(count, &calendar.period, state, (share, at));
                }
            }
        }
    }

    /// Asks the store, and looks by its answer: outside of the request.
    pub(super) fn again(&self) {
        let (mut watch, telling) = (self.clone(), self.path.telling());
        spawn(async move {
            // A flush waits for what this look may tell.
            let _telling = telling;
            // The caller goes on.
            yield_now().await;
            let place = watch.crossings.looks.try_acquire(MAX_LOOKS);
            let mut pause = FIRST_PAUSE;
            for _ in 0..ATTEMPTS {
                watch.take.refunds_before = watch.path.open.last_refund();
                let answer = timeout(Ask::PATIENCE, watch.store.peek(&watch.take)).await;
                if let Ok(Ok(decision)) = answer
                    && decision.source() != Source::Fallback
                {
                    return watch.look(&decision);
                }
                // Without a place, too many look already.
                if place.is_none() {
                    return;
                }
                sleep(pause).await;
                pause *= 2;
            }
        });
    }

    /// With what is open, so much is used as a share or a denial tells at.
    #[cold]
    fn reached(
        &self,
        count: &CountAsk,
        period: &Period,
        state: &QuotaState,
        (share, at): (u64, u64),
    ) {
        let (crossings, take, rule) = (&self.crossings, &self.take, self.take.rule());
        let until = nearest_end(period, state.reset_after());
        let since_1970 = until.duration_since(SystemTime::UNIX_EPOCH);
        let mark = Mark {
            count: count.hash(),
            max: state.max(),
            share,
            end: since_1970.unwrap_or_default().as_secs(),
        };
        if lock(&crossings.noted).contains_key(&mark) {
            return;
        }
        let charges = &self.path.open;
        let open = charges.watch(count.hash(), || {
            let watch = self.clone();
            OnClosed(Arc::new(move || watch.again()))
        });
        // The answer may be from before a refund. What is open looks again when it is closed.
        let is_old = charges.refunded_since(take.refunds_before, count.hash());
        if is_old && open.is_none() {
            self.again();
        }
        let used = state.used().saturating_sub(open.unwrap_or(0));
        let is_denial = share == DENIAL;
        // Where all is used, the crossing itself tells. What is open may leave room for the request.
        let is_near_end = used < state.max() && used + count.cost() > state.max();
        if is_old || used * 1_000 < state.max() * at || is_denial && !is_near_end {
            return;
        }
        let Some(place) = crossings.note(mark, self, state.reset_after()) else {
            return;
        };
        let (subject, key) = take.key_of(count);
        let at = count.place_of_quota(rule.counts());
        let policy = at.and_then(|at| rule.policies().get(at));
        let crossing = Crossing {
            path: Arc::clone(rule.shared_path()),
            subject,
            key,
            plan: rule.plan().map(str::to_owned),
            quota: policy.map_or("", Policy::name).to_owned(),
            share: if is_denial { ALL } else { share } as f64 / 1_000.0,
            is_denial,
            used,
            max: state.max(),
            until,
            is_shadow: rule.is_shadow(),
        };
        let Mark { max, end, .. } = mark;
        let name = format!("crossed:{}:{max}:{share}:{end}", count.name(""));
        let (this, store) = (Arc::clone(crossings), Arc::clone(&self.store));
        let lasts = state.reset_after() + KEPT_BEHIND;
        let telling = async move || match this.is_first(&store, &name, lasts).await {
            Some(true) => (this.callback)(crossing).await,
            Some(false) => {}
            None => {
                // The next answer tries again.
                lock(&this.noted).remove(&mark);
                this.teller.is_lost(&crossing.path);
            }
        };
        crossings.teller.tell(rule.path(), Some(place), telling);
    }
}

crate::named::debug_fields!(Crossings);

/// The end of a period that ends in about so long: the same for processes whose clocks differ by
/// hours.
fn nearest_end(period: &Period, left: Duration) -> SystemTime {
    const DAY: Duration = Duration::from_secs(86_400);
    let about = SystemTime::now() + left;
    let nearest = |period: &Period| {
        let around = period.around(about);
        let behind = about.duration_since(around.start).unwrap_or_default();
        let before = around.end.duration_since(about).unwrap_or_default();
        if behind < before {
            (around.start, behind)
        } else {
            (around.end, before)
        }
    };
    match nearest(period) {
        (end, off) if off < DAY => end,
        // It began elsewhere before a plan or a reload: at the beginning of another day.
        _ => nearest(&period.days()).0,
    }
}
