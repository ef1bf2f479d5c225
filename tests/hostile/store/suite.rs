//! `test_util::conformance::check` notices stores that make a mistake: each of these makes one, and
//! is right otherwise.

use tidegate::rule::Period;
use tidegate::store::{Ask, Capabilities, Change};
use tidegate::test_util::conformance;

use crate::prelude::*;

/// What a store does wrong.
const MISTAKES: [&str; 28] = [
    // With answers as if it had not.
    "admits one too many",
    "charges denials what is left",
    "charges looks a unit",
    "keeps the first quota only",
    "counts all keys together",
    "counts all rules together",
    "counts all algorithms together",
    "begins anew when quotas change",
    "counts whole milliseconds",
    "drops what is older than the shortest window",
    "drops a count at every fiftieth question",
    "takes costs for 32 bits",
    "says that a unit more remains",
    // By a microsecond, as the next two.
    "says a reset-after that is too short",
    "says a retry-after that is too short",
    "says a retry-after that is too long",
    "says that what can never fit may come back",
    "gives no receipts",
    "gives receipts of one unit",
    "refunds nothing",
    "refunds in words only",
    "says the same of a second refund",
    "refunds all for a part",
    "refunds in words what no longer counts",
    "refunds what the take costs, and not what it was charged",
    "resets nothing",
    "resets all keys",
    // So it knows no receipts from before.
    "drops the count on a reset",
];

/// With periods of the calendar, and with nothing else.
const MISTAKES_OF_PERIODS: [&str; 7] = [
    "counts what was charged in the last day",
    "goes on until the month ends",
    "gives everything back at noon, too",
    "counts all periods together",
    "begins anew under another max",
    "refunds to the period of now",
    "knows receipts from before a reset",
];

/// With several counts of a take, and units owed.
const MISTAKES_OF_SEVERAL: [&str; 3] = [
    "charges the counts that fit",
    "refunds the first count only",
    "owes another max, whatever the rule says",
];

/// None of these is a mistake.
const RIGHT: [&str; 4] = ["", "keeps counts as bytes", "has periods", "has several"];

/// A store of one's own on `Count`, or, if it has periods or several counts, in memory.
#[derive(Debug)]
struct Wrong {
    mistake: &'static str,
    clock: ManualClock,
    counts: Mutex<HashMap<String, Count>>,
    memory: MemoryStore,
    /// How often each count was asked, and when last.
    asked: Mutex<HashMap<String, (u64, u64)>>,
    given_back: Mutex<HashMap<Receipt, u64>>,
    /// That of the last charge of each period.
    receipts: Mutex<HashMap<String, Receipt>>,
}

impl Store for Wrong {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        StoreFuture::ready(Ok(match self.has_periods() {
            true => self.decide_in_memory(ask),
            false if self.has_several() => self.decide_several(ask),
            false => self.decide(ask),
        }))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(match change {
            _ if self.has_several() => self.change_several(ask, change),
            Change::Refund(receipt) if self.has_periods() => {
                self.change_in_memory(ask, &Change::Refund(self.present(ask, receipt)))
            }
            Change::Refund(receipt) => self.give_back(ask, receipt),
            Change::Forget if self.has_periods() => self.change_in_memory(ask, change),
            Change::Forget => self.forget(ask).into(),
            _ => unreachable!("the suite asks for what the store says that it can"),
        }))
    }

    fn name(&self) -> String {
        self.mistake.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.calendar = self.has_periods();
        (can.joint, can.owes) = (self.has_several(), self.has_several());
        can
    }
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

const MICRO: Duration = Duration::from_micros(1);

/// On `Count`.
impl Wrong {
    fn name_of(&self, ask: &Ask) -> String {
        let name = ask.name("");
        let (rule, key) = name.split_once(':').unwrap_or((&name, ""));
        match self.mistake {
            "counts all keys together" => rule.to_owned(),
            "counts all rules together" => key.to_owned(),
            "counts all algorithms together" => format!("{} {key}", ask.path()),
            "begins anew when quotas change" => format!("{name} {:?}", ask.quotas()),
            _ => name,
        }
    }

    fn now(&self) -> u64 {
        match self.mistake {
            "counts whole milliseconds" => self.clock.now() / 1_000 * 1_000,
            _ => self.clock.now(),
        }
    }

    /// How often the count of this name was asked, and when before now.
    fn asked(&self, name: &str) -> (u64, u64) {
        let (mut asked, now) = (self.asked.lock().expect("no panic"), self.clock.now());
        let (before, last) = asked.get(name).copied().unwrap_or((0, now));
        asked.insert(name.to_owned(), (before + 1, now));
        (before + 1, last)
    }

    /// Drops the count of this name, if that is the mistake.
    fn drop_count(&self, name: &str, ask: &Ask) {
        let (times, last) = self.asked(name);
        let rests = Duration::from_micros(self.clock.now() - last);
        let drops = match self.mistake {
            "drops what is older than the shortest window" => {
                ask.quotas().iter().any(|quota| rests >= quota.window())
            }
            "drops a count at every fiftieth question" => times.is_multiple_of(50),
            _ => false,
        };
        if drops {
            self.counts.lock().expect("no panic").remove(name);
        }
    }

    /// Changes the count of this name.
    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Count) -> T) -> T {
        let mut counts = self.counts.lock().expect("no panic");
        let count = counts.entry(name.to_owned()).or_default();
        if self.mistake == "keeps counts as bytes" {
            *count = Count::from_bytes(&count.to_bytes()).expect("its own bytes");
        }
        change(count)
    }

    fn decide(&self, ask: &Ask) -> Decision {
        let (name, now) = (self.name_of(ask), self.now());
        self.drop_count(&name, ask);
        let mut quotas = ask.quotas().to_vec();
        let mut cost = ask.cost();
        match self.mistake {
            "admits one too many" => quotas = quotas.iter().map(one_more).collect(),
            "keeps the first quota only" => quotas.truncate(1),
            "takes costs for 32 bits" => cost = (cost as u32).into(),
            _ => {}
        }
        let config = ask.algorithm().expect("no permits");
        let take = |cost| self.with(&name, |count| count.take(config, now, &quotas, cost));
        let decision = take(cost);
        let mut receipt = decision.receipt();
        let (mut more, mut less) = (0, 0);
        let [mut whole_sooner, mut sooner, mut later] = [Duration::ZERO; 3];
        match self.mistake {
            "charges denials what is left" if !decision.is_allowed() => {
                take(decision.remaining());
            }
            "charges looks a unit" if ask.only_looks() && decision.remaining() > 0 => {
                take(1);
            }
            "admits one too many" => less = 1,
            "says that a unit more remains" => more = 1,
            "says a reset-after that is too short" => whole_sooner = MICRO,
            "says a retry-after that is too short" => sooner = MICRO,
            "says a retry-after that is too long" => later = MICRO,
            "gives no receipts" => receipt = None,
            "gives receipts of one unit" => {
                receipt = receipt.map(|it| Receipt::new(it.stamp(), it.serial(), 1));
            }
            _ => {}
        }
        let verdict = match decision.verdict() {
            Verdict::Denied { retry_after } => Verdict::Denied {
                retry_after: retry_after + later - sooner,
            },
            Verdict::Never if self.mistake == "says that what can never fit may come back" => {
                Verdict::Denied {
                    retry_after: SECOND,
                }
            }
            verdict => verdict,
        };
        // One for each quota that was asked for.
        let states = (0..ask.quotas().len()).map(|at| {
            let state = decision.quotas()[at.min(quotas.len() - 1)];
            let [left, max] =
                [state.remaining() + more, state.max()].map(|it| it.saturating_sub(less));
            let reset_after = state.reset_after().saturating_sub(whole_sooner);
            QuotaState::new(left, reset_after).with_max(max)
        });
        Decision::new(verdict, Source::Other, cost, states).with_receipt(receipt)
    }

    fn give_back(&self, ask: &Ask, receipt: &Receipt) -> u64 {
        let (name, now) = (self.name_of(ask), self.now());
        let charged = match self.mistake {
            "refunds what the take costs, and not what it was charged" => ask.cost(),
            _ => receipt.units(),
        };
        let charged = Receipt::new(receipt.stamp(), receipt.serial(), charged);
        let refund = |most| {
            let refund = |count: &mut Count| count.refund(now, ask.quotas(), &charged, most);
            self.with(&name, refund)
        };
        let in_words = receipt.units().min(ask.cost());
        let mut given_back = self.given_back.lock().expect("no panic");
        let told = match (self.mistake, given_back.get(receipt)) {
            ("refunds nothing", _) | ("refunds in words only", Some(_)) => 0,
            ("refunds in words only", None) => in_words,
            ("says the same of a second refund", Some(&back)) if back > 0 => back,
            ("refunds all for a part", _) => refund(u64::MAX),
            ("refunds in words what no longer counts", None) => match refund(ask.cost()) {
                // What has left its window is given back, too.
                0 if receipt.stamp() < now => in_words,
                back => back,
            },
            _ => refund(ask.cost()),
        };
        given_back.insert(receipt.clone(), told);
        told
    }

    /// Whether anything counted.
    fn forget(&self, ask: &Ask) -> bool {
        let (name, now) = (self.name_of(ask), self.now());
        let mut counts = self.counts.lock().expect("no panic");
        let reset = |count: &mut Count| count.reset(now);
        match self.mistake {
            "resets nothing" => true,
            "drops the count on a reset" => counts.remove(&name).is_some(),
            "resets all keys" => {
                let found = counts.get_mut(&name).is_some_and(reset);
                counts.values_mut().for_each(|count| _ = reset(count));
                found
            }
            _ => counts.get_mut(&name).is_some_and(reset),
        }
    }
}

/// The answer of a store in memory.
fn at_once<T>(mut answer: StoreFuture<T>) -> T {
    let answer = answer.poll_now().expect("memory answers at once");
    answer.expect("an answer")
}

/// In memory, of periods.
impl Wrong {
    fn has_periods(&self) -> bool {
        self.mistake == "has periods" || MISTAKES_OF_PERIODS.contains(&self.mistake)
    }

    /// The take that it asks instead, if this one is of a period.
    fn other(&self, ask: &Ask) -> Option<Take> {
        let (count, max) = (ask.counts().first()?, ask.quotas()[0].max());
        let period = count.period()?.clone();
        let day = 86_400 * SECOND;
        let policy = match self.mistake {
            "goes on until the month ends" => Policy::calendar(Period::MONTH, max),
            "counts all periods together" => Policy::calendar(Period::DAY, max),
            "counts what was charged in the last day" => {
                Policy::from(Quota::new(day, max).expect("valid"))
            }
            _ => Policy::calendar(period, max),
        };
        let rule = Rule::with_policies(ask.path(), [policy]).expect("valid");
        let key = match self.mistake {
            "begins anew under another max" => format!("{max}"),
            "counts all periods together" => String::new(),
            _ => ask.name(""),
        };
        let take = Take::new(rule.into(), Key::from(&*key)).with_cost(ask.cost());
        Some(match ask.only_looks() {
            true => take.looking(),
            false => take,
        })
    }

    fn change_in_memory(&self, ask: &Ask, change: &Change) -> u64 {
        let other = self.other(ask);
        at_once(self.memory.change(other.as_deref().unwrap_or(ask), change))
    }

    /// That of the count's last charge, with the units of this one.
    fn present(&self, ask: &Ask, receipt: &Receipt) -> Receipt {
        let receipts = self.receipts.lock().expect("no panic");
        let last = receipts.get(&ask.name("")).unwrap_or(receipt);
        let is_wrong = match self.mistake {
            "refunds to the period of now" => last.stamp() != receipt.stamp(),
            "knows receipts from before a reset" => last.stamp() == receipt.stamp(),
            _ => false,
        };
        match is_wrong && self.other(ask).is_some() {
            true => Receipt::new(last.stamp(), last.serial(), receipt.units()),
            false => receipt.clone(),
        }
    }

    fn decide_in_memory(&self, ask: &Ask) -> Decision {
        const HALF_DAY: u64 = 43_200_000_000;
        let other = self.other(ask);
        let asked = other.as_deref().unwrap_or(ask);
        let (_, last) = self.asked(&ask.name(""));
        let is_past_noon = last / HALF_DAY != self.clock.now() / HALF_DAY;
        let refills = self.mistake == "gives everything back at noon, too";
        if refills && is_past_noon && other.is_some() {
            at_once(self.memory.change(asked, &Change::Forget));
        }
        let decision = at_once(self.memory.take(asked));
        if let Some(receipt) = decision.receipt().filter(|it| it.units() > 0) {
            let mut receipts = self.receipts.lock().expect("no panic");
            receipts.insert(ask.name(""), receipt);
        }
        decision
    }
}

/// In memory, of several counts.
impl Wrong {
    fn has_several(&self) -> bool {
        self.mistake == "has several" || MISTAKES_OF_SEVERAL.contains(&self.mistake)
    }

    fn decide_several(&self, ask: &Ask) -> Decision {
        let take = |ask: &Ask| at_once(self.memory.take(ask));
        match self.mistake == "charges the counts that fit" && ask.counts().len() > 1 {
            true => ask.decision_of([0, 1].map(|at| take(&ask.only(at))).into()),
            false => take(ask),
        }
    }

    fn change_several(&self, ask: &Ask, change: &Change) -> u64 {
        let changed = |ask: &Ask, change: &Change| at_once(self.memory.change(ask, change));
        match (self.mistake, change, ask.counts()) {
            ("refunds the first count only", Change::Refund(receipt), [_, _]) => {
                changed(&ask.only(0), &Change::Refund(receipt.counts()[0].clone()))
            }
            ("owes another max, whatever the rule says", Change::Owe(_), [of]) => {
                let rule = Rule::new(ask.path(), of.quotas().to_vec()).expect("valid");
                let rule = rule.with_algorithm(of.algorithm().expect("windows"));
                let take = Take::new(rule.into(), Key::default());
                changed(&take.with_cost(of.cost()), change)
            }
            _ => changed(ask, change),
        }
    }
}

/// The algorithms by which the suite notices that something is wrong with this store.
async fn noticed(mistake: &'static str) -> Vec<Algorithm> {
    let store = |clock: ManualClock| -> Arc<dyn Store> {
        Arc::new(Wrong {
            mistake,
            memory: MemoryStore::new().clock(clock.clone()),
            clock,
            counts: Mutex::default(),
            asked: Mutex::default(),
            given_back: Mutex::default(),
            receipts: Mutex::default(),
        })
    };
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

/// It is the mistake that is noticed, and not the store: these pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_stores_pass() {
    for right in RIGHT {
        assert_eq!(noticed(right).await, [], "{right}");
    }
}

/// One that drops a count to reset it gives back what is charged in the same instant with a receipt
/// from before: it passes by no algorithm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_is_noticed() {
    for mistake in MISTAKES {
        let noticed = noticed(mistake).await;
        println!("it {mistake}: {noticed:?}");
        assert!(!noticed.is_empty(), "it {mistake}: no algorithm shows it");
        let is_by_all = noticed == Algorithm::ALL;
        assert!(mistake != "drops the count on a reset" || is_by_all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_with_what_not_all_can_are_noticed() {
    for mistake in MISTAKES_OF_PERIODS.into_iter().chain(MISTAKES_OF_SEVERAL) {
        assert_eq!(noticed(mistake).await, Algorithm::ALL, "{mistake}");
    }
}
