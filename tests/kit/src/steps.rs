//! One language of steps for random histories of takes: a rule, others that may replace it, and
//! small numbers that say what happens.
//!
//! A step says "to the edge of some window" or "as much as is left", since numbers drawn blindly
//! rarely meet an edge. It is made definite as it is played. All numbers shrink towards the
//! plainest step: a take of one unit, at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::{Union, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use tidegate::algorithm::AlgorithmConfig;
use tidegate::rule::{Plan, Policy, Quotas, Subject};
use tidegate::{Algorithm, Header, Key, Quota, Rule, Take};

use crate::oracle::window;
use crate::random;

/// Every random history begins not far from here if a server counts it: what Redis keeps must not
/// have expired.
pub const BEGINNING: u64 = 1_800_000_000_000_777;

/// How many histories to play: `own` ones, in so many times as `TIDEGATE_HISTORIES` says for 800.
pub fn number_of_histories(own: u64) -> u64 {
    let set = std::env::var("TIDEGATE_HISTORIES").ok();
    let number = set.map(|it| it.parse::<u64>().expect("TIDEGATE_HISTORIES is a number"));
    number.map_or(own, |number| (own * number).div_ceil(800))
}

/// An algorithm with its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub algorithm: Algorithm,
    pub sub_windows: u16,
}

impl From<Way> for AlgorithmConfig {
    fn from(way: Way) -> Self {
        Self::from(way.algorithm).sub_windows(way.sub_windows)
    }
}

/// One of the limits of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Whose units it counts, of a rule of several subjects.
    pub subject: Option<&'static str>,
    /// `None` for permits.
    pub quota: Option<Quota>,
    pub permits: u64,
    /// Requests cost 1 under it, whatever they cost elsewhere.
    pub has_own_cost: bool,
}

impl Limit {
    const fn of(quota: Quota) -> Self {
        Self {
            subject: None,
            quota: Some(quota),
            permits: 0,
            has_own_cost: false,
        }
    }

    /// This limit while an operator raises it.
    fn raised(&mut self, factor: f64) {
        self.permits = raised(self.permits, factor);
        self.quota = self.quota.map(|quota| {
            let max = raised(quota.max(), factor);
            let wide = Quota::new(quota.window(), max).expect("valid");
            // It comes back in ten years at most.
            let most = Quota::MAX_WINDOW.as_micros() * u128::from(max) / u128::from(window(&quota));
            let burst = u128::from(raised(quota.burst(), factor)).min(most);
            let burst = u64::try_from(burst).expect("it fits");
            wide.with_burst(burst).unwrap_or(wide)
        });
    }

    fn policy(&self, of: &str, at: usize) -> Policy {
        // Names of their own, since two quotas may have the same window here.
        let policy = match self.quota {
            Some(quota) => Policy::new(&format!("{of}{at}"), quota),
            None => Policy::concurrent(self.permits),
        };
        let policy = match self.subject {
            Some(subject) => policy.with_subject(subject),
            None => policy,
        };
        match self.has_own_cost {
            true => policy.with_cost(1),
            false => policy,
        }
    }
}

/// What is said about a path at a time.
#[derive(Clone, PartialEq)]
pub struct Spec {
    pub way: Way,
    pub own: Vec<Limit>,
    /// `None` for one that the rule has lost.
    pub plans: Vec<Option<Vec<Limit>>>,
    /// Its key can be held.
    pub is_outgoing: bool,
}

impl Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = |limits: &[Limit]| {
            let told = limits.iter().map(|it| {
                let quota = it.quota.map(|it| (it.max(), it.window(), it.burst()));
                let what = quota.map_or(format!("{} permits", it.permits), |it| format!("{it:?}"));
                let cost = if it.has_own_cost { " at 1" } else { "" };
                format!(
                    "{}{what}{cost}",
                    it.subject.map_or(String::new(), |it| format!("{it} "))
                )
            });
            told.collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "{:?} {}: {}",
            self.way.algorithm,
            self.way.sub_windows,
            limits(&self.own)
        )?;
        for plan in &self.plans {
            let told = plan.as_ref().map(|it| limits(it));
            write!(f, "; plan {}", told.as_deref().unwrap_or("gone"))?;
        }
        Ok(())
    }
}

/// A plan from this number on is one below it, raised.
pub const RAISED: usize = 1_000;
const FACTORS: [f64; 4] = [0.25, 1.5, 4.0, 1_000.0];

/// By what an operator multiplies this plan.
pub fn factor(plan: usize) -> Option<f64> {
    Some(FACTORS[(plan / RAISED).checked_sub(1)? % FACTORS.len()])
}

/// So many units raised: whole ones, and one at least.
fn raised(units: u64, factor: f64) -> u64 {
    let hundredths = u128::from(units) * (factor * 100.0) as u128;
    let raised = (hundredths / 100).clamp(units.min(1).into(), Quota::MAX_UNITS.into());
    u64::try_from(raised).expect("it fits")
}

/// The subjects of rules that have several.
pub const SUBJECTS: [&str; 3] = ["user", "address", "everyone"];

impl Spec {
    pub fn is_joint(&self) -> bool {
        self.own.iter().any(|limit| limit.subject.is_some())
    }

    /// The names of its subjects, if it has some.
    fn subjects(&self) -> impl Iterator<Item = &'static str> {
        let has = |name: &&str| self.own.iter().any(|limit| limit.subject == Some(*name));
        SUBJECTS.into_iter().filter(has)
    }

    /// The keys of its subjects that this number chooses, with that of the one that is left out.
    pub fn named(&self, keys: u16) -> impl Iterator<Item = (&'static str, Key)> {
        named(keys).filter(|(name, _)| self.subjects().any(|own| own == *name))
    }

    /// The subject that a take of several leaves out, of the keys that this number chooses.
    pub fn skipped(&self, keys: u16) -> Option<&'static str> {
        let skipped = SUBJECTS.get(usize::from((keys / 4 + 3) % 24)).copied();
        skipped.filter(|_| self.subjects().count() > 1)
    }

    /// Under which limits takes are under this plan: 0 for the rule's own, then those with a name,
    /// then the same again as code gives them. Of several subjects the first is raised.
    pub fn under(&self, plan: usize) -> Vec<Limit> {
        let mut limits = self.planned(plan % RAISED).unwrap_or_default().to_vec();
        let of = |limit: &Limit| (limit.subject, limit.quota.is_some());
        let is_own = |own: &&Limit| limits.iter().all(|it| of(it) != of(own));
        let own: Vec<_> = self.own.iter().filter(is_own).cloned().collect();
        limits.extend(own);
        if let Some(factor) = factor(plan) {
            let is_first = |it: &&mut Limit| it.subject.is_none_or(|name| name == SUBJECTS[0]);
            let raised = limits.iter_mut().filter(is_first);
            raised.for_each(|limit| limit.raised(factor));
        }
        limits
    }

    /// What a plan says of the quotas, or of the permits, of the subjects that it names.
    fn planned(&self, plan: usize) -> Option<&[Limit]> {
        let plan = match plan.checked_sub(self.plans.len() + 1) {
            Some(_) if !self.is_given(plan) => return None,
            Some(given) => given.checked_rem(self.plans.len())?,
            None => plan.checked_sub(1)?,
        };
        self.plans[plan].as_deref()
    }

    /// Whether code gives the quotas of this plan, or an operator raises them.
    pub fn is_given(&self, plan: usize) -> bool {
        let given = (plan % RAISED).checked_sub(self.plans.len() + 1);
        let given = given.and_then(|given| given.checked_rem(self.plans.len()));
        let is_there = |given: usize| self.plans[given].is_some();
        plan >= RAISED || given.is_some_and(is_there)
    }

    /// The limits of all plans.
    pub fn all(&self) -> impl Iterator<Item = &Limit> {
        self.own.iter().chain(self.plans.iter().flatten().flatten())
    }

    pub fn rule(&self, path: &str) -> Arc<Rule> {
        let own: Vec<_> = policies("", &self.own).collect();
        let rule = if self.is_joint() {
            let subjects = self.subjects().map(|name| {
                let own = own.iter().filter(|policy| policy.subject() == Some(name));
                let subject = Subject::new(name, Header::new(name));
                own.cloned().fold(subject, Subject::limit)
            });
            Rule::joint(path, subjects)
        } else {
            Rule::with_policies(path, own)
        };
        let mut rule = rule.expect("valid").with_algorithm(self.way);
        for (at, plan) in self.plans.iter().enumerate() {
            if let Some(plan) = plan {
                let quotas = Quotas::with_policies(policies("plan", plan)).expect("valid");
                rule = rule
                    .with_plan(&(at + 1).to_string(), quotas)
                    .expect("valid");
            }
        }
        if self.is_outgoing {
            rule = rule.with_outgoing().expect("one subject");
        }
        Arc::new(rule)
    }

    /// This plan as code gives it. One that is raised needs an operator, or is given as a whole.
    pub fn value(&self, plan: usize) -> Option<Plan> {
        let plan = plan % RAISED;
        let given = self.planned(plan).filter(|_| self.is_given(plan))?;
        Some(Plan::of(policies("plan", given)).expect("valid"))
    }

    pub fn raised_value(&self, plan: usize) -> Option<Plan> {
        factor(plan)?;
        Some(Plan::of(policies("plan", &self.under(plan))).expect("valid"))
    }

    /// A take under a plan, of the keys that these numbers choose; `None` if no subject is left
    /// that has a limit.
    pub fn take(&self, rule: &Arc<Rule>, plan: usize, keys: u16) -> Option<Take> {
        let value = self.raised_value(plan).or_else(|| self.value(plan));
        let plan = value.unwrap_or_else(|| Plan::new((plan % RAISED).to_string()));
        let rule = rule.under(&plan).unwrap_or(Arc::clone(rule));
        if !self.is_joint() {
            return Some(Take::new(rule, Key::default()));
        }
        let skipped = self.skipped(keys);
        let named = self.named(keys).filter(|(name, _)| Some(*name) != skipped);
        let take = Take::of_subjects(rule, named).expect("a subject");
        (!take.counts().is_empty()).then_some(take)
    }
}

/// With names of their own.
fn policies<'a>(of: &'a str, limits: &'a [Limit]) -> impl Iterator<Item = Policy> + 'a {
    let limits = limits.iter().enumerate();
    limits.map(move |(at, limit)| limit.policy(of, at))
}

/// The keys of all subjects that this number chooses.
fn named(keys: u16) -> impl Iterator<Item = (&'static str, Key)> {
    let users = ["alice", "bob"].map(Key::from);
    let addresses = [Key::from("1.2.3.4"), Key::default().with("a").with("b")];
    let pick = |keys: &[Key; 2], by: u16| keys[usize::from(by % 2)].clone();
    let keys = [
        pick(&users, keys),
        pick(&addresses, keys / 2),
        Key::default(),
    ];
    SUBJECTS.into_iter().zip(keys)
}

/// What happens, as drawn.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub wait: u16,
    pub act: u16,
    pub size: u16,
    pub other: u16,
}

/// What a history is about: which kinds of steps it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Takes, looks and refunds.
    Plain,
    /// More is used than was reserved.
    Owed,
    /// The quotas change, and sometimes come back.
    Reloads,
    /// A key under several plans, of which some are lost for a time.
    Plans,
    /// Quotas that code gives.
    Given,
    /// An operator raises a key, and ends that.
    Raised,
    /// The clock goes back, and ahead.
    Clock,
    /// Long windows of few units, short ones of more, and back.
    Longer,
    /// All of it in one, and other algorithms and batches.
    Mixed,
    /// Keys are held.
    Holds,
    /// Several subjects, and permits.
    Joint,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Take,
    Peek,
    Batch,
    Refund,
    Owe,
    Reset,
    Reload,
    /// The clock goes back, or for [`Theme::Clock`] also ahead.
    Clock,
    Hold,
    /// Takes at this instant are given back at once.
    Undo,
    /// A permit goes back, or is renewed.
    Release,
    /// The server loses the key.
    Evict,
}

impl Theme {
    /// How often there is each kind of steps.
    const fn kinds(self) -> &'static [(u16, Kind)] {
        use Kind::*;
        match self {
            Self::Plain => &[(11, Take), (2, Peek), (4, Refund), (1, Undo)],
            Self::Owed => &[(9, Take), (1, Peek), (4, Owe), (2, Refund), (1, Batch)],
            Self::Reloads => &[(11, Take), (1, Peek), (3, Refund), (6, Reload), (1, Owe)],
            Self::Plans => &[(11, Take), (1, Peek), (3, Refund), (1, Reload), (1, Owe)],
            Self::Given => &[(14, Take), (1, Peek)],
            Self::Raised => &[(11, Take), (1, Peek), (3, Refund), (1, Owe)],
            Self::Clock => &[(11, Take), (1, Peek), (3, Refund), (2, Clock)],
            Self::Longer => &[(14, Take), (2, Refund), (4, Reload)],
            Self::Mixed => &[
                (16, Take),
                (1, Peek),
                (4, Batch),
                (6, Refund),
                (3, Owe),
                (2, Reset),
                (6, Reload),
                (1, Clock),
                (1, Evict),
            ],
            Self::Holds => &[
                (6, Take),
                (1, Peek),
                (3, Batch),
                (3, Hold),
                (1, Owe),
                (1, Reset),
            ],
            Self::Joint => &[
                (9, Take),
                (1, Peek),
                (3, Batch),
                (3, Refund),
                (2, Owe),
                (1, Reset),
                (1, Reload),
                (3, Release),
            ],
        }
    }

    pub fn kind(self, step: Step) -> Kind {
        let kinds = self.kinds();
        let mut at = step.act % kinds.iter().map(|(weight, _)| weight).sum::<u16>();
        for (weight, kind) in kinds {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *kind,
            }
        }
        Kind::Take
    }

    /// How often the plan of a request is another one than before: one in so many.
    const fn plan_changes(self) -> u16 {
        match self {
            Self::Plans | Self::Given | Self::Raised => 2,
            _ => 4,
        }
    }

    /// Under which plan a request is.
    pub fn plan(self, step: Step, before: usize, spec: &Spec) -> usize {
        let plans = spec.plans.len();
        let changes = (step.other / 64).is_multiple_of(self.plan_changes());
        let next = usize::from(step.other % 64);
        if matches!(self, Self::Raised | Self::Joint) && changes && next % 3 == 0 {
            let raise = usize::from(step.size / 4) % (FACTORS.len() + 1);
            return before % RAISED + raise * RAISED;
        }
        if plans == 0 || !changes && (self != Self::Given || before > 0) {
            return before;
        }
        match self {
            Self::Raised => before / RAISED * RAISED + next % (plans + 1),
            Self::Given => plans + 1 + next % plans,
            Self::Mixed | Self::Joint => next % (2 * plans + 1),
            _ => next % (plans + 1),
        }
    }
}

/// What may happen, and when it begins.
#[derive(Debug, Clone)]
pub struct Setup {
    pub theme: Theme,
    /// The first one holds at the beginning; reloads choose among all.
    pub specs: Vec<Spec>,
    pub start: u64,
}

/// A history, as drawn.
#[derive(Debug, Clone)]
pub struct History {
    pub setup: Setup,
    pub steps: Vec<Step>,
}

pub fn way(algorithm: Algorithm) -> impl Strategy<Value = Way> {
    let sub_windows = prop_oneof![4 => 1..6_u16, 1 => Just(16), 2 => Just(64), 1 => Just(1_024)];
    sub_windows.prop_map(move |sub_windows| Way {
        algorithm,
        sub_windows,
    })
}

pub fn quota() -> impl Strategy<Value = Quota> {
    let max = prop_oneof![
        6 => 1..4_u64,
        6 => 1..9_u64,
        2 => 9..120_u64,
        1 => Just(0),
        1 => select(vec![997, 1_000, 1_500, 65_537, 1_000_003]),
        1 => select(vec![1_000_000_000_039, Quota::MAX_UNITS - 6, Quota::MAX_UNITS]),
    ];
    let millis = prop_oneof![
        6 => 1..8_u64,
        4 => 8..64_u64,
        2 => select(vec![97, 1_000, 1_009, 60_000]),
        1 => select(vec![86_400_000, 3_650 * 86_400_000]),
    ];
    let burst = prop_oneof![
        6 => Just(None),
        5 => (1..9_u64).prop_map(Some),
        1 => (9..2_000_u64).prop_map(Some),
    ];
    (max, millis, burst).prop_map(|(max, millis, burst)| {
        let quota = Quota::new(Duration::from_millis(millis), max).expect("within bounds");
        // A burst that takes more than ten years to drain cannot be.
        burst.map_or(quota, |burst| quota.with_burst(burst).unwrap_or(quota))
    })
}

pub fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    use prop::collection::vec;
    prop_oneof![5 => vec(quota(), 1), 3 => vec(quota(), 2), 1 => vec(quota(), 3)]
}

/// An instant at which a clock may stand, also where no server is.
pub fn any_start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        3 => 0..3_000_u64,
        3 => 1_760_000_000_000_000..1_760_000_000_010_000_u64,
        1 => Just(u64::MAX / 4),
    ]
}

pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = any::<(u16, u16, u16, u16)>().prop_map(|(wait, act, size, other)| Step {
        wait,
        act,
        size,
        other,
    });
    prop::collection::vec(step, 1..=most)
}

/// The first quota of each window.
pub fn limits(quotas: Vec<Quota>) -> Vec<Limit> {
    of_other_windows(quotas.into_iter().map(Limit::of))
}

/// Without those that have the window of an earlier one of the same count.
fn of_other_windows(limits: impl IntoIterator<Item = Limit>) -> Vec<Limit> {
    let mut known = HashSet::new();
    let key = |limit: &Limit| (limit.quota.map(|it| it.window()), limit.has_own_cost);
    let limits = limits.into_iter();
    limits.filter(|limit| known.insert(key(limit))).collect()
}

/// No log is written that holds more than two of the largest quotas, as one may where the window of
/// another plan is many times as long: its running totals go up to 2^52.
fn of_plans(way: Way, mut quotas: Vec<Quota>) -> Vec<Quota> {
    if way.algorithm == Algorithm::SlidingLog {
        for quota in &mut quotas {
            let max = quota.max().min(Quota::MAX_UNITS / 32);
            *quota = Quota::new(quota.window(), max).expect("within bounds");
        }
    }
    quotas
}

/// What has these quotas, and nothing else.
pub fn spec(way: Way, own: Vec<Quota>) -> Spec {
    Spec {
        way,
        own: limits(own),
        plans: Vec::new(),
        is_outgoing: false,
    }
}

/// A few quotas, which rules have in common.
fn pooled(ways: impl Strategy<Value = Way>) -> impl Strategy<Value = Vec<Spec>> {
    let ways = prop::collection::vec(ways, 3);
    let picks = prop::collection::vec(0..9_usize, 3);
    let pool = prop::collection::vec(quota(), 3);
    (ways, picks, pool).prop_map(|(ways, picks, pool)| {
        let specs = ways.into_iter().zip(picks).map(|(way, pick)| {
            let (first, second) = (pick / 3, pick % 3);
            match first == second {
                true => spec(way, vec![pool[first]]),
                false => spec(way, vec![pool[first], pool[second]]),
            }
        });
        specs.collect()
    })
}

/// A rule with plans, and the same without some of them.
fn planned(algorithm: Algorithm, plans: Range<usize>) -> impl Strategy<Value = Vec<Spec>> {
    let plans = prop::collection::vec(quotas(), plans);
    (way(algorithm), quotas(), plans).prop_map(|(way, own, plans)| {
        let mut whole = spec(way, of_plans(way, own));
        let plans = plans.into_iter().map(|it| limits(of_plans(way, it)));
        whole.plans = plans.map(Some).collect();
        let without = (0..whole.plans.len()).map(|at| {
            let mut lost = whole.clone();
            lost.plans[at] = None;
            lost
        });
        let without: Vec<_> = without.collect();
        [vec![whole], without].concat()
    })
}

/// A long window of few units, a short one that admits more, and a long one of many, which finds
/// all that was admitted.
fn longer(algorithm: Algorithm) -> impl Strategy<Value = Vec<Spec>> {
    let quotas = |max: Range<u64>, millis| {
        let quota = (max, select(millis));
        quota.prop_map(|(max, millis)| Quota::new(Duration::from_millis(millis), max))
    };
    let few = quotas(2..5, vec![5, 10, 20]);
    let short = quotas(2..9, vec![1, 2]);
    let many = quotas(8..40, vec![5, 10, 20, 50]);
    (way(algorithm), few, short, many).prop_map(|(way, few, short, many)| {
        let specs = [few, short, many].map(|quota| spec(way, vec![quota.expect("valid")]));
        specs.into()
    })
}

fn mixed(algorithm: Algorithm) -> impl Strategy<Value = Vec<Spec>> {
    use prop::collection::vec;
    let other = select(Algorithm::ALL.to_vec()).prop_flat_map(way);
    let ways = prop_oneof![3 => way(algorithm).boxed(), 1 => other.boxed()];
    let plans = prop_oneof![2 => vec(quotas(), 0..1), 1 => vec(quotas(), 1..3)];
    let one = (ways, quotas(), plans).prop_map(|(way, own, plans)| {
        let mut spec = spec(way, own);
        spec.plans = plans.into_iter().map(|it| Some(limits(it))).collect();
        spec
    });
    (way(algorithm), vec(one, 4)).prop_map(|(way, mut specs)| {
        specs[0].way = way;
        specs
    })
}

fn joint_limits(has_each: bool) -> impl Strategy<Value = Vec<Limit>> {
    let millis = select(vec![1_u64, 3, 10, 1_000, 60_000]);
    let max = prop_oneof![4 => 0..12_u64, 1 => 0..200_u64];
    let burst = prop_oneof![4 => Just(None), 1 => (1..20_u64).prop_map(Some)];
    let quota = (millis, max, burst).prop_map(|(millis, max, burst)| {
        let quota = Quota::new(Duration::from_millis(millis), max).expect("valid");
        burst.map_or(quota, |burst| quota.with_burst(burst).expect("valid"))
    });
    let limit = (quota, any::<u8>()).prop_map(|(quota, cost)| Limit {
        has_own_cost: cost >= 192,
        ..Limit::of(quota)
    });
    let of_subject = (prop::collection::vec(limit, 1..4), any::<(u8, u8, u8)>());
    prop::collection::vec(of_subject, 3).prop_map(move |of_subjects| {
        let mut limits = Vec::new();
        for (name, (own, (number, has_permits, permits))) in SUBJECTS.into_iter().zip(&of_subjects)
        {
            // Half of them are as the scripts' usual case wants them.
            let number = usize::from(number / 64).min(own.len());
            let number = if has_each { number.max(1) } else { number };
            let own = of_other_windows(own[..number].iter().cloned());
            limits.extend(own.into_iter().map(|limit| Limit {
                subject: Some(name),
                ..limit
            }));
            if *has_permits >= 200 {
                limits.push(Limit {
                    subject: Some(name),
                    quota: None,
                    permits: [1, 0, 1, 2, 3][usize::from(permits % 5)],
                    has_own_cost: false,
                });
            }
        }
        limits
    })
}

fn joint(algorithm: Algorithm) -> impl Strategy<Value = Vec<Spec>> {
    let plan = (joint_limits(false), any::<u8>());
    let one = (joint_limits(true), prop::collection::vec(plan, 2));
    let way = Way {
        algorithm,
        sub_windows: 7,
    };
    let spec = one.prop_map(move |(own, plans)| {
        let plans = plans.into_iter();
        let plans = plans.map(|(it, has)| (has >= 180 && !it.is_empty()).then_some(it));
        Spec {
            own,
            plans: plans.collect(),
            ..spec(way, Vec::new())
        }
    });
    prop::collection::vec(spec, 3)
}

/// Histories about this, that begin at such an instant.
pub fn history(
    algorithm: Algorithm,
    theme: Theme,
    start: impl Strategy<Value = u64> + 'static,
) -> BoxedStrategy<History> {
    let most = match theme {
        Theme::Longer => 48,
        Theme::Given | Theme::Joint | Theme::Raised => 40,
        _ => 24,
    };
    history_of(most, algorithm, theme, start)
}

/// The same of at most so many steps.
pub fn history_of(
    most: usize,
    algorithm: Algorithm,
    theme: Theme,
    start: impl Strategy<Value = u64> + 'static,
) -> BoxedStrategy<History> {
    let of = |plans| planned(algorithm, plans);
    let specs = match theme {
        Theme::Plain | Theme::Clock => {
            let one = (way(algorithm), quotas());
            one.prop_map(|(way, own)| vec![spec(way, own)]).boxed()
        }
        Theme::Owed => prop_oneof![
            3 => (way(algorithm), quotas()).prop_map(|(way, own)| vec![spec(way, own)]),
            1 => planned(algorithm, 1..3),
        ]
        .boxed(),
        Theme::Reloads => pooled(way(algorithm)).boxed(),
        Theme::Plans => planned(algorithm, 1..3).boxed(),
        Theme::Raised => planned(algorithm, 0..3).boxed(),
        Theme::Given => prop_oneof![4 => of(2..6), 1 => of(17..20)].boxed(),
        Theme::Longer => longer(algorithm).boxed(),
        Theme::Mixed => mixed(algorithm).boxed(),
        Theme::Holds => {
            // Of units alone, or in two counts: of requests and of units.
            let at_one = prop_oneof![2 => Just(Vec::new()), 1 => quotas()];
            let one = (way(algorithm), quotas(), at_one);
            let one = one.prop_map(|(way, own, at_one)| {
                let mut spec = spec(way, own);
                let has_own_cost = true;
                let at_one = limits(at_one).into_iter();
                let at_one = at_one.map(|limit| Limit {
                    has_own_cost,
                    ..limit
                });
                let own = at_one.chain(spec.own.drain(..)).collect::<Vec<_>>();
                let subject = own[0].has_own_cost.then_some(SUBJECTS[0]);
                let own = own.into_iter().map(|limit| Limit { subject, ..limit });
                spec.own = own.collect();
                spec.is_outgoing = true;
                vec![spec]
            });
            one.boxed()
        }
        Theme::Joint => joint(algorithm).boxed(),
    };
    let all = (specs, start, steps(most)).prop_map(move |(specs, start, steps)| History {
        setup: Setup {
            theme,
            specs,
            start,
        },
        steps,
    });
    all.boxed()
}

/// Any of these.
pub fn any_of(
    algorithm: Algorithm,
    themes: &[(u32, Theme)],
    start: impl Strategy<Value = u64> + Clone + 'static,
) -> BoxedStrategy<History> {
    let of = |(weight, theme): &(u32, Theme)| (*weight, history(algorithm, *theme, start.clone()));
    Union::new_weighted(themes.iter().map(of).collect()).boxed()
}

/// What there is to aim at.
#[derive(Debug, Clone, Default)]
pub struct Aim {
    pub now: u64,
    /// Of what was charged.
    pub stamps: Vec<u64>,
    pub retry: Option<Duration>,
    pub reset: Option<Duration>,
    /// As the last decision said.
    pub left: u64,
    /// The least of those that limit.
    pub limit: u64,
    pub quotas: Vec<Quota>,
    pub sub_windows: u16,
}

impl Aim {
    /// The instant to which a wait leads; never back.
    pub fn instant(&self, wait: u16) -> u64 {
        let (now, size) = (self.now, u64::from(wait / 16));
        let Some(quota) = self.quotas.get(size as usize % self.quotas.len().max(1)) else {
            return now;
        };
        let window = window(quota);
        let beside = |instant: u64| (instant + size % 3).saturating_sub(1);
        let edge = || {
            let stamps = &self.stamps;
            let stamp = stamps.get(size as usize / 3 % stamps.len().max(1));
            stamp.map_or(now, |stamp| beside(stamp + window))
        };
        let later = match wait % 16 {
            0..=2 => now,
            3 => now + 1,
            4 => now + size % 1_000,
            5 => beside(now + 1_000),
            6 | 7 => beside(now + window / 16 * (size / 3 % 18)),
            8 => beside(now + window / quota.max().max(1) * (1 + size / 3 % 4)),
            9 => beside(now + window / u64::from(self.sub_windows)),
            10..=12 => edge(),
            13 => now + micros(self.retry) + size / 8 % 2,
            14 => (now + micros(self.retry)).saturating_sub(1),
            _ => (now + micros(self.reset)).saturating_sub(size % 2),
        };
        later.max(now)
    }

    /// How much is asked for: mostly little, and often just about what fits.
    pub fn cost(&self, size: u16) -> u64 {
        let (part, limit, left) = (u64::from(size / 16), self.limit, self.left);
        match size % 16 {
            0..=5 => 1,
            6 | 7 => 2,
            8 => 3,
            9 => 1 + part % limit.max(1),
            10 => limit / 2 + 1,
            11 => limit.max(1),
            12 if part.is_multiple_of(64) => u64::MAX,
            12 => limit.saturating_add(1),
            13 | 14 => left.max(1),
            _ => left.saturating_add(1),
        }
    }

    /// The costs of takes in one call.
    pub fn costs(&self, step: Step) -> Vec<u64> {
        let number = match step.other / 256 % 4 {
            0 => 2 + step.other / 1024 % 24,
            more => 1 + more,
        };
        let costs = (0..number).map(|at| match step.other % 4 {
            0 => self.cost(step.size.wrapping_add(at * 7)),
            1 => u64::from(step.size.wrapping_add(at) % 4),
            _ => self.cost(step.size),
        });
        costs.collect()
    }

    /// So many units are owed, and at most so many may be beyond a limit.
    pub fn owed(&self, step: Step) -> (u64, Option<u64>) {
        // No count is written that holds more than two of the largest quotas.
        let is_large = self.quotas.iter().any(|it| it.max() > Quota::MAX_UNITS / 4);
        let units = match step.size % 16 {
            15 if !is_large => u64::MAX,
            _ => u64::from(step.size / 16) % (2 * self.limit.min(1_000) + 3),
        };
        let at_most = match step.other % 8 {
            0 | 1 => Some(u64::from(step.other / 8) % 20),
            2 => Some(u64::MAX),
            3 => Some(Quota::MAX_UNITS),
            _ => None,
        };
        (units, at_most)
    }

    /// By how much the clock steps: small and large, and about as long as a window.
    pub fn clock_step(&self, step: Step) -> i64 {
        let part = i64::from(step.size / 32);
        let window = self.quotas.first().map_or(1_000, window);
        let window = i64::try_from(window).expect("at most ten years");
        let by = match step.size / 2 % 16 {
            0..=2 => 1 + part,
            3 | 4 => 1_000 * (1 + part % 8),
            5..=8 => window / 4 * (1 + part % 7),
            9..=11 => window + part % 3 - 1,
            12 | 13 => 3 * window,
            _ => 1_000_000 * window.min(10_000_000),
        };
        by.min(900_000_000_000_000)
    }
}

/// Some or all of what was charged, or more.
pub fn part_of(units: u64, size: u16) -> u64 {
    match size % 8 {
        0..=3 => units,
        4 => 1,
        5 => units / 2 + 1,
        6 => units + 1,
        _ => u64::MAX,
    }
}

pub fn micros(duration: Option<Duration>) -> u64 {
    let micros = duration.unwrap_or_default().as_micros();
    u64::try_from(micros).expect("a wait fits")
}

/// What a run met. A law that was never put to the test holds for nothing.
#[derive(Debug, Default)]
pub struct Seen(RefCell<BTreeMap<&'static str, u64>>);

impl Seen {
    pub fn note_if(&self, condition: bool, what: &'static str) {
        *self.0.borrow_mut().entry(what).or_default() += u64::from(condition);
    }

    /// So many times in 800 histories, less a quarter by chance.
    pub fn expect(&self, times: u64, what: &'static str) {
        let least = (number_of_histories(times) * 3).div_ceil(4);
        let met = self.0.borrow().get(what).copied().unwrap_or(0);
        assert!(met >= least, "only {met} of {least} {what}: {self:?}");
    }
}

/// A law that does not hold, or two that differ.
pub type Broken = String;

/// Plays so many histories, `at_once` of them together. One that fails is shrunk, alone, and told
/// with what makes it come again.
///
/// # Panics
///
/// If one fails.
pub fn check<S: Strategy>(
    number: u64,
    at_once: u64,
    strategy: &S,
    play: impl Fn(&[S::Value]) -> Vec<Result<(), Broken>>,
) {
    let config = Config {
        // The default spends more time than all that it is drawn for, when nothing is optimised.
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(random::seed(1)),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    for first in (0..number).step_by(at_once as usize) {
        let trees = (first..number.min(first + at_once)).map(|_| strategy.new_tree(&mut runner));
        let mut trees: Vec<_> = trees.map(|tree| tree.expect("a history")).collect();
        let drawn: Vec<_> = trees.iter().map(ValueTree::current).collect();
        let outcomes = play(&drawn);
        let failed = outcomes.into_iter().enumerate();
        let Some((at, Err(broken))) = failed.into_iter().find(|(_, it)| it.is_err()) else {
            continue;
        };
        let (broken, steps) = shrink(&mut trees[at], broken, &play);
        panic!(
            "{broken}\nhistory {}, shrunk {steps} times; TIDEGATE_SEED={} plays it again",
            first + at as u64,
            random::of_the_run()
        );
    }
}

/// Checks a law of one case for so many of them.
pub fn check_each<S: Strategy>(
    number: u64,
    strategy: &S,
    law: impl Fn(&S::Value, &Seen) -> Result<(), Broken>,
) -> Seen {
    let seen = Seen::default();
    check(number, 1, strategy, |drawn| {
        drawn.iter().map(|one| law(one, &seen)).collect()
    });
    seen
}

fn shrink<T: ValueTree>(
    tree: &mut T,
    mut broken: Broken,
    play: &impl Fn(&[T::Value]) -> Vec<Result<(), Broken>>,
) -> (Broken, u32) {
    let mut steps = 0;
    let mut goes_on = tree.simplify();
    while goes_on && steps < 4_000 {
        steps += 1;
        match play(&[tree.current()]).remove(0) {
            Err(simpler) => {
                broken = simpler;
                goes_on = tree.simplify();
            }
            Ok(()) => goes_on = tree.complicate(),
        }
    }
    (broken, steps)
}

/// A test of each of these laws for everything in the list: `name argument`. Behind `async` they
/// are futures.
#[macro_export]
macro_rules! for_each {
    ($law:ident { $($name:ident $argument:expr,)+ }) => {
        mod $law {
            #[allow(unused_imports, reason = "as the arguments need them")]
            use tidegate::Algorithm::{self, *};

            $(
                #[test]
                fn $name() {
                    super::$law($argument);
                }
            )+
        }
    };
    (async $law:ident { $($name:ident $argument:expr,)+ }) => {
        mod $law {
            #[allow(unused_imports, reason = "as the arguments need them")]
            use tidegate::Algorithm::{self, *};

            $(
                #[tokio::test]
                async fn $name() {
                    super::$law($argument).await;
                }
            )+
        }
    };
    ($($law:ident),+ of $list:tt) => {
        $($crate::for_each!($law $list);)+
    };
    (async $($law:ident),+ of $list:tt) => {
        $($crate::for_each!(async $law $list);)+
    };
}

// Each has its line below.
const _: () = assert!(tidegate::Algorithm::ALL.len() == 4);

#[macro_export]
macro_rules! for_each_algorithm {
    (async $($law:ident),+ $(,)?) => {
        $crate::for_each_algorithm!(@ async $($law),+);
    };
    ($($law:ident),+ $(,)?) => {
        $crate::for_each_algorithm!(@ $($law),+);
    };
    (@ $($laws:tt)+) => {
        $crate::for_each!($($laws)+ of {
            sliding_log SlidingLog,
            sliding_window SlidingWindow,
            gcra Gcra,
            fixed_window FixedWindow,
        });
    };
}
