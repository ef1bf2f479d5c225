//! Four processes reserve estimates that are up to ten times too small or too large, leave some of
//! their requests early, and find Redis stopped once: what is used is charged, and no window holds
//! more than max and what may be owed.

use std::sync::Mutex;

use kit::windows::{Spent, too_fast, too_full};
use kit::workers::{lines_of, outputs_of};
use tidegate::layer::Admitted;

use crate::*;

/// Of all processes. `TIDEGATE_OWED` says another number.
const REQUESTS: u64 = 40_000;
const KEYS: u64 = 100;
/// In a second.
const MAX: u64 = 300;
const WINDOW: u64 = 1_000_000;
const OWE_AT_MOST: u64 = 15;
/// No request uses more.
const MAX_USED: u64 = 20;
/// What counts much longer than this test runs, of which no key ever has enough.
const PLENTY: u64 = 10_000_000;

fn rule(algorithm: Algorithm) -> Rule {
    let plenty = match algorithm {
        // Others do not drain.
        Algorithm::Gcra => Quota::MAX_WINDOW,
        _ => HOUR,
    };
    let quotas = [
        quota(MAX, Duration::from_micros(WINDOW)),
        quota(PLENTY, plenty),
    ];
    let rule = Rule::new("owed", quotas).expect("valid");
    let rule = rule.with_algorithm(algorithm);
    rule.with_owe_at_most(OWE_AT_MOST)
}

/// Of the plenty in a bucket, no more units than these have drained.
fn drained(after: Duration) -> u64 {
    let share = after.as_secs_f64() / Quota::MAX_WINDOW.as_secs_f64();
    1 + (share * PLENTY as f64) as u64
}

/// What a process tells the test, a line each.
type Told = Arc<Mutex<String>>;

/// A settlement at the store, which is told when its answer is there, or nobody waits for it.
struct Settlement {
    told: Told,
    what: &'static str,
    key: String,
    units: u64,
    from: u64,
    answer: Option<u64>,
}

impl Settlement {
    fn new(told: &Told, what: &'static str, take: &Take) -> Self {
        Self {
            told: Arc::clone(told),
            what,
            key: take.key().to_string(),
            units: take.cost(),
            from: unix_micros(),
            answer: None,
        }
    }

    fn of(self, answer: StoreFuture<u64>) -> StoreFuture<u64> {
        StoreFuture::boxed(async move {
            let mut settlement = self;
            let answer = answer.await;
            settlement.answer = answer.as_ref().ok().copied();
            answer
        })
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        let (key, asked, from, until) = (&self.key, self.units, self.from, unix_micros());
        let line = match self.answer {
            Some(units) => format!("{} {key} {asked} {units} {from} {until}\n", self.what),
            None => format!("{}-lost {key} {asked}\n", self.what),
        };
        *self.told.lock().expect("no panic") += &line;
    }
}

fn told_by(store: RedisStore, told: &Told) -> Stub {
    let [back, owed] = [Arc::clone(told), Arc::clone(told)];
    Stub::around(store)
        .capabilities_fn(|store| store.capabilities())
        .refund_fn(move |store, take, receipt| {
            let settlement = Settlement::new(&back, "back", take);
            settlement.of(store.refund(take, receipt))
        })
        .owe_fn(move |store, take, receipt| {
            let settlement = Settlement::new(&owed, "owed", take);
            settlement.of(store.owe(take, receipt))
        })
}

/// What a request uses, and an estimate from a tenth to ten times of that.
fn use_and_estimate(random: &mut Random) -> (u64, u64) {
    let used = 1 + random.below(MAX_USED);
    let factor = 10_f64.powf(random.below(2_001) as f64 / 1_000.0 - 1.0);
    (used, ((used as f64 * factor).round() as u64).max(1))
}

/// Settles as some handler would. Returns how many units were used.
async fn settle(random: &mut Random, admitted: Admitted, mut used: u64) -> u64 {
    let charge = admitted.charge.expect("it was charged");
    let reserved = charge.receipt().units();
    let leaves = random.is(20);
    if random.is(60) {
        // It learns bit by bit, until the client leaves.
        if leaves {
            used = random.below(used);
        }
        let meter = charge.meter();
        (0..used).for_each(|_| meter.add(1));
        return match used {
            0 => reserved,
            _ => used,
        };
    }
    let settled = charge.settle(used);
    if leaves {
        // Many are answered later than this.
        let _ = timeout(Duration::from_micros(100), settled).await;
    } else if let Ok(settled) = settled.await {
        let beyond = settled.charged + settled.forgiven;
        assert_eq!(beyond, used.saturating_sub(reserved), "{settled:?}");
        let most = reserved.saturating_sub(used);
        assert!(settled.given_back <= most, "{settled:?}");
    }
    used
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_uses_more_and_less_than_it_reserves() {
    let Some(words) = instructions() else { return };
    let store = kit::load::store(&words[0]).await.timeout(millis(200));
    let [requests, process] = numbers(&words);
    let told = Told::default();
    let limits = Limits::new([rule(algorithm(&words[1]))]).store(told_by(store, &told));
    let tasks = (0..TASKS as u64).map(|task| {
        let (limits, told) = (limits.clone(), Arc::clone(&told));
        let mut random = Random::new(process * 1_000 + task);
        async move {
            for _ in 0..requests / TASKS as u64 {
                // Some keys are busy at any speed of the machine, and some are not.
                let busy = 1 + random.below(KEYS);
                let key = random.below(busy);
                let (used, reserved) = use_and_estimate(&mut random);
                let asked = limits.check("owed", Key::from(key)).cost(reserved).await;
                let line = match asked {
                    Ok(admitted) => {
                        let decision = admitted.decision.clone().expect("a decision");
                        let stamp = decision.receipt().expect("it was charged").stamp();
                        let end = stamp + decision.quotas()[0].reset_after().as_micros() as u64;
                        let used = settle(&mut random, admitted, used).await;
                        format!("take {key} {reserved} {used} {stamp} {end}\n")
                    }
                    Err(refused) if refused.decision().is_some() => continue,
                    Err(_) => format!("take-lost {key} {reserved}\n"),
                };
                *told.lock().expect("no panic") += &line;
            }
        }
    });
    in_tasks(tasks).await;
    assert!(limits.flush(Duration::from_secs(10)).await);
    let counted = &limits.snapshot().rules[0];
    println!("\n{}", told.lock().expect("no panic"));
    println!("denied {}", counted.decisions(DecisionOutcome::Denied));
    println!("counted-owed {}", counted.owed_units);
    println!("counted-forgiven {}", counted.forgiven_units);
    println!("counted-back {}", counted.refunded_units);
}

/// What is known of a key, in units.
#[derive(Debug, Default)]
struct Books {
    reserved: u64,
    used: u64,
    given_back: u64,
    owed: u64,
    forgiven: u64,
    /// What was asked without an answer.
    taken_lost: u64,
    owed_lost: u64,
    back_lost: u64,
    spent: Vec<Spent>,
    /// When a fixed window ends, by what takes were told.
    ends: BTreeSet<u64>,
}

impl Books {
    const WORDS: [&str; 6] = [
        "take",
        "take-lost",
        "owed",
        "owed-lost",
        "back",
        "back-lost",
    ];

    /// Reads a line of a process.
    fn add(&mut self, what: &str, numbers: &[u64]) {
        match (what, numbers) {
            ("take", &[reserved, used, stamp, end]) => {
                self.reserved += reserved;
                self.used += used;
                self.ends.insert(end);
                self.spent.push(Spent {
                    // The rest is given back, perhaps.
                    units: reserved.min(used),
                    from: stamp,
                    until: stamp,
                    bound: MAX,
                });
            }
            ("owed", &[asked, units, from, until]) => {
                self.owed += units;
                self.forgiven += asked - units;
                self.spent.push(Spent {
                    units,
                    from,
                    until,
                    bound: MAX + OWE_AT_MOST,
                });
            }
            ("back", &[_, units, ..]) => self.given_back += units,
            ("take-lost", &[units]) => self.taken_lost += units,
            ("back-lost", &[units]) => self.back_lost += units,
            ("owed-lost", &[units]) => self.owed_lost += units,
            _ => panic!("{what} {numbers:?}"),
        }
    }

    /// What is wrong if the store has charged so many units, of which so many have drained at most;
    /// or nothing.
    fn check(&mut self, algorithm: Algorithm, charged: u64, drained: u64) -> Option<String> {
        let known = self.reserved + self.owed - self.given_back;
        let most = known + self.taken_lost + self.owed_lost;
        if charged + drained + self.back_lost < known || charged > most {
            return Some(format!("charged {charged}, expected {known} to {most}"));
        }
        let due = self.used - self.forgiven;
        let most = due + self.taken_lost + self.back_lost;
        // Of a bucket, nothing comes back that has begun to drain.
        let is_too_much = charged > most && algorithm != Algorithm::Gcra;
        if charged + drained + self.owed_lost < due || is_too_much {
            return Some(format!("charged {charged} of {due}"));
        }
        self.violation(algorithm)
    }

    /// Why this breaks the limit of a second; or nothing.
    fn violation(&mut self, algorithm: Algorithm) -> Option<String> {
        self.spent.sort_by_key(|spent| spent.until);
        match algorithm {
            Algorithm::Gcra => too_fast(&self.spent, MAX, WINDOW),
            Algorithm::FixedWindow => self.fullest_fixed_window(),
            _ => too_full(&self.spent, WINDOW),
        }
    }

    /// Of the windows that takes were told: a take of which nobody heard may have begun another.
    fn fullest_fixed_window(&self) -> Option<String> {
        let mut windows: HashMap<u64, u64> = HashMap::new();
        self.spent.iter().find_map(|spent| {
            let end = *self.ends.range(spent.until + 1..).next()?;
            if spent.from + WINDOW < end {
                return None;
            }
            let inside = windows.entry(end).or_default();
            *inside += spent.units;
            (*inside > spent.bound).then(|| format!("{inside} in a window with {spent:?}"))
        })
    }
}

/// The output of each process.
async fn play(algorithm: Algorithm, requests: u64, server: &Redis) -> Vec<String> {
    let share = requests / PROCESSES as u64;
    let name = "owed::worker_uses_more_and_less_than_it_reserves";
    let workers = start_workers(name, PROCESSES, |process| {
        format!("{} {} {share} {process}", server.url, algorithm.name())
    });
    let outputs = tokio::spawn(outputs_of(workers));
    sleep(millis(700)).await;
    server.signal("STOP");
    sleep(millis(300)).await;
    server.signal("CONT");
    outputs.await.expect("no panic")
}

/// The books of each key, and those of all together.
fn read(outputs: &[String]) -> (HashMap<u64, Books>, Books) {
    let (mut books, mut all) = (HashMap::<u64, Books>::new(), Books::default());
    for what in Books::WORDS {
        for numbers in lines_of(outputs, what) {
            let of_key = books.entry(numbers[0]).or_default();
            of_key.add(what, &numbers[1..]);
            all.add(what, &numbers[1..]);
        }
    }
    (books, all)
}

async fn what_is_used_is_charged(algorithm: Algorithm) {
    let _machine = MACHINE.lock().await;
    let (server, began) = (Redis::start(), Instant::now());
    let requests = from_env("TIDEGATE_OWED", REQUESTS);
    let outputs = play(algorithm, requests, &server).await;
    let (mut books, all) = read(&outputs);

    let store = store_on(&server).await;
    let rule = Arc::new(rule(algorithm));
    for (key, books) in &mut books {
        let take = Take::new(Arc::clone(&rule), Key::from(*key));
        let state = store.peek(&take).await.expect("an answer");
        let charged = PLENTY - state.quotas()[1].remaining();
        let drained = match algorithm {
            Algorithm::Gcra => drained(began.elapsed()),
            _ => 0,
        };
        let violation = books.check(algorithm, charged, drained);
        assert_eq!(violation, None, "{} {key}", algorithm.name());
    }

    let denied = sum(&outputs, "denied ");
    eprintln!(
        "{}: {denied} of {requests} denied, {} units used, {} owed, {} forgiven; \
         unknown: {} taken, {} owed, {} given back; {:?}",
        algorithm.name(),
        all.used,
        all.owed,
        all.forgiven,
        all.taken_lost,
        all.owed_lost,
        all.back_lost,
        began.elapsed()
    );
    assert_eq!(all.owed, sum(&outputs, "counted-owed "));
    assert_eq!(all.forgiven, sum(&outputs, "counted-forgiven "));
    assert_eq!(all.given_back, sum(&outputs, "counted-back "));
    assert!(
        denied > requests / 50
            && all.used > requests / 20
            && all.owed > all.used / 20
            && all.forgiven > 0
            && all.owed_lost > 0,
        "this test asked for too little"
    );
}

kit::cases! {
    what_is_used_is_charged_in_logs: what_is_used_is_charged(Algorithm::SlidingLog);
    what_is_used_is_charged_in_windows: what_is_used_is_charged(Algorithm::SlidingWindow);
    what_is_used_is_charged_in_buckets: what_is_used_is_charged(Algorithm::Gcra);
    what_is_used_is_charged_in_fixed_windows: what_is_used_is_charged(Algorithm::FixedWindow);
}
