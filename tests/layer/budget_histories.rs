//! Random histories of budgets through `Limits`, in memory and on Redis, beside an oracle: plans
//! in the time zone of their rule, whose periods begin elsewhere, files that are read again with
//! other zones, beginnings and maxes, refunds, settlements, units owed, lock-outs, resets and peeks,
//! at the ends of periods and with a clock that is put back.
//!
//! `tests/store/calendar.rs` plays the stores alone. `TIDEGATE_HISTORIES` plays so many.

use std::time::UNIX_EPOCH;

use kit::clocked::Stores;
use tidegate::rule::{Period, Weekday};
use tidegate::store::Charge;

use crate::*;

const HOUR_MICROS: u64 = 3_600_000_000;
const ZONES: [&str; 5] = [
    "UTC",
    "Europe/Berlin",
    "Asia/Tokyo",
    "America/New_York",
    "Pacific/Apia",
];
const KEYS: [&str; 2] = ["alice", "bob"];
const WEEKDAYS: [Weekday; 3] = [Weekday::Monday, Weekday::Friday, Weekday::Sunday];
/// How long a lock-out holds, and for how long failures count.
const HELD: u64 = 600_000_000;
const COUNTS: u64 = 900_000_000;

/// What a request may be limited by: the rule's own, which has no name, or that of a plan.
#[derive(Debug, Clone)]
struct Budget {
    plan: &'static str,
    is_week: bool,
    zone: &'static str,
    /// The day of its month, or the place of its weekday.
    from: u8,
    /// Whether the file says it: it is the usual one, or in a plan that of its rule.
    says_from: bool,
    max: u64,
}

impl Budget {
    fn period(&self) -> Period {
        let period = if self.is_week {
            Period::WEEK.from_weekday(WEEKDAYS[usize::from(self.from)])
        } else {
            Period::MONTH.from_day(self.from)
        };
        let period = period.expect("a beginning");
        period.in_zone(self.zone).expect("a zone")
    }

    fn quotas(&self) -> String {
        let (max, zone) = (self.max, self.zone);
        let from = match (self.says_from, self.is_week) {
            (false, _) => String::new(),
            (_, true) => format!(", from = '{}'", WEEKDAYS[usize::from(self.from)]),
            (_, false) => format!(", from = {}", self.from),
        };
        let per = if self.is_week { "week" } else { "month" };
        // A plan may leave the zone to its rule.
        let zone = match self.plan {
            "pro" => String::new(),
            _ => format!(", zone = '{zone}'"),
        };
        format!(
            "quotas = [{{ max-count = 1_000_000, window = '1h' }}, \
             {{ max-count = {max}, per = '{per}'{from}{zone} }}]"
        )
    }
}

/// What is in the file by now.
#[derive(Debug, Clone)]
struct Written {
    budgets: [Budget; 3],
    owed: u64,
}

impl Written {
    fn random(random: &mut Random) -> Self {
        let zone = ZONES[random.below(ZONES.len() as u64) as usize];
        let mut budget = |plan, is_week: bool, unsaid| {
            let says_from = random.is(2);
            let from = match (says_from, is_week) {
                (false, _) => unsaid,
                (_, true) => random.below(3) as u8,
                (_, false) => 1 + random.below(31) as u8,
            };
            Budget {
                plan,
                is_week,
                zone,
                from,
                says_from,
                max: 20 + random.below(20),
            }
        };
        let none = budget("", false, 1);
        let pro = budget("pro", false, none.from);
        Self {
            budgets: [none, pro, budget("weekly", true, 0)],
            owed: random.below(6),
        }
    }

    fn text(&self) -> String {
        let owed = self.owed;
        let [none, plans @ ..] = &self.budgets;
        let plans = plans.each_ref().map(|it| {
            let (plan, quotas) = (it.plan, it.quotas());
            format!("[rules.budget.plans.{plan}]\n{quotas}\n")
        });
        format!(
            "[rules.budget]\n{}\nowe-at-most = {owed}\nkey = 'header:x-user'\n\
             lockout = {{ after = 3, within = '15m', hold = ['10m'], on = [] }}\n{}",
            none.quotas(),
            plans.concat()
        )
    }
}

/// What is used of a period, of one key.
#[derive(Debug, Clone, Copy, Default)]
struct Oracle {
    end: u64,
    /// How often it has begun anew.
    round: u32,
    used: u64,
}

impl Oracle {
    fn at(self, budget: &Budget, now: u64) -> Self {
        if self.end > now {
            return self;
        }
        let around = budget
            .period()
            .around(UNIX_EPOCH + Duration::from_micros(now));
        let end = around.end.duration_since(UNIX_EPOCH).expect("later");
        Self {
            end: end.as_micros() as u64,
            round: self.round + 1,
            used: 0,
        }
    }
}

struct Charged {
    charges: Vec<Charge>,
    key: usize,
    budget: Budget,
    owed: u64,
    cost: u64,
    end: u64,
    round: u32,
}

struct Playing {
    random: Random,
    stores: Stores,
    /// In memory, and on Redis.
    limits: Vec<Limits>,
    file: LimitsFile,
    written: Written,
    now: u64,
    latest: u64,
    /// Of each key the month and the week.
    oracle: [[Oracle; 2]; 2],
    held_until: [u64; 2],
    /// The last failure.
    failed: [u64; 2],
    charged: Vec<Charged>,
    played: BTreeMap<&'static str, usize>,
}

impl Playing {
    async fn new(seed: u64) -> Self {
        let stores = Stores::start().await;
        let mut random = Random::new(seed);
        let written = Written::random(&mut random);
        let file = LimitsFile::new(written.text());
        let limits = stores.all[..2].iter();
        let limits = limits.map(|it| file.limits().store(Arc::clone(&it.store)));
        Self {
            limits: limits.collect(),
            random,
            stores,
            file,
            written,
            // The end of November 2026.
            now: 1_795_900_000_000_000,
            latest: 0,
            oracle: Default::default(),
            held_until: [0; 2],
            failed: [0; 2],
            charged: Vec::new(),
            played: BTreeMap::new(),
        }
    }

    fn advance(&mut self) {
        let counts = self.oracle.as_flattened();
        let end = counts[self.random.below(4) as usize].end;
        self.now = match self.random.below(24) {
            0..3 if end > self.now => end - 2 + self.random.below(4),
            3 => self.now + self.random.below(20 * 24) * HOUR_MICROS,
            4 => self.now + self.random.below(3) * HOUR_MICROS,
            5 => self.now - self.random.below(4) * HOUR_MICROS,
            6 => self.now + self.random.below(2 * HELD),
            _ => self.now + 1 + self.random.below(1_000_000),
        };
        self.set_clocks();
    }

    fn set_clocks(&mut self) {
        self.latest = self.latest.max(self.now);
        for clocked in &self.stores.all[..2] {
            clocked.clock.set(self.now);
        }
    }

    fn budget(&mut self) -> Budget {
        let number = self.random.below(3) as usize;
        self.written.budgets[number].clone()
    }

    async fn step(&mut self) {
        self.advance();
        let key = self.random.below(2) as usize;
        match self.random.below(24) {
            0 => self.reload(),
            1 if self.random.is(20) => self.reset(key).await,
            2..4 => self.refund().await,
            4..7 => self.settle().await,
            7..10 => self.peek(key).await,
            10 if self.now >= self.latest && self.now > self.failed[key] + COUNTS => {
                self.lock_out(key).await;
            }
            _ => {
                let cost = [0, 1, 1, 2, 3, 7, 45][self.random.below(7) as usize];
                let budget = self.budget();
                self.check(key, &budget, cost).await;
            }
        }
    }

    fn plays(&mut self, what: &'static str) {
        *self.played.entry(what).or_default() += 1;
    }

    fn reload(&mut self) {
        self.plays("reload");
        self.written = Written::random(&mut self.random);
        for limits in &self.limits {
            self.file.reload(limits, self.written.text());
        }
    }

    async fn reset(&mut self, key: usize) {
        self.plays("reset");
        for limits in &self.limits {
            limits.reset("budget", KEYS[key]).await.expect("an answer");
        }
        for count in &mut self.oracle[key] {
            *count = Oracle {
                round: count.round + 1,
                ..Oracle::default()
            };
        }
        self.held_until[key] = 0;
    }

    /// Whether it was admitted.
    async fn check(&mut self, key: usize, budget: &Budget, cost: u64) -> bool {
        let is_held = self.held_until[key] > self.now;
        let count = &mut self.oracle[key][usize::from(budget.is_week)];
        let mut period = count.at(budget, self.now);
        let ends_in = Duration::from_micros(period.end - self.now);
        let expected = match () {
            () if cost > budget.max => Verdict::Never,
            () if period.used + cost > budget.max => Verdict::Denied {
                retry_after: ends_in,
            },
            () => Verdict::Allowed,
        };
        let is_allowed = expected == Verdict::Allowed && !is_held;
        if is_allowed && cost > 0 {
            period.used += cost;
            *count = period;
        }
        let mut charges = Vec::new();
        for limits in &self.limits {
            let call = limits.check("budget", KEYS[key]).cost(cost);
            let call = match budget.plan {
                "" => call,
                plan => call.plan(plan),
            };
            let (decision, charge) = match call.await {
                Ok(admitted) => (admitted.decision.expect("a decision"), admitted.charge),
                Err(refused) => (refused.decision().expect("no error").clone(), None),
            };
            let context = || format!("{decision:?} of {cost} under {budget:?} at {}", self.now);
            assert_eq!(decision.is_allowed(), is_allowed, "{}", context());
            if is_held && expected == Verdict::Allowed {
                assert!(decision.is_locked_out(), "{}", context());
            }
            if !is_held {
                assert_eq!(decision.verdict(), expected, "{}", context());
            }
            let left = budget.max.saturating_sub(period.used);
            let state = decision.quotas().last().expect("of the period");
            assert_eq!(state.remaining(), left, "{}", context());
            charges.extend(charge);
        }
        self.plays(match (is_held, is_allowed) {
            (true, _) => "held",
            (_, true) => "allowed",
            (_, false) => "denied",
        });
        if is_allowed && cost > 0 {
            self.charged.push(Charged {
                charges,
                key,
                budget: budget.clone(),
                owed: self.written.owed,
                cost,
                end: period.end,
                round: period.round,
            });
        }
        is_allowed
    }

    fn one_charged(&mut self) -> Option<Charged> {
        let number = self.charged.len() as u64;
        let number = (number > 0).then(|| self.random.below(number) as usize);
        number.map(|number| self.charged.swap_remove(number))
    }

    fn give_back(&mut self, it: &Charged, units: u64) {
        let count = &mut self.oracle[it.key][usize::from(it.budget.is_week)];
        if it.round == count.round && count.end > self.now {
            count.used -= units.min(count.used);
        }
    }

    async fn refund(&mut self) {
        let Some(it) = self.one_charged() else { return };
        self.plays("refund");
        for charge in &it.charges {
            charge.refund().await.expect("an answer");
        }
        self.give_back(&it, it.cost);
    }

    /// Less than was reserved, or more, which is owed.
    async fn settle(&mut self) {
        let Some(it) = self.one_charged() else { return };
        self.plays("settle");
        let used = self.random.below(2 * it.cost + 3);
        for charge in &it.charges {
            charge.settle(used).await.expect("an answer");
        }
        let Some(units) = used.checked_sub(it.cost) else {
            return self.give_back(&it, it.cost - used);
        };
        let count = &mut self.oracle[it.key][usize::from(it.budget.is_week)];
        let mut period = count.at(&it.budget, self.now);
        if count.end <= self.now && it.end > self.now {
            period.end = it.end;
        }
        if it.end == period.end {
            let most = (it.budget.max + it.owed).saturating_sub(period.used);
            if units.min(most) > 0 {
                period.used += units.min(most);
                *count = period;
            }
        }
    }

    /// Three failures, and nobody gets in.
    async fn lock_out(&mut self, key: usize) {
        let budget = self.budget();
        for _ in 0..3 {
            self.now += 1;
            self.set_clocks();
            if !self.check(key, &budget, 1).await {
                return;
            }
            self.failed[key] = self.now;
            for charge in &self.charged.last().expect("it was charged").charges {
                charge.failed();
            }
            for limits in &self.limits {
                assert!(limits.flush(PATIENT).await);
            }
        }
        self.plays("lock-out");
        self.held_until[key] = self.now + HELD;
        self.check(key, &budget, 1).await;
    }

    async fn peek(&mut self, key: usize) {
        self.plays("peek");
        let budget = self.budget();
        let period = self.oracle[key][usize::from(budget.is_week)].at(&budget, self.now);
        for limits in &self.limits {
            let peek = limits.peek("budget", KEYS[key]);
            let peek = match budget.plan {
                "" => peek,
                plan => peek.plan(plan),
            };
            let decision = peek.await.expect("an answer").expect("a rule");
            let context = format!("{decision:?} under {budget:?} at {}", self.now);
            let state = decision.quotas().last().expect("of the period");
            let left = budget.max.saturating_sub(period.used);
            assert_eq!(state.remaining(), left, "{context}");
            let ends_in = match period.used {
                0 => 0,
                _ => period.end - self.now,
            };
            let told = state.reset_after().as_micros();
            assert_eq!(told, u128::from(ends_in), "{context}");
        }
    }
}

#[tokio::test]
async fn both_stores_and_an_oracle_agree() {
    let mut played = BTreeMap::<_, usize>::new();
    for seed in 0..from_env("TIDEGATE_HISTORIES", 4) {
        let mut playing = Playing::new(seed).await;
        for step in 0..500 {
            let stepped = AssertUnwindSafe(playing.step()).catch_unwind().await;
            if let Err(panic) = stepped {
                println!("seed {seed} step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        for (what, times) in playing.played {
            *played.entry(what).or_default() += times;
        }
    }
    println!("{played:?}");
}
