//! Answers a denied key until the denial is over: see
//! [`Resilient::denial_cache`](super::Resilient::denial_cache).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::spec::Spec;
use crate::clock::{Clock, nanos};
use crate::decision::{Decision, Source, Verdict};
use crate::error::StoreError;
use crate::question::{Ask, CountAsk, Name};
use crate::sync::lock;

/// The denials that are kept. The place of a rule and key is given by their hash, which no client
/// can choose, so neither the number of keys nor a flood of them makes a look take longer.
pub(super) struct Denials {
    sets: Box<[Mutex<DenialSet>]>,
    /// What has become of the counts of joint takes.
    changes: CountChanges,
    max_per_set: usize,
    /// In nanoseconds.
    max_age: u64,
    clock: Clock,
}

impl Denials {
    /// The largest number of keys.
    const MAX_KEYS: usize = 1_000_000;

    /// For at most `max_keys` denials; with none of them, or without age, the cache is off.
    pub(super) fn new(max_keys: usize, max_age: Duration, clock: Clock) -> Self {
        let max_keys = max_keys.min(Self::MAX_KEYS);
        let max_per_set = max_keys.clamp(1, MAX_DENIALS);
        let sets = (0..max_keys / max_per_set).map(|_| Mutex::default());
        Self {
            sets: sets.collect(),
            changes: CountChanges::default(),
            max_per_set,
            max_age: nanos(max_age),
            clock,
        }
    }

    /// The take that the store has to answer. `None` if its answer is not remembered.
    ///
    /// # Errors
    ///
    /// The denial that answers this take.
    pub(super) fn look(self: &Arc<Self>, ask: &Ask) -> Result<Option<PendingTake>, Decision> {
        if ask.cost() == 0 || ask.is_repeat() || self.max_age == 0 {
            return Ok(None);
        }
        let hash = ask.hash();
        let Some(mut set) = self.set(hash) else {
            return Ok(None);
        };
        let changes = self.changes.version(ask);
        // Read under the lock: a thread that waits for the lock would come with an old instant.
        let now = self.clock.nanos();
        let question = set.look(ask, changes, now, self.max_age)?;
        let denials = Arc::clone(self);
        Ok(Some(PendingTake {
            denials,
            hash,
            question,
        }))
    }

    /// Voids what is kept of this take's counts. Nothing of them is kept before the guard is
    /// dropped, nor later if it was asked before.
    pub(super) fn begin_change(self: &Arc<Self>, ask: &Ask) -> ChangeGuard {
        let hash = ask.hash();
        self.changes.begin(ask);
        if let Some(mut set) = self.set(hash) {
            set.begin_change(hash);
        }
        ChangeGuard {
            denials: Arc::clone(self),
            hash,
            ask: ask.clone(),
        }
    }

    /// The set of this hash; `None` if there is no room for any denial.
    fn set(&self, hash: u64) -> Option<MutexGuard<'_, DenialSet>> {
        // The upper half of the hash, as a fraction of the number of sets.
        let at = (u128::from(hash) * self.sets.len() as u128) >> 64;
        let set = self.sets.get(usize::try_from(at).ok()?)?;
        Some(lock(set))
    }
}

/// A refund or a reset, until it is answered or dropped.
pub(super) struct ChangeGuard {
    denials: Arc<Denials>,
    hash: u64,
    ask: Ask,
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.denials.changes.end(&self.ask);
        if let Some(mut set) = self.denials.set(self.hash) {
            set.end_change();
        }
    }
}

/// The refunds and resets of counts that several takes may have in common, by the hashes of their
/// names. Counts that share a place void more denials than they have to.
///
/// Each element holds, in its lower half, how many of them wait for their answer, and in the upper
/// half how many have begun and how many have ended.
struct CountChanges(Box<[AtomicU64]>);

impl CountChanges {
    const NUMBER: usize = 1_024;
    const ONE: u64 = 1 << 32;

    fn at(&self, count: &CountAsk) -> &AtomicU64 {
        &self.0[count.hash() as usize % Self::NUMBER]
    }

    fn begin(&self, ask: &Ask) {
        self.add(ask, Self::ONE + 1);
    }

    fn end(&self, ask: &Ask) {
        self.add(ask, Self::ONE - 1);
    }

    fn add(&self, ask: &Ask, number: u64) {
        for count in ask.counts() {
            self.at(count).fetch_add(number, Ordering::SeqCst);
        }
    }

    /// A number that differs after each change of one of the counts of a joint take.
    fn version(&self, ask: &Ask) -> u64 {
        let add =
            |sum: u64, count: &CountAsk| sum.wrapping_add(self.at(count).load(Ordering::SeqCst));
        match ask.is_joint() {
            true => ask.counts().iter().fold(0, add),
            // Its set knows of the changes of its count.
            false => 0,
        }
    }

    /// Whether none of these changes waits for its answer.
    const fn are_over(changes: u64) -> bool {
        changes & (Self::ONE - 1) == 0
    }
}

impl Default for CountChanges {
    fn default() -> Self {
        Self((0..Self::NUMBER).map(|_| AtomicU64::new(0)).collect())
    }
}

/// A take that the store has to answer. If it is dropped without an answer, the denial that it was
/// to renew is void.
pub(super) struct PendingTake {
    denials: Arc<Denials>,
    hash: u64,
    question: AskedQuestion,
}

impl PendingTake {
    /// Keeps the store's answer if it is a denial.
    pub(super) fn answered(mut self, ask: &Ask, answer: &Result<Decision, StoreError>) {
        let denial = answer.as_ref().ok().and_then(|decision| {
            let now = || self.denials.clock.nanos();
            CachedDenial::new(ask, decision, &self.question, now)
        });
        let changes = self.question.changes;
        let denial = denial.filter(|_| {
            CountChanges::are_over(changes) && changes == self.denials.changes.version(ask)
        });
        self.end(denial.map(|denial| (ask, denial)));
    }

    fn end(&mut self, denial: Option<(&Ask, CachedDenial)>) {
        if denial.is_none() && self.question.renewal.is_none() {
            return;
        }
        if let Some(mut set) = self.denials.set(self.hash) {
            set.answered(&self.question, denial, self.denials.max_per_set);
        }
        self.question.renewal = None;
    }
}

impl Drop for PendingTake {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// For how long it is kept that a key is locked out.
const MAX_LOCKED_OUT: Duration = Duration::from_secs(1);

/// The most denials of one set.
const MAX_DENIALS: usize = 8;

/// Denials of rules and keys whose hashes lead to the same place, under one lock.
#[derive(Default)]
struct DenialSet {
    denials: Vec<CachedDenial>,
    /// How often denials were voided: an answer to a question from before is not kept.
    voids: u64,
    /// How many refunds and resets wait for their answer: until then, no denial is kept.
    changes: usize,
    /// How many questions were asked to renew a denial.
    renewals: u64,
    /// How often a denial was kept or told.
    uses: u64,
}

/// Describes a question that goes to the store, until its answer comes.
struct AskedQuestion {
    asked_at: u64,
    voids: u64,
    /// Those of the counts of a joint take.
    changes: u64,
    /// The number of the question, if it is to renew a denial.
    renewal: Option<u64>,
}

impl DenialSet {
    /// The question to the store, if the store has to answer.
    ///
    /// # Errors
    ///
    /// The denial that answers this take.
    fn look(
        &mut self,
        ask: &Ask,
        changes: u64,
        now: u64,
        max_age: u64,
    ) -> Result<AskedQuestion, Decision> {
        let mut question = AskedQuestion {
            asked_at: now,
            voids: self.voids,
            changes,
            renewal: None,
        };
        let mut denials = self.denials.iter_mut();
        let Some(at) = denials.position(|denial| denial.answers(ask)) else {
            return Ok(question);
        };
        let denial = &mut self.denials[at];
        match denial.age(now, max_age) {
            _ if denial.changes != changes => {
                self.denials.swap_remove(at);
            }
            Age::Due if denial.renewal.is_none() => {
                self.renewals += 1;
                denial.renewal = Some(self.renewals);
                question.renewal = denial.renewal;
            }
            Age::Fresh | Age::Due => {
                self.uses += 1;
                denial.last_use = self.uses;
                return Err(denial.aged(now));
            }
            Age::Over => {
                self.denials.swap_remove(at);
            }
        }
        Ok(question)
    }

    /// The store answered the question, by this denial or otherwise; or nobody hears the answer.
    fn answered(
        &mut self,
        question: &AskedQuestion,
        denial: Option<(&Ask, CachedDenial)>,
        max: usize,
    ) {
        if question.renewal.is_some() {
            self.denials
                .retain(|denial| denial.renewal != question.renewal);
        }
        let may_keep = self.changes == 0 && question.voids == self.voids;
        if let Some((ask, denial)) = denial.filter(|_| may_keep) {
            self.keep(ask, denial, max);
        }
    }

    /// Keeps the later one of two denials of the same question. In a set that is full, the denial
    /// goes that was not used for the longest time.
    fn keep(&mut self, ask: &Ask, mut denial: CachedDenial, max: usize) {
        self.uses += 1;
        denial.last_use = self.uses;
        let mut same = self.denials.iter_mut().filter(|kept| kept.answers(ask));
        if let Some(kept) = same.next() {
            if kept.asked_at < denial.asked_at {
                *kept = denial;
            }
            return;
        }
        if self.denials.len() < max {
            self.denials.push(denial);
        } else if let Some(kept) = self.denials.iter_mut().min_by_key(|kept| kept.last_use) {
            *kept = denial;
        }
    }

    /// A refund or a reset of this hash begins: its denials are void.
    fn begin_change(&mut self, hash: u64) {
        self.changes += 1;
        self.denials.retain(|denial| denial.hash != hash);
    }

    /// It has ended. What was asked before may have been decided before.
    fn end_change(&mut self) {
        self.changes -= 1;
        self.voids += 1;
    }
}

/// A store's denial, and the question that it answered. Instants are nanoseconds of this process's
/// clock.
struct CachedDenial {
    /// The hash of the rule's id and the key.
    hash: u64,
    /// It does not keep what was replaced, and nothing else gets its address.
    counts: SmallVec<[(Name, Weak<Spec>); 1]>,
    cost: u64,
    decision: Decision,
    /// Those of the counts of a joint take, when it was asked.
    changes: u64,
    /// Before the question was sent: the store decided at this instant or later.
    asked_at: u64,
    /// After the answer had come: the store decided at this instant or earlier.
    answered_at: u64,
    /// The retry-after; without an end for a take that can never be allowed.
    valid_for: u64,
    /// The number of the set's use in which this was kept or used last.
    last_use: u64,
    /// The number of the question that asks the store again.
    renewal: Option<u64>,
}

/// Says who answers a question about a key whose denial is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The denial.
    Fresh,
    /// The store answers one question, and the denial the others.
    Due,
    /// The store.
    Over,
}

impl CachedDenial {
    /// `None` if the decision is no denial, or that of a fallback.
    fn new(
        ask: &Ask,
        decision: &Decision,
        question: &AskedQuestion,
        now: impl FnOnce() -> u64,
    ) -> Option<Self> {
        let mut valid_for = match decision.verdict() {
            // When it is over, nobody knows.
            Verdict::Allowed | Verdict::Busy { .. } => return None,
            Verdict::Denied { retry_after }
            | Verdict::OnHold { retry_after }
            | Verdict::LockedOut { retry_after } => nanos(retry_after),
            Verdict::Never => u64::MAX,
        };
        // Another process may end it.
        if decision.is_locked_out() {
            valid_for = valid_for.min(nanos(MAX_LOCKED_OUT));
        }
        let counts = ask.counts().iter();
        let counts = counts.map(|it| (it.name_in_store().clone(), Arc::downgrade(it.spec())));
        decision.failure().is_none().then(|| Self {
            hash: ask.hash(),
            counts: counts.collect(),
            cost: ask.cost(),
            decision: decision.clone(),
            changes: question.changes,
            asked_at: question.asked_at,
            answered_at: now(),
            valid_for,
            last_use: 0,
            renewal: None,
        })
    }

    fn answers(&self, ask: &Ask) -> bool {
        self.hash == ask.hash()
            && self.cost == ask.cost()
            && self.counts.len() == ask.counts().len()
            && self
                .counts
                .iter()
                .zip(ask.counts())
                .all(|((name, spec), count)| {
                    spec.as_ptr() == Arc::as_ptr(count.spec()) && name == count.name_in_store()
                })
    }

    /// The denial is over before the store's: its time begins before the store decided, and a
    /// thousandth is left for a server whose clock runs faster.
    fn age(&self, now: u64, max_age: u64) -> Age {
        let age = now.saturating_sub(self.asked_at);
        let at_servers_pace = age.saturating_add(age / 1_000);
        // Early enough that the answer is there at the max age.
        let due = max_age - max_age / 4;
        if at_servers_pace >= self.valid_for || age >= max_age {
            Age::Over
        } else if age >= due {
            Age::Due
        } else {
            Age::Fresh
        }
    }

    /// The denial as it is repeated now. The retry-after ends when that of the first caller does,
    /// who heard of the denial when the store's answer came.
    fn aged(&self, now: u64) -> Decision {
        let micros = now.saturating_sub(self.answered_at) / 1_000;
        let age = Duration::from_micros(micros);
        self.decision.aged_by(age, Source::Cache)
    }
}
