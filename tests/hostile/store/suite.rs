//! `test_util::conformance::check` notices stores that make a mistake: each of these makes one, and
//! is right otherwise.

use tidegate::rule::Period;
use tidegate::store::{Ask, Capabilities, Change};
use tidegate::test_util::conformance;

use crate::prelude::*;

/// What stores do wrong.
macro_rules! mistakes {
    ($mistake:ident: $($(#[$doc:meta])* $name:ident,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum $mistake {
            None,
            $($(#[$doc])* $name,)+
        }

        impl $mistake {
            /// All but none.
            const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

/// A store that makes a mistake, and answers at once.
trait Mistaken: std::fmt::Debug + Send + Sync + 'static {
    fn decide(&self, ask: &Ask) -> Decision;
    fn give_back(&self, ask: &Ask, receipt: &Receipt) -> u64;
    fn forget_count(&self, ask: &Ask) -> u64;

    fn has_periods(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Ready<T>(T);

impl<T: Mistaken> Store for Ready<T> {
    fn take(&self, take: &Ask) -> StoreFuture<Decision> {
        StoreFuture::ready(Ok(self.0.decide(take)))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(match change {
            Change::Refund(receipt) => self.0.give_back(ask, receipt),
            Change::Forget => self.0.forget_count(ask),
            _ => unreachable!("the suite asks for what the store says that it can"),
        }))
    }

    fn name(&self) -> String {
        format!("{:?}", self.0)
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.calendar = self.0.has_periods();
        can
    }
}

/// The answer of a store in memory.
fn at_once<T>(mut answer: StoreFuture<T>) -> T {
    let answer = answer.poll_now().expect("memory answers at once");
    answer.expect("an answer")
}

mistakes! {
    Mistake:
    /// A quota of one unit more, with answers as if it had not.
    AdmitsOneTooMany,
    /// Denied takes use up what is left.
    ChargesDenials,
    /// A take that costs nothing is charged a unit.
    LooksAreCharged,
    /// Nothing is ever given back.
    RefundsNothing,
    /// The answer says that units were given back, and they were not.
    RefundsInWordsOnly,
    /// The second refund of a receipt says the same as the first.
    RefundsAgainInWords,
    /// A refund of a part gives all back.
    RefundsAll,
    /// A refund of what no longer counts is told as if it did.
    RefundsLate,
    /// Allowed takes have no receipts.
    NoReceipts,
    /// Receipts say one unit, whatever was charged.
    ReceiptsOfOneUnit,
    ResetsNothing,
    /// A reset forgets all keys.
    ResetsEverything,
    /// By a microsecond, as the next one and the last.
    RetryAfterTooShort,
    RetryAfterTooLong,
    /// A take that can never fit is told to come back.
    NeverIsLater,
    /// All keys of a rule are counted together.
    OneKey,
    /// Only the first quota of a rule is kept.
    FirstQuotaOnly,
    /// The answer says that a unit more remains than does.
    OneRemainsTooMany,
    ResetAfterTooShort,
}

/// A memory store with a mistake.
#[derive(Debug)]
struct Wrong {
    inner: MemoryStore,
    mistake: Mistake,
    clock: ManualClock,
    seen: Mutex<Vec<Ask>>,
    given_back: Mutex<HashMap<Receipt, u64>>,
}

/// The rule with these quotas.
fn with_quotas(rule: &Arc<Rule>, quotas: Vec<Quota>) -> Arc<Rule> {
    let mut other = Rule::new(rule.path(), quotas).expect("a valid rule");
    if let Some(prefix) = rule.prefix() {
        other = other.with_prefix(prefix);
    }
    Arc::new(other.with_algorithm(rule.algorithm()))
}

fn one_more(quota: &Quota) -> Quota {
    if quota.max() == 0 {
        return *quota;
    }
    let more = Quota::new(quota.window(), quota.max() + 1).expect("valid");
    match quota.burst() == quota.max() {
        true => more,
        false => more.with_burst(quota.burst() + 1).expect("valid"),
    }
}

/// The decision with these states.
fn rewritten(
    (take, decision): (&Ask, &Decision),
    verdict: Verdict,
    state: impl Fn(&QuotaState) -> QuotaState,
) -> Decision {
    let states = decision.quotas().iter().map(state);
    let cost = take.cost();
    Decision::new(verdict, decision.source(), cost, states).with_receipt(decision.receipt())
}

const MICRO: Duration = Duration::from_micros(1);

/// A rule and a key of this name, which count alike.
fn rule_and_key(ask: &Ask) -> (Arc<Rule>, Key) {
    let name = ask.name("");
    let (id, parts) = name.split_once(':').unwrap_or((&name, ""));
    let path = id.split('~').next().expect("a path");
    let rule = Rule::new(path, ask.quotas().to_vec()).expect("quotas of a rule");
    let algorithm = ask.counts()[0].algorithm().expect("no permits");
    let parts = parts.split(':').filter(|part| !part.is_empty());
    let key = parts.fold(Key::default(), |key, part| key.with(part));
    (Arc::new(rule.with_algorithm(algorithm)), key)
}

impl Mistaken for Wrong {
    fn decide(&self, take: &Ask) -> Decision {
        let (rule, key) = &rule_and_key(take);
        self.seen.lock().expect("no panic").push(take.clone());
        let ask = |take: &Ask| at_once(self.inner.take(take));
        match self.mistake {
            Mistake::AdmitsOneTooMany => {
                let quotas = rule.quotas().iter().map(one_more).collect();
                let laxer = Take::new(with_quotas(rule, quotas), key.clone());
                let decision = ask(&laxer.with_cost(take.cost()));
                return rewritten((take, &decision), decision.verdict(), |state| {
                    QuotaState::new(state.remaining().saturating_sub(1), state.reset_after())
                });
            }
            Mistake::LooksAreCharged if take.only_looks() => {
                let decision = ask(take);
                if decision.remaining() > 0 {
                    ask(&Take::new(Arc::clone(rule), key.clone()).with_cost(1));
                }
                return decision;
            }
            Mistake::OneKey => {
                return ask(&Take::new(Arc::clone(rule), Key::from("all")).with_cost(take.cost()));
            }
            Mistake::FirstQuotaOnly => {
                let first = with_quotas(rule, vec![rule.quotas()[0]]);
                let decision = ask(&Take::new(first, key.clone()).with_cost(take.cost()));
                let states = rule.quotas().iter().map(|_| decision.quotas()[0]);
                let (verdict, source) = (decision.verdict(), decision.source());
                let told = Decision::new(verdict, source, take.cost(), states);
                return told.with_receipt(decision.receipt());
            }
            _ => {}
        }
        let decision = ask(take);
        let denied = |retry_after| {
            let verdict = Verdict::Denied { retry_after };
            rewritten((take, &decision), verdict, |state| *state)
        };
        match (self.mistake, decision.verdict()) {
            (Mistake::ChargesDenials, Verdict::Denied { .. }) => {
                ask(&take.clone().with_cost(decision.remaining()));
                decision
            }
            (Mistake::RetryAfterTooShort, Verdict::Denied { retry_after: it }) => {
                denied(it - MICRO)
            }
            (Mistake::RetryAfterTooLong, Verdict::Denied { retry_after: it }) => denied(it + MICRO),
            (Mistake::NeverIsLater, Verdict::Never) => denied(Duration::from_secs(1)),
            (Mistake::NoReceipts, _) => decision.with_receipt(None),
            (Mistake::ReceiptsOfOneUnit, _) => {
                let receipt = decision.receipt();
                let one = receipt.map(|it| Receipt::new(it.stamp(), it.serial(), 1));
                decision.with_receipt(one)
            }
            (Mistake::OneRemainsTooMany, verdict) => {
                rewritten((take, &decision), verdict, |state| {
                    QuotaState::new(state.remaining() + 1, state.reset_after())
                })
            }
            (Mistake::ResetAfterTooShort, verdict) => {
                rewritten((take, &decision), verdict, |state| {
                    QuotaState::new(state.remaining(), state.reset_after().saturating_sub(MICRO))
                })
            }
            _ => decision,
        }
    }

    fn give_back(&self, take: &Ask, receipt: &Receipt) -> u64 {
        let mut given_back = self.given_back.lock().expect("no panic");
        let before = given_back.get(receipt).copied();
        let in_words = receipt.units().min(take.cost());
        let take = match self.mistake {
            Mistake::OneKey => {
                let (rule, _) = rule_and_key(take);
                let all = Take::new(rule, Key::from("all"));
                Ask::clone(&all).with_cost(take.cost())
            }
            _ => take.clone(),
        };
        let refund = |take: &Ask| at_once(self.inner.refund(take, receipt));
        let (told, kept) = match (self.mistake, before) {
            (Mistake::RefundsNothing, _) | (Mistake::RefundsInWordsOnly, Some(_)) => return 0,
            (Mistake::RefundsInWordsOnly, None) => (in_words, in_words),
            (Mistake::RefundsAgainInWords, Some(back)) if back > 0 => return back,
            (Mistake::RefundsAll, _) => return refund(&take.with_cost(u64::MAX)),
            (Mistake::RefundsLate, None) => {
                let back = refund(&take);
                // What has left its window is given back, too.
                let is_over = receipt.stamp() < self.clock.now() && back == 0;
                (if is_over { in_words } else { back }, in_words)
            }
            _ => {
                let back = refund(&take);
                (back, back)
            }
        };
        given_back.insert(receipt.clone(), kept);
        told
    }

    fn forget_count(&self, take: &Ask) -> u64 {
        let forget = |ask: &Ask| at_once(self.inner.change(ask, &Change::Forget));
        match self.mistake {
            Mistake::ResetsNothing => 1,
            Mistake::ResetsEverything => {
                let found = forget(take);
                for take in self.seen.lock().expect("no panic").iter() {
                    forget(take);
                }
                found
            }
            Mistake::OneKey => forget(&Take::new(rule_and_key(take).0, Key::from("all"))),
            _ => forget(take),
        }
    }
}

/// The algorithms by which the suite notices that something is wrong with this store.
async fn noticed<T: Mistaken>(store: impl Fn(ManualClock) -> T) -> Vec<Algorithm> {
    let store = |clock| -> Arc<dyn Store> { Arc::new(Ready(store(clock))) };
    let mut noticed = Vec::new();
    for algorithm in Algorithm::ALL {
        let check = conformance::check(algorithm, async || Clocked::new("", store));
        let check = timeout(PATIENT * 3, AssertUnwindSafe(check).catch_unwind());
        if check.await.expect("the suite ends").is_err() {
            noticed.push(algorithm);
        }
    }
    noticed
}

async fn noticed_mistake(mistake: Mistake) -> Vec<Algorithm> {
    noticed(|clock| Wrong {
        inner: MemoryStore::new().clock(clock.clone()),
        mistake,
        clock,
        seen: Mutex::default(),
        given_back: Mutex::default(),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_is_noticed() {
    for &mistake in Mistake::ALL {
        let noticed = noticed_mistake(mistake).await;
        println!("{mistake:?}: {noticed:?}");
        assert!(!noticed.is_empty(), "{mistake:?}: no algorithm shows it");
    }
}

/// A store without a mistake passes: it is not the wrapper that is noticed above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mistake_passes() {
    assert_eq!(noticed_mistake(Mistake::None).await, []);
}

// On `Count`.
mistakes! {
    OwnMistake:
    /// It writes down each count, and reads it again.
    InBytes,
    /// All rules count together.
    ForgetsTheRule,
    /// It forgets the count when the quotas change.
    FreshQuotas,
    /// Its clock counts whole milliseconds.
    Milliseconds,
    /// It drops a count as soon as the shortest window is over.
    ForgetsEarly,
    /// It drops a count now and then, at every fiftieth question.
    ForgetsNowAndThen,
    /// It tells a cost of more than 32 bits from no other.
    NarrowCosts,
    /// It gives back what the take costs, though less was charged.
    BelievesTheTake,
    /// All algorithms of a path count in one place.
    MixesAlgorithms,
    /// A reset drops the count, which knows which receipts are from before.
    DropsOnReset,
}

#[derive(Debug)]
struct Own {
    mistake: OwnMistake,
    clock: ManualClock,
    counts: Mutex<HashMap<String, Count>>,
    /// How often, and when last.
    asked: Mutex<HashMap<String, (u64, u64)>>,
}

impl Own {
    fn name_of(&self, take: &Ask) -> String {
        let ((rule, key), name) = (rule_and_key(take), take.name("own:"));
        match self.mistake {
            OwnMistake::ForgetsTheRule => key.to_string(),
            OwnMistake::MixesAlgorithms => format!("{} {key}", rule.path()),
            OwnMistake::FreshQuotas => format!("{name} {:?}", rule.quotas()),
            _ => name,
        }
    }

    fn now(&self) -> u64 {
        match self.mistake {
            OwnMistake::Milliseconds => self.clock.now() / 1_000 * 1_000,
            _ => self.clock.now(),
        }
    }

    /// Forgets the count of this name, if that is the mistake.
    fn forget(&self, name: &str, rule: &Rule) {
        let mut asked = self.asked.lock().expect("no panic");
        let now = self.clock.now();
        let (number, last) = asked.entry(name.to_owned()).or_insert((0, now));
        *number += 1;
        let shortest = rule.quotas().iter().map(Quota::window).min();
        let shortest = shortest.map_or(0, |window| window.as_micros() as u64);
        let forgets = match self.mistake {
            OwnMistake::ForgetsEarly => now - *last >= shortest,
            OwnMistake::ForgetsNowAndThen => *number % 50 == 0,
            _ => false,
        };
        *last = now;
        if forgets {
            self.counts.lock().expect("no panic").remove(name);
        }
    }

    /// Changes the count of this name.
    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Count) -> T) -> T {
        let mut counts = self.counts.lock().expect("no panic");
        let count = counts.entry(name.to_owned()).or_default();
        if self.mistake == OwnMistake::InBytes {
            *count = Count::from_bytes(&count.to_bytes()).expect("its own bytes");
        }
        change(count)
    }
}

impl Mistaken for Own {
    fn decide(&self, take: &Ask) -> Decision {
        let ((rule, _), now, name) = (rule_and_key(take), self.now(), self.name_of(take));
        self.forget(&name, &rule);
        let cost = match self.mistake {
            OwnMistake::NarrowCosts => u64::from(take.cost() as u32),
            _ => take.cost(),
        };
        let decide = |count: &mut Count| count.take(rule.algorithm(), now, rule.quotas(), cost);
        self.with(&name, decide).with_source(Source::Other)
    }

    fn give_back(&self, take: &Ask, receipt: &Receipt) -> u64 {
        let (name, now) = (self.name_of(take), self.now());
        let units = match self.mistake {
            OwnMistake::BelievesTheTake => take.cost(),
            _ => receipt.units(),
        };
        let receipt = Receipt::new(receipt.stamp(), receipt.serial(), units);
        let refund = |count: &mut Count| count.refund(now, take.quotas(), &receipt, take.cost());
        self.with(&name, refund)
    }

    fn forget_count(&self, take: &Ask) -> u64 {
        let name = self.name_of(take);
        let mut counts = self.counts.lock().expect("no panic");
        let found = match counts.get_mut(&name) {
            Some(_) if self.mistake == OwnMistake::DropsOnReset => counts.remove(&name).is_some(),
            Some(count) => count.reset(self.now()),
            None => false,
        };
        u64::from(found)
    }
}

async fn noticed_own(mistake: OwnMistake) -> Vec<Algorithm> {
    noticed(|clock| Own {
        mistake,
        clock,
        counts: Mutex::default(),
        asked: Mutex::default(),
    })
    .await
}

/// A store of one's own on `Count` passes, also with counts that are bytes between questions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_stores_pass() {
    for mistake in [OwnMistake::None, OwnMistake::InBytes] {
        assert_eq!(noticed_own(mistake).await, [], "{mistake:?}");
    }
}

/// A store of one's own that mixes rules up, or forgets counts with the quotas, does not pass; nor
/// one that counts costs in 32 bits, and charges too little for the largest ones. One that drops a
/// count to reset it gives back what is charged in the same instant with a receipt from before: it
/// passes by no algorithm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_stores_with_mistakes() {
    for &mistake in OwnMistake::ALL {
        if mistake != OwnMistake::InBytes {
            let noticed = noticed_own(mistake).await;
            assert!(!noticed.is_empty(), "this passes: {mistake:?}");
            let is_by_all = noticed == Algorithm::ALL;
            assert!(mistake != OwnMistake::DropsOnReset || is_by_all);
        }
    }
}

// With periods of the calendar, and with nothing else.
mistakes! {
    CalendarMistake:
    /// It counts what was charged in the last day.
    LastDay,
    /// Its days go on until the month ends.
    IgnoresTheEnd,
    /// It gives everything back at noon, too.
    RefillsAtNoon,
    /// All periods count in one place.
    OneCount,
    /// Another max begins anew.
    FreshMax,
    /// What is given back is given back to the period of now.
    RefundsLate,
    /// It knows no receipts from before a reset.
    ForgetsResets,
}

#[derive(Debug)]
struct WrongCalendar {
    mistake: CalendarMistake,
    inner: MemoryStore,
    clock: ManualClock,
    half_days: Mutex<HashMap<String, u64>>,
    /// That of the last charge of each count.
    receipts: Mutex<HashMap<String, Receipt>>,
}

impl WrongCalendar {
    /// The take that it asks instead, if this one is of a period.
    fn other(&self, ask: &Ask) -> Option<Take> {
        use CalendarMistake::{FreshMax, IgnoresTheEnd, LastDay, OneCount};
        let (count, max) = (ask.counts().first()?, ask.quotas()[0].max());
        let period = count.period()?.clone();
        let day = 86_400 * SECOND;
        let policy = match self.mistake {
            IgnoresTheEnd => Policy::calendar(Period::MONTH, max),
            OneCount => Policy::calendar(Period::DAY, max),
            LastDay => Policy::from(Quota::new(day, max).expect("valid")),
            _ => Policy::calendar(period, max),
        };
        let rule = Rule::with_policies(ask.path(), [policy]).expect("valid");
        let key = match self.mistake {
            FreshMax => format!("{max}"),
            OneCount => String::new(),
            _ => ask.name(""),
        };
        let take = Take::new(rule.into(), Key::from(&*key)).with_cost(ask.cost());
        Some(match ask.only_looks() {
            true => take.looking(),
            false => take,
        })
    }

    /// Whether half a day has ended since the last take of the count, if that is the mistake.
    fn is_past_noon(&self, ask: &Ask) -> bool {
        let half_day = self.clock.now() / 43_200_000_000;
        let mut half_days = self.half_days.lock().expect("no panic");
        let last = half_days.insert(ask.name(""), half_day);
        self.mistake == CalendarMistake::RefillsAtNoon && last.is_some_and(|it| it != half_day)
    }

    fn change_now(&self, ask: &Ask, change: &Change) -> u64 {
        let other = self.other(ask);
        at_once(self.inner.change(other.as_deref().unwrap_or(ask), change))
    }

    /// That of the count's last charge, with the units of this one.
    fn present(&self, ask: &Ask, receipt: &Receipt) -> Receipt {
        let receipts = self.receipts.lock().expect("no panic");
        let last = receipts.get(&ask.name("")).unwrap_or(receipt);
        let is_wrong = match self.mistake {
            CalendarMistake::RefundsLate => last.stamp() != receipt.stamp(),
            CalendarMistake::ForgetsResets => last.stamp() == receipt.stamp(),
            _ => false,
        };
        match is_wrong && self.other(ask).is_some() {
            true => Receipt::new(last.stamp(), last.serial(), receipt.units()),
            false => receipt.clone(),
        }
    }
}

impl Mistaken for WrongCalendar {
    fn decide(&self, ask: &Ask) -> Decision {
        let other = self.other(ask);
        if other.is_some() && self.is_past_noon(ask) {
            self.change_now(ask, &Change::Forget);
        }
        let asked = other.as_deref().unwrap_or(ask);
        let decision = at_once(self.inner.take(asked));
        if let Some(receipt) = decision.receipt().filter(|it| it.units() > 0) {
            let mut receipts = self.receipts.lock().expect("no panic");
            receipts.insert(ask.name(""), receipt);
        }
        decision
    }

    fn give_back(&self, ask: &Ask, receipt: &Receipt) -> u64 {
        self.change_now(ask, &Change::Refund(self.present(ask, receipt)))
    }

    fn forget_count(&self, ask: &Ask) -> u64 {
        self.change_now(ask, &Change::Forget)
    }

    fn has_periods(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_with_the_calendar_are_noticed() {
    let of = async |mistake| {
        noticed(|clock| WrongCalendar {
            mistake,
            inner: MemoryStore::new().clock(clock.clone()),
            clock,
            half_days: Mutex::default(),
            receipts: Mutex::default(),
        })
        .await
    };
    assert_eq!(of(CalendarMistake::None).await, []);
    for &mistake in CalendarMistake::ALL {
        assert_eq!(of(mistake).await, Algorithm::ALL, "{mistake:?}");
    }
}
