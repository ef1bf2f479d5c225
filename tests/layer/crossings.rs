//! Who is told that a share of a calendar quota is used: once in a period.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use kit::proxy::Mode;
use tidegate::layer::Crossing;
use tidegate::rule::Period;
use tidegate::store::StoreFuture;

use crate::*;

type Told = Arc<Mutex<Vec<Crossing>>>;

fn rule(max: u64) -> Rule {
    let month = Policy::calendar(Period::MONTH, max);
    let rule = Rule::with_policies("chat", [Quota::per_second(1_000_000).into(), month]);
    rule.expect("a rule").with_key(Header::new("x-user"))
}

/// Limits that note what they tell.
fn watched(rule: Rule, store: impl Store, told: &Told) -> Limits {
    watched_at(&[0.5, 1.0], rule, store, told)
}

fn watched_at(shares: &[f64], rule: Rule, store: impl Store, told: &Told) -> Limits {
    let told = Arc::clone(told);
    let limits = Limits::new([rule]).store(store);
    limits.on_crossing(shares.to_owned(), move |crossing| {
        let told = Arc::clone(&told);
        async move { told.lock().expect("no panic").push(crossing) }
    })
}

/// What was told, as `key share/max`, and the units by which a denial told it.
fn texts(told: &Told) -> Vec<String> {
    let told = told.lock().expect("no panic");
    let texts = told.iter().map(|it| {
        let Crossing { share, max, .. } = it;
        let denial = it.is_denial.then(|| format!(" denied at {}", it.used));
        let (key, denial) = (it.key.as_str(), denial.unwrap_or_default());
        format!("{key} {share}/{max}{denial}")
    });
    let mut texts: Vec<_> = texts.collect();
    texts.sort();
    texts
}

async fn told_in_all(told: &Told, expected: &[&str]) {
    eventually("crossings", async || texts(told).len() >= expected.len()).await;
    // Nothing more comes.
    sleep(kit::millis(20)).await;
    assert_eq!(texts(told), expected);
}

#[tokio::test]
async fn each_share_is_told_once() {
    for store in &Stores::start().await.all {
        let told = Told::default();
        let pro = Quotas::with_policies([Policy::calendar(Period::MONTH, 100)]);
        let rule = rule(10).with_plan("pro", pro.expect("valid"));
        let limits = watched(rule.expect("valid"), Arc::clone(store), &told);
        let app = app_of(&limits, &["chat"]);
        let request = async |user: &str| ask(&app, "/chat", &format!("x-user: {user}")).await;
        for _ in 0..4 {
            request("alice").await;
        }
        limits.peek("chat", "bob").await.expect("an answer");
        assert_eq!(texts(&told), Vec::<String>::new());
        for _ in 0..8 {
            request("alice").await;
        }
        told_in_all(&told, &["alice 0.5/10", "alice 1/10"]).await;
        let first = told.lock().expect("no panic")[0].clone();
        assert_eq!((&*first.path, &*first.quota), ("chat", "chat-month"));
        let plain = (first.subject, first.plan, first.is_shadow);
        assert_eq!(plain, (None, None, false));
        let month = Period::MONTH.around(std::time::SystemTime::now());
        assert_eq!(first.until, month.end);

        // Another max is another crossing: of ten of a hundred nobody is told.
        let pro = limits.check("chat", "alice").plan("pro").cost(40).await;
        pro.expect("there is room");
        told_in_all(&told, &["alice 0.5/10", "alice 0.5/100", "alice 1/10"]).await;
        let last = told.lock().expect("no panic")[2].clone();
        assert_eq!((last.plan.as_deref(), last.used), (Some("pro"), 50));
    }
}

/// A period that began elsewhere, under another plan, ends there: it is told so.
#[tokio::test]
async fn the_end_is_that_of_the_running_period() {
    for store in &Stores::start().await.all {
        let told = Told::default();
        let limits = watched(rule(100), Arc::clone(store), &told);
        let from = Period::MONTH.from_day(15).expect("each month has it");
        let plan = Plan::of([Policy::calendar(from.clone(), 10)]).expect("valid");
        let check = |key| limits.check("chat", key).cost(5);
        check("alice").await.expect("there is room");
        for key in ["alice", "bob"] {
            let check = check(key).plan_value(plan.clone());
            check.await.expect("there is room");
        }
        told_in_all(&told, &["alice 0.5/10", "alice 1/10", "bob 0.5/10"]).await;
        let now = std::time::SystemTime::now();
        for crossing in &*told.lock().expect("no panic") {
            let period = match crossing.key.as_str() {
                "alice" => &Period::MONTH,
                _ => &from,
            };
            assert_eq!(crossing.until, period.around(now).end, "{crossing:?}");
        }
    }
}

/// What one process has told, another one does not; and of a denial alone is told as well.
#[tokio::test]
async fn processes_tell_each_other() {
    let (server, told) = (Redis::start(), Told::default());
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(watched(rule(400), store_on(&server).await, &told));
    }
    let takes = processes.iter().map(|limits| async move {
        for n in 0..300 {
            let check = limits.check("chat", ["alice", "bob"][n % 2]).into_future();
            // Some callers leave.
            match n % 5 {
                0 => drop(poll_immediate(check).await),
                _ => drop(check.await),
            }
        }
    });
    join_all(takes).await;
    let all = ["alice 0.5/400", "alice 1/400", "bob 0.5/400", "bob 1/400"];
    told_in_all(&told, &all).await;
    let late = watched(rule(400), store_on(&server).await, &told);
    assert!(!uses(&late, "alice", 400).await);
    sleep(kit::millis(50)).await;
    assert_eq!(texts(&told), all);
    kit::check_expiries(&server, &[]);
}

/// A process whose answer was lost asks again, and hears that it was itself.
#[tokio::test]
async fn a_claim_is_heard_again() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let fleet = store.fleet().expect("Redis has one");
    for (by, expected) in [("a", true), ("a", true), ("b", false)] {
        let claimed = fleet.claim("crossed:x", by, SECOND).await;
        assert_eq!(claimed.expect("an answer"), expected, "{by}");
    }
}

#[tokio::test]
async fn an_outage_delays_what_is_told() {
    let (server, told) = (Redis::start(), Told::default());
    let proxy = Proxy::start(&server.url).await;
    let store = kit::connect(&proxy.url, PATIENT).await;
    let limits = watched(rule(2), store, &told);
    let admitted = limits.check("chat", "alice").await;
    admitted.expect("there is room");
    proxy.all(Mode::BlackHole);
    sleep(kit::millis(300)).await;
    proxy.all(Mode::Pass);
    told_in_all(&told, &["alice 0.5/2"]).await;
}

/// A user of Redis without the keys of the fleet: one line says what is missing, until it is there.
#[tokio::test]
async fn a_missing_permission_is_logged() {
    let (server, told, log) = (Redis::start(), Told::default(), Log::start());
    let keys = "~shop:* ~{shop:CurrentLimiter:chat:*}~month";
    let user = format!("ACL SETUSER shop on >PASSWORD resetkeys {keys} &* +@all");
    kit::run(&server, &user);
    let url = server.url.replace("//", "//shop:PASSWORD@");
    let store = Resilient::redis(&*url, "shop").expect("valid");
    let limits = watched(rule(4), store.connect().await.expect("it is up"), &told);
    assert!(uses(&limits, "alice", 4).await && uses(&limits, "bob", 4).await);
    let mut lines = Vec::new();
    let mut logged = || {
        let new = log.lines().into_iter();
        lines.extend(new.filter(|line| line.contains("crossing")));
        lines.clone()
    };
    eventually("a line", async || !logged().is_empty()).await;
    // By then each has asked twice.
    sleep(kit::millis(400)).await;
    let [line] = &*logged() else {
        panic!("{:?}", logged());
    };
    let parts = ["WARN", "no permissions to access", "SET and GET"];
    for part in parts.into_iter().chain(["{..~fleet}:*", "security.md"]) {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("alice") && !line.contains("bob"), "{line}");
    kit::run(&server, "ACL SETUSER shop ~{shop:*~fleet}:*");
    let all = ["alice 0.5/4", "alice 1/4", "bob 0.5/4", "bob 1/4"];
    told_in_all(&told, &all).await;
    assert_eq!(logged().len(), 2, "it works again: {:?}", logged());
}

#[tokio::test]
async fn of_subjects_in_shadow_and_after_a_panic() {
    let told = Told::default();
    let month = Policy::calendar(Period::MONTH, 1);
    let user = Subject::new("user", Header::new("x-user")).limit(month.clone());
    let joint = Rule::joint("joint", [user, Subject::new("all", Everyone).limit(month)]);
    let shadow = joint.expect("a rule").into_shadow();
    let limits = watched(shadow, MemoryStore::new(), &told);
    let keys = [("user", Key::from("alice")), ("all", Key::default())];
    limits.check("joint", keys).await.expect("it never denies");
    eventually("crossings", async || texts(&told).len() == 4).await;
    let (told, mut subjects) = (told.lock().expect("no panic").clone(), BTreeSet::new());
    for crossing in &told {
        assert!(crossing.is_shadow);
        subjects.insert(crossing.subject.clone().expect("one of two"));
    }
    assert!(subjects.iter().eq(["all", "user"]));

    let tells = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&tells);
    let limits = Limits::new([rule(1)]).on_crossing([0.5, 1.0], move |_| {
        told.fetch_add(1, Ordering::Relaxed);
        async { panic!("of a user") }
    });
    limits.check("chat", "alice").await.expect("there is room");
    eventually("both", async || tells.load(Ordering::Relaxed) == 2).await;
}

/// A hundred a month, of which estimates are reserved.
fn estimating() -> Rule {
    rule(100).with_settling(true)
}

/// Whether a request of this cost is admitted. It uses all of that.
async fn uses(limits: &Limits, key: &str, cost: u64) -> bool {
    let answer = limits.check("chat", key).cost(cost).await;
    answer.is_ok()
}

/// Plays steps, which semicolons divide. `alice 5` is admitted, and used. `alice !5` is denied.
/// `alice opens 5` is admitted, and `alice settles 3` settles the first that is open. Behind `told`
/// stands all that was told by then.
async fn play(limits: &Limits, told: &Told, steps: &str) {
    let mut open = std::collections::VecDeque::new();
    for step in steps.split("; ") {
        if let Some(expected) = step.strip_prefix("told") {
            let expected = expected.split(", ").map(str::trim);
            let expected: Vec<_> = expected.filter(|it| !it.is_empty()).collect();
            told_in_all(told, &expected).await;
            continue;
        }
        let (key, units) = step.split_once(' ').expect("units");
        let number = units.trim_start_matches(|it: char| !it.is_ascii_digit());
        let number = number.parse().expect("a number");
        match units.chars().next() {
            Some('!') => assert!(!uses(limits, key, number).await, "{step}"),
            Some('o') => {
                let admitted = limits.check("chat", key).cost(number).await;
                let charge = admitted.expect("there is room").charge;
                open.push_back(charge.expect("a charge"));
            }
            Some('s') => {
                let charge = open.pop_front().expect("one is open");
                charge.settle(number).await.expect("an answer");
            }
            _ => assert!(uses(limits, key, number).await, "{step}"),
        }
    }
}

/// What is reserved is not used: the mail is sent when it is, and behind what has used it.
#[tokio::test]
async fn estimates_are_told_of_when_they_are_settled() {
    let nine = |steps: &str| steps.replace("NINE", &["x opens 10"; 9].join("; "));
    let nine = |steps| nine(steps).replace("ONES", &["x settles 1"; 9].join("; "));
    for store in &Stores::start().await.all {
        let told = Told::default();
        let limits = watched(estimating(), Arc::clone(store), &told);
        // It is used as it was reserved.
        let steps = "NINE; ONES; told; x opens 41; told; x settles 41; told alice 0.5/100";
        play(&limits, &told, &nine(steps).replace("x ", "alice ")).await;
        let used = told.lock().expect("no panic")[0].used;
        assert_eq!(used, 50);
        // More than was reserved: nobody has to ask once more. And of what nobody settles.
        let told = Told::default();
        let limits = watched(estimating(), Arc::clone(store), &told);
        let steps = "carol opens 5; carol settles 95; told carol 0.5/100; \
             carol 5; told carol 0.5/100, carol 1/100";
        play(&limits, &told, steps).await;
        // Nobody has said that the estimate of the request itself is one.
        let told = Told::default();
        let limits = watched(rule(100), Arc::clone(store), &told);
        let steps = nine("NINE; ONES; told; x opens 41; told bob 0.5/100");
        play(&limits, &told, &steps.replace("x ", "bob ")).await;
    }
}

/// Where estimates do not fit into the rest, a denial tells that the budget is at its end.
#[tokio::test]
async fn denials_tell_of_a_rest_that_is_too_little() {
    for store in &Stores::start().await.all {
        let told = Told::default();
        let budget = rule(3_000).with_settling(true);
        let limits = watched_at(&[0.8, 1.0], budget, Arc::clone(store), &told);
        // Nearly all of it at a time, more than that, and beside what is only reserved. More than
        // the max again: that it was denied says nothing. All is used: the crossing says that.
        let steps = "alice 150; alice !2950; alice !3001; alice opens 2400; alice !1005; told; \
             alice settles 2300; alice !3001; told alice 0.8/3000; \
             alice !1005; alice !1005; alice !1005; \
             told alice 0.8/3000, alice 1/3000 denied at 2450; \
             alice 550; alice !1; \
             told alice 0.8/3000, alice 1/3000, alice 1/3000 denied at 2450; \
             bob 3000; bob !1; told alice 0.8/3000, alice 1/3000, \
             alice 1/3000 denied at 2450, bob 0.8/3000, bob 1/3000";
        play(&limits, &told, steps).await;
        // The window denies, and the month has room.
        let month = Policy::calendar(Period::MONTH, 3_000);
        let windows = [Quota::per_minute(2_500).into(), month];
        let windows = Rule::with_policies("chat", windows).expect("a rule");
        let told = Told::default();
        let limits = watched_at(&[0.8, 1.0], windows, Arc::clone(store), &told);
        play(&limits, &told, "carol 2450; carol !60; told carol 0.8/3000").await;
    }
    // At 85 %, under these shares.
    for (shares, expected) in [
        (&[1.0][..], "alice 1/100 denied at 85"),
        (&[0.9, 1.0], ""),
        (&[0.9, 0.5, 1.0], "alice 0.5/100"),
        (&[0.5, 0.8], "alice 0.5/100, alice 0.8/100"),
    ] {
        println!("{shares:?}");
        let told = Told::default();
        let limits = watched_at(shares, rule(100), MemoryStore::new(), &told);
        let steps = format!("alice 85; alice !16; told {expected}");
        play(&limits, &told, &steps).await;
    }
    // A rule in shadow says so.
    let told = Told::default();
    let limits = watched(rule(100).into_shadow(), MemoryStore::new(), &told);
    assert!(uses(&limits, "alice", 85).await && uses(&limits, "alice", 16).await);
    told_in_all(&told, &["alice 0.5/100", "alice 1/100 denied at 85"]).await;
    assert!(told.lock().expect("no panic").iter().all(|it| it.is_shadow));
}

/// Three processes deny, before and behind two outages in which their fallbacks do.
#[tokio::test]
async fn denials_of_several_processes_are_told_once() {
    let (server, told) = (Redis::start(), Told::default());
    let proxy = Proxy::start(&server.url).await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        let store = Resilient::new(kit::connect(&proxy.url, SECOND).await);
        let store = store.fallback(Share::of_processes(3));
        processes.push(watched_at(&[0.9, 1.0], rule(100), store, &told));
    }
    let denied_by = async |source: Source| {
        let denied = processes.iter().map(|limits| async move {
            let is_its = async || {
                let answer = limits.check("chat", "alice").cost(40).await;
                let denied = answer.expect_err("too little is left");
                denied.decision().map(Decision::source) == Some(source)
            };
            eventually("its answer", is_its).await;
        });
        join_all(denied).await;
    };
    let an_outage = async || {
        proxy.all(Mode::BlackHole);
        denied_by(Source::Fallback).await;
        proxy.all(Mode::Pass);
        denied_by(Source::Redis).await;
    };
    assert!(uses(&processes[0], "alice", 89).await);
    an_outage().await;
    told_in_all(&told, &[]).await;
    assert!(uses(&processes[1], "alice", 1).await);
    denied_by(Source::Redis).await;
    let denied = ["alice 0.9/100", "alice 1/100 denied at 90"];
    told_in_all(&told, &denied).await;
    an_outage().await;
    assert!(uses(&processes[2], "alice", 3).await);
    denied_by(Source::Redis).await;
    told_in_all(&told, &denied).await;
    assert!(uses(&processes[0], "alice", 7).await);
    denied_by(Source::Redis).await;
    told_in_all(&told, &[denied[0], "alice 1/100", denied[1]]).await;
}

/// The same through layers, whose handlers settle: behind the request, or with its body.
#[tokio::test]
async fn layers_tell_behind_their_handlers() {
    for store in &Stores::start().await.all {
        let told = Told::default();
        let limits = watched(estimating().with_cost(80), Arc::clone(store), &told);
        let told_before = Arc::clone(&told);
        let handler = async move |charges: Charges, used: String| {
            sleep(kit::millis(20)).await;
            assert!(told_before.lock().expect("no panic").is_empty());
            match &*used {
                "" => {}
                used => drop(charges.settle(used.parse().expect("units")).await),
            }
        };
        let handler = axum::routing::post(handler).layer(limits.layer("chat"));
        let app = Router::new().route("/", handler);
        let send = async |user: &str, used: &str| {
            let mut request = post("/", &format!("x-user: {user}"));
            *request.body_mut() = Body::from(used.to_owned());
            assert_eq!(call(&app, request).await.status(), 200);
        };
        send("alice", "1").await;
        told_in_all(&told, &[]).await;
        send("bob", "").await;
        told_in_all(&told, &["bob 0.5/100"]).await;
    }
}

/// One key of several processes, by what was done with it.
struct Using {
    random: Random,
    key: String,
    processes: Vec<(Limits, Told)>,
    /// Settled, in all of them.
    used: u64,
    /// The charges of each, and their estimates.
    open: Vec<Vec<(tidegate::store::Charge, u64)>>,
    /// The share, and whether a denial told it.
    told: BTreeSet<(u64, bool)>,
}

impl Using {
    /// What the processes without this one have open.
    fn open(&self, without: Option<usize>) -> u64 {
        let open = self.open.iter().enumerate();
        let open = open.filter(|(at, _)| Some(*at) != without);
        open.flat_map(|(_, charges)| charges.iter().map(|(_, units)| units))
            .sum()
    }

    async fn step(&mut self) -> String {
        let at = self.random.below(self.processes.len() as u64) as usize;
        let has_decided = self.open[at].is_empty() || self.random.is(50);
        let mut denied = None;
        let done = if has_decided {
            let cost = self.random.below(25);
            let check = self.processes[at].0.check("chat", &*self.key).cost(cost);
            let answer = check.await;
            let is_denied = answer.is_err();
            denied = is_denied.then_some(cost);
            let charge = answer.ok().and_then(|it| it.charge);
            self.open[at].extend(charge.map(|it| (it, cost)));
            format!("{at} takes {cost}, denied: {is_denied}")
        } else {
            let number = self.random.below(self.open[at].len() as u64) as usize;
            let (charge, units) = self.open[at].swap_remove(number);
            match self.random.below(4) {
                0 => {
                    drop(charge);
                    self.used += units;
                    format!("{at} keeps {units}")
                }
                1 => {
                    charge.refund().await.expect("an answer");
                    format!("{at} refunds {units}")
                }
                _ => {
                    let used = self.random.below(units + units / 2 + 2);
                    let settled = charge.settle(used).await.expect("an answer");
                    self.used += units - settled.given_back + settled.charged;
                    format!("{at} settles {used} of {units}")
                }
            }
        };
        // What is asked behind it is answered before these.
        for _ in 0..6 {
            for (limits, _) in &self.processes {
                left(limits, "chat", &*self.key).await;
                tokio::task::yield_now().await;
            }
        }
        self.check(has_decided.then_some(at), denied);
        done
    }

    /// Nothing was told too early or twice; and what a decision of this process has shown was.
    fn check(&mut self, decided: Option<usize>, denied: Option<u64>) {
        for (at, (_, told)) in self.processes.iter().enumerate() {
            for it in told.lock().expect("no panic").drain(..) {
                let share = (it.share * 100.0).round() as u64;
                let told_at = if it.is_denial { 80 } else { share };
                assert!(it.used >= told_at, "{it:?}");
                let at_most = self.used + self.open(Some(at));
                assert!(at_most >= told_at, "{it:?}: {at_most}");
                // Also without what is open here the request did not fit.
                let lacks = denied.is_some_and(|cost| it.used + cost > 100);
                assert!(!it.is_denial || lacks && share == 100, "{it:?}");
                let is_new = self.told.insert((share, it.is_denial));
                assert!(is_new, "{it:?} is told again");
            }
        }
        let is_quiet = self.open(None) == 0;
        for share in [50, 80, 100] {
            let all = (self.used + self.open(None)).min(100);
            let is_shown = |at| all - (self.open(None) - self.open(Some(at))).min(all) >= share;
            if is_quiet && self.used >= share || decided.is_some_and(is_shown) {
                let is_told = self.told.contains(&(share, false));
                assert!(is_told, "{share} of {}", self.used);
            }
            // What is open here may leave room.
            let used = |at| all - (self.open(None) - self.open(Some(at))).min(all);
            let lacks = |cost| decided.is_some_and(|at| used(at) >= share && used(at) + cost > 100);
            if denied.is_some_and(lacks) && share == 80 {
                let mut told = [true, false].map(|is_denial| (100, is_denial)).into_iter();
                assert!(told.any(|it| self.told.contains(&it)), "of {}", self.used);
            }
        }
    }
}

#[tokio::test]
async fn a_crossing_is_told_once_and_never_too_early() {
    let stores = Stores::start().await;
    let redis = [
        store_on(&stores.server).await,
        store_on(&stores.server).await,
    ];
    let redis = redis.map(|it| Arc::new(it) as Arc<dyn Store>);
    for seed in 0..kit::steps::number_of_histories(30) {
        let of_processes = match seed % 3 {
            0 => &stores.all[..1],
            _ => &redis[..],
        };
        let processes = of_processes.iter().map(|store| {
            let (shares, told) = ([0.5, 0.8, 1.0], Told::default());
            let limits = watched_at(&shares, estimating(), Arc::clone(store), &told);
            (limits, told)
        });
        let mut using = Using {
            random: Random::new(seed),
            key: seed.to_string(),
            processes: processes.collect(),
            used: 0,
            open: vec![Vec::new(); of_processes.len()],
            told: BTreeSet::new(),
        };
        let mut steps = Vec::new();
        for _ in 0..30 {
            let stepped = AssertUnwindSafe(using.step()).catch_unwind().await;
            match stepped {
                Ok(step) => steps.push(step),
                Err(panic) => {
                    println!("seed {seed} behind {steps:#?}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

#[test]
fn shares_are_above_nothing_and_at_most_all() {
    let refused = |shares: &[f64]| {
        let (limits, shares) = (Limits::new([rule(1)]), shares.to_owned());
        let set = AssertUnwindSafe(|| drop(limits.on_crossing(shares, async |_| ())));
        let panicked = std::panic::catch_unwind(set).err();
        let text = panicked.map(|it| match it.downcast::<String>() {
            Ok(text) => *text,
            Err(it) => (*it.downcast::<&str>().expect("a text")).to_owned(),
        });
        text.unwrap_or_default()
    };
    for (share, text) in [
        (0.0, "0"),
        (-0.5, "-0.5"),
        (1.7, "1.7"),
        (80.0, "80"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        let expected =
            format!("on_crossing has the share {text}, expected more than 0 and at most 1");
        assert_eq!(refused(&[0.8, share]), expected);
    }
    let none = "on_crossing has no share, expected some such as 0.8";
    assert_eq!(refused(&[]), none);
    assert_eq!(refused(&[0.000_1, 0.8, 1.0]), "");
}

/// An outage does not keep the crossing from being told: nobody has to ask again.
#[tokio::test(start_paused = true)]
async fn a_look_in_an_outage_is_repeated() {
    let (fails, told) = (Arc::new(AtomicBool::new(false)), Told::default());
    let is_failing = Arc::clone(&fails);
    let store = Stub::answering(paused(), move |_| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "down");
        let fails = is_failing.load(Ordering::Relaxed);
        fails.then(|| StoreFuture::ready(Err(error)))
    });
    let store = store.capabilities_fn(|memory| memory.capabilities());
    let limits = watched_at(&[0.8], estimating(), store, &told);
    let admitted = limits.check("chat", "alice").cost(100).await;
    let charge = admitted.expect("room").charge.expect("a charge");
    fails.store(true, Ordering::Relaxed);
    charge.settle(90).await.expect("an answer");
    sleep(millis(1_500)).await;
    assert_eq!(texts(&told), [""; 0]);
    fails.store(false, Ordering::Relaxed);
    sleep(5 * SECOND).await;
    assert_eq!(texts(&told), ["alice 0.8/100"]);
}
