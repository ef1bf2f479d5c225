//! Those that wait take turns by lanes: `fair-by`.

use tidegate::layer::Call;

use crate::*;

const PATIENCE: Duration = Duration::from_secs(120);

fn fair(algorithm: Algorithm, max: u64) -> Rule {
    let rule = owned_rule("p", max, SECOND).with_algorithm(algorithm);
    rule.with_fair_by(Header::new("x-tenant"))
}

/// In memory, so many milliseconds away.
fn store_at(round_trip: u64) -> Arc<dyn Store> {
    match round_trip {
        0 => paused(),
        _ => Arc::new(far(millis(round_trip))),
    }
}

/// So many tenants of which each has a lane of its own: the hashes are random in each process.
pub(crate) async fn tenants(number: usize) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for name in (0..100).map(|at| format!("tenant-{at}")) {
        if known.len() == number {
            return known;
        }
        let apart = known.iter().map(|it| are_apart(it, &name));
        if join_all(apart).await.into_iter().all(|it| it) {
            known.push(name);
        }
    }
    panic!("{known:?} alone are apart");
}

/// A shorter lane takes one of two places from a longer one, and nobody takes one in its own lane.
async fn are_apart(one: &str, other: &str) -> bool {
    let limits = Limits::new([fair(Algorithm::SlidingLog, 1)]).store(paused());
    let app = app(limits.layer("p").max_waiting(8).wait(PATIENCE));
    let [one, other] = [one, other].map(|it| format!("x-tenant: {it}"));
    ask(&app, "/", &one).await;
    let mut waiting = Vec::new();
    for of in [&one, &one, &other] {
        waiting.push(start(&app, 0, "/", of));
        sleep(millis(1)).await;
    }
    let ended: Vec<_> = waiting.iter().map(JoinHandle::is_finished).collect();
    waiting.iter().for_each(JoinHandle::abort);
    assert!(!ended[0] && ended[1] != ended[2], "two wait: {ended:?}");
    ended[1]
}

/// Behind so many requests of a loud tenant that come at once under 5 a second: how long a request
/// of a quiet one waits that comes at this millisecond.
async fn quiet_wait(algorithm: Algorithm, round_trip: u64, loud: usize, at: u64) -> Duration {
    let limits = Limits::new([fair(algorithm, 5)]).store(store_at(round_trip));
    let app = app(limits.layer("p").wait(PATIENCE));
    let of = tenants(2).await.into_iter();
    let of: Vec<_> = of.map(|name| format!("x-tenant: {name}")).collect();
    let waiting: Vec<_> = (0..loud).map(|_| start(&app, 0, "/", &of[0])).collect();
    let answer = start(&app, at, "/", &of[1]).await;
    waiting.iter().for_each(JoinHandle::abort);
    let answer = answer.expect("no panic");
    assert_eq!(answer.status, 200, "{algorithm:?} behind {loud}");
    answer.after
}

#[tokio::test(start_paused = true)]
async fn a_quiet_tenant_is_served_with_the_next_units() {
    let mut late = Vec::new();
    for algorithm in Algorithm::ALL {
        for (loud, at) in [(40, 50), (40, 900), (600, 50), (600, 900)] {
            for round_trip in [0, 2, 30] {
                let waited = quiet_wait(algorithm, round_trip, loud, at).await;
                let most = match algorithm {
                    Algorithm::Gcra => millis(450),
                    _ => millis(1_100 - at),
                };
                if waited > most {
                    late.push(format!(
                        "{algorithm:?} {round_trip} {loud} {at}: {waited:?}"
                    ));
                }
            }
        }
    }
    assert_eq!(late, Vec::<String>::new());
}

/// What each of these tenants was served in so many seconds, of 100 a second, if each asks for
/// costs up to this, so many units a second.
async fn served(rule: Rule, round_trip: u64, rates: &[u64], costs: u64, seconds: u64) -> Vec<u64> {
    let limits = Limits::new([rule]).store(store_at(round_trip));
    let names = tenants(rates.len()).await;
    let served: Arc<Vec<AtomicUsize>> =
        Arc::new(rates.iter().map(|_| AtomicUsize::new(0)).collect());
    let mut tasks = Vec::new();
    for (tenant, (rate, name)) in rates.iter().zip(names).enumerate() {
        let (limits, served, rate) = (limits.clone(), Arc::clone(&served), *rate);
        tasks.push(tokio::spawn(async move {
            let mut random = kit::random::Random::new(tenant as u64);
            let mut calls = tokio::task::JoinSet::new();
            loop {
                let cost = 1 + random.below(costs);
                let call = limits.check("p", "k").cost(cost).fair_by(name.as_str());
                let (call, served) = (call.wait(PATIENCE).into_future(), Arc::clone(&served));
                calls.spawn(async move {
                    if call.await.is_ok() {
                        served[tenant].fetch_add(cost as usize, Ordering::Relaxed);
                    }
                });
                sleep(Duration::from_micros(cost * 1_000_000 / rate)).await;
            }
        }));
    }
    sleep(Duration::from_secs(seconds)).await;
    tasks.iter().for_each(JoinHandle::abort);
    let served = served.iter().map(|it| it.load(Ordering::Relaxed) as u64);
    served.collect()
}

/// Jain's index of fairness: 1 if all are equal.
fn fairness(served: &[u64]) -> f64 {
    let sum: u64 = served.iter().sum();
    let squares: u64 = served.iter().map(|it| it * it).sum();
    (sum * sum) as f64 / (served.len() as u64 * squares) as f64
}

#[tokio::test(start_paused = true)]
async fn ten_tenants_share_alike() {
    let mut wrong = Vec::new();
    let rates: Vec<u64> = (0..10).map(|at| if at == 0 { 200 } else { 20 }).collect();
    for algorithm in [Algorithm::SlidingLog, Algorithm::Gcra] {
        for round_trip in [0, 30] {
            for costs in [1, 5] {
                let rule = fair(algorithm, 100);
                let served = served(rule, round_trip, &rates, costs, 60).await;
                let (fairness, sum) = (fairness(&served), served.iter().sum::<u64>());
                // Units of a log come in bursts, of which each is a round trip late.
                let least = if algorithm == Algorithm::SlidingLog {
                    5_880 - 4 * round_trip
                } else {
                    5_880
                };
                if fairness < 0.98 || sum < least {
                    wrong.push(format!(
                        "{algorithm:?} {round_trip} {costs}: {fairness} {sum}"
                    ));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Of two lanes that wait throughout, neither gets more than the largest costs of both ahead.
#[tokio::test(start_paused = true)]
async fn two_lanes_stay_close() {
    for algorithm in Algorithm::ALL {
        for round_trip in [0, 30] {
            let limits = Limits::new([fair(algorithm, 100)]).store(store_at(round_trip));
            let served = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let farthest = Arc::new(AtomicUsize::new(0));
            let names = tenants(2).await;
            let calls = (0..240).map(|at| {
                let (lane, cost) = (at % 2, if at % 2 == 0 { 3 } else { 20 });
                let call = limits
                    .check("p", "k")
                    .cost(cost)
                    .fair_by(names[lane].as_str());
                let call = call.wait(PATIENCE).into_future();
                let (served, farthest) = (Arc::clone(&served), Arc::clone(&farthest));
                tokio::spawn(async move {
                    // All are there before units come.
                    let first = call.await.is_ok();
                    if first {
                        served[lane].fetch_add(cost as usize, Ordering::Relaxed);
                        let [one, other] = [0, 1].map(|it| served[it].load(Ordering::Relaxed));
                        farthest.fetch_max(one.abs_diff(other), Ordering::Relaxed);
                    }
                })
            });
            // Whoever comes first is not in a lane.
            limits.check("p", "k").cost(100).await.expect("all");
            let calls: Vec<_> = calls.collect();
            sleep(6 * SECOND).await;
            calls.iter().for_each(JoinHandle::abort);
            let farthest = farthest.load(Ordering::Relaxed);
            assert!(
                farthest <= 23,
                "{algorithm:?} {round_trip}: {farthest}, {served:?}"
            );
        }
    }
}

/// Beside so many calls of a loud tenant, which hold one of four permits for 100 ms each and use 40
/// of 50 units a second: how long a call of a quiet one waits that costs 40.
async fn costly_wait(
    algorithm: Algorithm,
    store: impl Store,
    loud: usize,
    names: &[String],
) -> Duration {
    let rule = fair(algorithm, 50).with_max_concurrent(4);
    let limits = Limits::new([rule.expect("permits")]).store(store);
    let call = |name: &str| limits.check("p", "k").fair_by(name).wait(PATIENCE);
    let loud = (0..loud).map(|_| {
        let call = call(&names[0]).into_future();
        tokio::spawn(async move {
            let admitted = call.await;
            sleep(millis(100)).await;
            drop(admitted);
        })
    });
    let loud: Vec<_> = loud.collect();
    sleep(millis(1_045)).await;
    let came = Instant::now();
    let quiet = timeout(20 * SECOND, call(&names[1]).cost(40)).await;
    loud.iter().for_each(JoinHandle::abort);
    match quiet {
        Ok(admitted) => drop(admitted.expect("patience")),
        Err(_) => return Duration::MAX,
    }
    came.elapsed()
}

/// Those that lack permits do not pass who lacks units.
#[tokio::test(start_paused = true)]
async fn a_costly_call_has_its_turn_among_those_that_lack_permits() {
    let (names, mut late) = (tenants(2).await, Vec::new());
    for algorithm in Algorithm::ALL {
        for (round_trip, loud) in [(0, 250), (2, 250), (30, 250), (0, 10_000)] {
            let store = crate::turns::store_at(round_trip);
            let waited = costly_wait(algorithm, store, loud, &names).await;
            if waited > millis(1_200) {
                late.push(format!("{algorithm:?} {round_trip} {loud}: {waited:?}"));
            }
        }
    }
    assert_eq!(late, Vec::<String>::new());
}

/// Who waits for units and leaves holds up nobody who lacks permits, which came back meanwhile.
#[tokio::test(start_paused = true)]
async fn who_lacks_units_and_leaves_holds_up_nobody() {
    let names = tenants(2).await;
    for algorithm in Algorithm::ALL {
        let mut held_up = 0;
        // Of two lanes that have paid nothing the one with the smaller number is first.
        for [quiet, loud] in [[0, 1], [1, 0]] {
            let rule = fair(algorithm, 50).with_max_concurrent(2).expect("permits");
            let limits = Limits::new([rule.with_settling(true)]).store(paused());
            let call = |lane: usize| limits.check("p", "k").fair_by(names[lane].as_str());
            let held = [call(loud).await, call(loud).cost(20).await];
            let costly = call(quiet).cost(40).wait(PATIENCE).into_future();
            let costly = tokio::spawn(costly);
            sleep(millis(1)).await;
            let cheap = tokio::spawn(call(loud).wait(PATIENCE).into_future());
            sleep(millis(50)).await;
            let begun = Instant::now();
            drop(held);
            sleep(millis(100)).await;
            held_up += usize::from(!cheap.is_finished());
            costly.abort();
            cheap.await.expect("no panic").expect("room");
            let took = begun.elapsed();
            assert!(took <= millis(101), "{algorithm:?}: {took:?}");
        }
        assert_eq!(held_up, 1, "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_costly_call_has_its_turn_among_those_that_lack_permits_on_redis() {
    let names = tenants(2).await;
    tokio::time::resume();
    let (_server, store) = kit::near().await;
    let waits = Algorithm::ALL.map(|algorithm| {
        let store = store.clone().prefix(format!("{algorithm:?}:"));
        costly_wait(algorithm, store, 250, &names)
    });
    let waited = join_all(waits).await;
    assert!(waited.iter().all(|it| *it < millis(2_000)), "{waited:?}");
}

/// Where requests count beside units, and run at a time, shares are of units.
#[tokio::test(start_paused = true)]
async fn shares_are_of_units_whatever_denies() {
    let mut wrong = Vec::new();
    for algorithm in Algorithm::ALL {
        for at_a_time in [None, Some(3)] {
            let requests = Policy::new("requests", quota(20, SECOND)).with_cost(1);
            let policies = [Policy::new("units", quota(100, SECOND)), requests];
            let rule = Rule::with_policies("p", policies).expect("valid");
            let rule = rule.with_algorithm(algorithm);
            let rule = rule.with_fair_by(Header::new("x-tenant"));
            let rule = match at_a_time {
                Some(number) => rule.with_max_concurrent(number).expect("permits"),
                None => rule,
            };
            let limits = Limits::new([rule]).store(paused());
            let names = tenants(2).await;
            let served = Arc::new([0, 0].map(AtomicUsize::new));
            let tasks = (0..120).map(|at| {
                let (lane, limits, served) = (at % 2, limits.clone(), Arc::clone(&served));
                let (name, cost) = (names[lane].clone(), [1, 7][lane]);
                tokio::spawn(async move {
                    loop {
                        let call = limits.check("p", "k").cost(cost).fair_by(name.as_str());
                        let admitted = call.wait(PATIENCE).await.expect("patience");
                        served[lane].fetch_add(cost as usize, Ordering::Relaxed);
                        sleep(millis(100)).await;
                        drop(admitted);
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            sleep(60 * SECOND).await;
            tasks.iter().for_each(JoinHandle::abort);
            let [one, other] = [0, 1].map(|it| served[it].load(Ordering::Relaxed));
            // Those that come first do not wait.
            if one.abs_diff(other) > 70 || one < 1_000 {
                wrong.push(format!("{algorithm:?} {at_a_time:?}: {one}, {other}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A call has a lane, others of its key have none: whoever comes behind one that is overdue waits in its
/// queue, and asks no more often than that.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_lane_waits_behind_one_with() {
    for algorithm in Algorithm::ALL {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let store = Stub::delayed(paused(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            (millis(1), millis(1))
        });
        let store = store.capabilities_fn(|memory| memory.capabilities());
        let rule = owned_rule("p", 10, SECOND).with_algorithm(algorithm);
        let limits = Limits::new([rule.with_max_concurrent(9).expect("permits")]).store(store);
        let call = |cost| limits.check("p", "k").cost(cost);
        let mut held = vec![call(5).await];
        sleep(millis(100)).await;
        let in_lane = call(10).fair_by("a").wait(PATIENCE).into_future();
        let in_lane = tokio::spawn(in_lane);
        sleep(millis(400)).await;
        held.push(call(5).await);
        sleep(millis(700)).await;
        let without = tokio::spawn(call(1).wait(PATIENCE).into_future());
        for call in [in_lane, without] {
            let answer = timeout(5 * SECOND, call).await.expect("its turn");
            held.push(answer.expect("no panic"));
        }
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked <= 25, "{algorithm:?}: {asked} questions");
    }
}

/// With lanes, too, an even pace is used as if nobody waited.
#[tokio::test(start_paused = true)]
async fn lanes_use_an_even_pace() {
    let rule = |rest: &str| format!("[rules.p]\nwindow = \"1s\"\n{rest}");
    for (max, turn, round_trip) in [(20, millis(50), 2), (200, millis(5), 30)] {
        let store = far(millis(round_trip));
        let outgoing = format!("max-count = {max}\noutgoing = true\npace = \"even\"");
        let limits = of_toml(&rule(&outgoing)).store(store.clone());
        let partner = limits.outgoing("p").wait(10 * SECOND);
        let begun = Instant::now();
        let turns = (0..100).map(|at| {
            let partner = partner.clone().fair_by(format!("{}", at % 7));
            async move { partner.ready("us").await.map(drop) }
        });
        assert!(join_all(turns).await.iter().all(Result::is_ok));
        let (took, asked) = (begun.elapsed(), store.takes().len());
        let most = turn * 100 + 3 * millis(round_trip);
        assert!(took <= most, "{max}: {took:?} for {most:?}");
        assert!((190..=230).contains(&asked), "{max}: {asked} questions");
    }
}

/// A future that is kept but not polled holds up nobody for long, in no lane.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_not_polled_holds_up_no_lane() {
    for round_trip in [0, 10] {
        let limits = Limits::new([fair(Algorithm::SlidingLog, 5)]).store(store_at(round_trip));
        let app = app(limits.layer("p").wait(PATIENCE));
        let of = tenants(3).await.into_iter();
        let of: Vec<_> = of.map(|name| format!("x-tenant: {name}")).collect();
        let take_all = start(&app, 0, "/", &of[0]);
        done((0..4).map(|_| start(&app, 0, "/", &of[0]))).await;
        take_all.await.expect("no panic");
        let mut stands = Box::pin(ask(&app, "/", &of[0]));
        assert!(timeout(millis(150), &mut stands).await.is_err());
        let asked = [0, 1, 2, 0, 1].map(|at: usize| start(&app, 0, "/", &of[at]));
        let answers = done(asked).await;
        let after: Vec<_> = answers.iter().map(Answer::millis).collect();
        assert!(after.iter().all(|it| *it < 2_600), "{after:?}");
        // Later it delays others once more at most.
        sleep(2 * SECOND).await;
        let answers = done((0..4).map(|_| start(&app, 0, "/", &of[1]))).await;
        let at_once = answers.iter().all(|it| it.millis() < 600);
        assert!(
            at_once,
            "{:?}",
            answers.iter().map(Answer::millis).collect::<Vec<_>>()
        );
        assert_eq!(stands.await.status, 200);
    }
}

/// What brings all who wait to ask at once.
#[derive(Debug, Clone, Copy, PartialEq)]
enum AllAsk {
    AfterReload,
    AfterRaise,
    /// The store answers nothing for so many milliseconds.
    BehindStandstill(u64),
}

/// In memory, so many milliseconds away; it answers nothing until this instant.
fn standing(round_trip: u64, until: Arc<Mutex<Instant>>) -> impl Store {
    let way = Duration::from_micros(round_trip * 500);
    let store = Stub::delayed(paused(), move || {
        let until = *until.lock().expect("no panic");
        (way + until.saturating_duration_since(Instant::now()), way)
    });
    store.capabilities_fn(|memory| memory.capabilities())
}

/// Of those of a loud tenant that wait for 5 a second, how many are admitted between the first
/// answers of these others, that come at once so many milliseconds after all asked, and their turns.
async fn passed_by(
    rule: &Rule,
    (store, stand, round_trip): (impl Store, impl Fn(u64), u64),
    is_layer: bool,
    (all_ask, after): (AllAsk, u64),
    names: &[String],
) -> usize {
    let limits = Limits::new([rule.clone()]).store(store);
    let served: Arc<Mutex<Vec<(Instant, usize)>>> = Arc::default();
    let work = {
        let (served, is_busy) = (
            Arc::clone(&served),
            rule.policies().iter().any(Policy::is_concurrent),
        );
        move |tenant| {
            let now = Instant::now();
            served.lock().expect("no panic").push((now, tenant));
            sleep(millis(if is_busy { 200 } else { 0 }))
        }
    };
    let handler = {
        let work = work.clone();
        async move |head: Parts| work(head.uri.path()[1..].parse().expect("a number")).await
    };
    let app = Router::new().fallback(handler);
    let app = app.layer(limits.layer("p").wait(PATIENCE));
    let call = |tenant: usize| {
        let (app, name, work) = (app.clone(), names[tenant].clone(), work.clone());
        let call = limits.check("p", Key::default()).fair_by(name.as_str());
        let call = call.wait(PATIENCE).into_future();
        tokio::spawn(async move {
            if is_layer {
                ask(&app, &format!("/{tenant}"), &format!("x-tenant: {name}")).await;
            } else if let Ok(_admitted) = call.await {
                work(tenant).await;
            }
        })
    };
    let loud: Vec<_> = (0..50).map(|_| call(0)).collect();
    sleep(millis(1_040)).await;
    let mut since = Instant::now();
    match all_ask {
        AllAsk::AfterReload => {
            let rules = Rules::from([rule.clone(), owned_rule("q", 1, SECOND)]);
            limits.rules().replace(rules);
        }
        AllAsk::AfterRaise => {
            let raised = limits.raise("p", Key::default(), 1.001, 60 * SECOND, "ops");
            raised.await.expect("it can be raised");
        }
        AllAsk::BehindStandstill(time) => {
            stand(time);
            since = Instant::now() + millis(time);
        }
    }
    sleep(millis(after)).await;
    since = since.max(Instant::now()) + millis(round_trip);
    done((1..names.len()).map(call).collect::<Vec<_>>()).await;
    loud.iter().for_each(JoinHandle::abort);
    let served = served.lock().expect("no panic");
    let turns = served.iter().filter(|(_, tenant)| *tenant > 0);
    let last = turns.map(|(at, _)| *at).max().expect("a turn");
    let passed = served
        .iter()
        .filter(|(at, it)| *it == 0 && *at > since && *at < last);
    passed.count()
}

/// The lane of those who ask all at once pays for what it is served, and not for its questions.
#[tokio::test(start_paused = true)]
async fn who_asks_only_does_not_fall_behind() {
    let (mut wrong, names) = (Vec::new(), tenants(6).await);
    let alike = Algorithm::ALL.map(|algorithm| (format!("{algorithm:?}"), fair(algorithm, 5)));
    let permits = fair(Algorithm::SlidingLog, 1_000).with_max_concurrent(1);
    let permits = ("permits".to_owned(), permits.expect("permits"));
    for (name, rule) in alike.into_iter().chain([permits]) {
        for asks in [
            (AllAsk::AfterReload, 1_300),
            (AllAsk::AfterReload, 300),
            (AllAsk::AfterReload, 970),
            (AllAsk::AfterRaise, 1_300),
            (AllAsk::BehindStandstill(900), 100),
            (AllAsk::BehindStandstill(900), 910),
            (AllAsk::BehindStandstill(900), 2_000),
        ] {
            for (round_trip, others) in [(0, 1), (2, 1), (30, 1), (2, 5)] {
                for is_layer in [true, false] {
                    let until = Arc::new(Mutex::new(Instant::now()));
                    let store = standing(round_trip, Arc::clone(&until));
                    let stand = |time| {
                        *until.lock().expect("no panic") = Instant::now() + millis(time);
                    };
                    let store = (store, stand, round_trip);
                    let passed = passed_by(&rule, store, is_layer, asks, &names[..=others]).await;
                    if passed > others {
                        let at = format!("{round_trip} ms, {others}, {is_layer}");
                        wrong.push(format!("{name} {asks:?} {at}: {passed}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// The same on Redis, which stands still for longer than its time-out.
#[tokio::test]
async fn who_asks_only_does_not_fall_behind_on_redis() {
    let (server, store) = kit::near_within(SECOND).await;
    let burst_1 = quota(5, SECOND).with_burst(1).expect("a burst");
    let even = Rule::new("p", [burst_1])
        .expect("valid")
        .with_algorithm(Algorithm::Gcra);
    let even = even.with_fair_by(Header::new("x-tenant"));
    let rules = Algorithm::ALL.map(|algorithm| fair(algorithm, 5));
    let names = std::thread::spawn(|| kit::paused_runtime().block_on(tenants(2)));
    let names = names.join().expect("names");
    let stand = |time| kit::run(&server, &format!("CLIENT PAUSE {time} ALL"));
    let passed = |at: usize, rule: Rule, asks| {
        let names = &names;
        let store = store.clone().prefix(format!("{at}:"));
        async move { passed_by(&rule, (store, stand, 0), at.is_multiple_of(2), asks, names).await }
    };
    let reloads = rules.into_iter().cycle().take(8).enumerate();
    let reloads = reloads.map(|(at, rule)| passed(at, rule, (AllAsk::AfterReload, 1_300)));
    let reloads = join_all(reloads).await;
    let mut all = reloads;
    for at in 10..12 {
        all.push(passed(at, even.clone(), (AllAsk::BehindStandstill(2_500), 2_600)).await);
    }
    assert!(all.iter().all(|it| *it <= 1), "{all:?}");
}

/// Beside so many connections of one tenant, how many of 51 requests of three others are refused.
async fn refused_beside(rule: Rule, connections: usize) -> usize {
    let takes = rule.policies().iter().any(Policy::is_concurrent);
    let limits = Limits::new([rule]).store(paused());
    let handler = async move || sleep(millis(if takes { 100 } else { 0 })).await;
    let app = Router::new().fallback(handler);
    let app = app.layer(limits.layer("p").wait(30 * SECOND));
    let of = tenants(4).await.into_iter();
    let of: Vec<_> = of.map(|name| format!("x-tenant: {name}")).collect();
    let loud = (0..connections).map(|at| {
        let (app, of) = (app.clone(), of[0].clone());
        tokio::spawn(async move {
            sleep(millis(at as u64 % 100)).await;
            loop {
                if ask(&app, "/", &of).await.status != 200 {
                    sleep(3 * SECOND).await;
                }
            }
        })
    });
    let loud: Vec<_> = loud.collect();
    sleep(millis(500)).await;
    let quiet = of[1..].iter().map(|of| async {
        let mut refused = 0;
        for _ in 0..17 {
            refused += usize::from(ask(&app, "/", of).await.status != 200);
            sleep(millis(130)).await;
        }
        refused
    });
    let refused = join_all(quiet).await;
    loud.iter().for_each(JoinHandle::abort);
    refused.iter().sum()
}

/// The places of a layer are used up by one tenant: it makes room for others, whatever counts.
#[tokio::test(start_paused = true)]
async fn who_is_quiet_has_a_place_beside_a_crowd() {
    let windows = fair(Algorithm::SlidingWindow, 20);
    let permits = |rule: Rule| rule.with_max_concurrent(3).expect("permits");
    let alone = permits(fair(Algorithm::SlidingWindow, 100_000));
    let both = permits(windows.clone());
    for (name, rule) in [("windows", windows), ("permits", alone), ("both", both)] {
        assert_eq!(refused_beside(rule, 1_200).await, 0, "{name}");
    }
}

/// How many units these callers were served in a minute, by tenants, of which they are in turn.
/// `one` makes a call of a tenant and returns its units; the calls of a caller are numbered.
async fn by_tenant<F: Future<Output = u64> + Send + 'static>(
    limits: &Limits,
    (callers, number): (usize, usize),
    one: impl Fn(Call, usize, u64) -> F + Clone + Send + 'static,
) -> Vec<u64> {
    let served: Arc<Vec<AtomicU64>> = Arc::new((0..number).map(|_| AtomicU64::new(0)).collect());
    let names = tenants(number).await;
    let tasks = (0..callers).map(|at| {
        let (limits, served, one) = (limits.clone(), Arc::clone(&served), one.clone());
        let (tenant, name) = (at % number, names[at % number].clone());
        tokio::spawn(async move {
            for turn in (at / number) as u64.. {
                let call = limits.check("p", "k").fair_by(name.as_str());
                let units = one(call, tenant, turn).await;
                served[tenant].fetch_add(units, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    sleep(60 * SECOND).await;
    tasks.iter().for_each(JoinHandle::abort);
    served.iter().map(|it| it.load(Ordering::Relaxed)).collect()
}

/// Of 80 units a second, what a tenant gets in a minute whose callers wait so many milliseconds and
/// pause so long, beside one whose callers wait 20 s. The clock stands on round numbers.
async fn of_short_waits(algorithm: Algorithm, (wait, pause): (u64, u64), callers: usize) -> u64 {
    let limits = Limits::new([fair(algorithm, 80)]).store(paused());
    let one = move |call: Call, tenant: usize, _| async move {
        let is_served = call.wait(millis([wait, 20_000][tenant])).await.is_ok();
        if !is_served {
            sleep(millis(pause)).await;
        }
        u64::from(is_served)
    };
    by_tenant(&limits, (2 * callers, 2), one).await[0]
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_as_units_come_has_its_turn() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        for callers in [1, 41] {
            let odd = of_short_waits(algorithm, (907, 53), callers).await;
            for round in [(900, 50), (950, 50), (1_000, 50), (500, 500), (900, 100)] {
                let units = of_short_waits(algorithm, round, callers).await;
                let is_alike = units.abs_diff(odd) * 50 <= odd;
                assert!(
                    is_alike,
                    "{algorithm:?} {callers} {round:?}: {units} to {odd}"
                );
            }
        }
    }
}

/// How handlers say what they have used.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Says {
    Settles,
    /// Every other one gives back its reservation.
    Refunds,
    Meters,
}

/// Of 100 units a second, what two tenants with 40 callers each have used in a minute. Each request
/// uses 20 for 50 ms; those of the first one reserve all, those of the second one this.
async fn used(says: Says, reserved: u64, algorithm: Algorithm) -> Vec<u64> {
    let rule = fair(algorithm, 100).with_settling(true);
    let limits = Limits::new([rule]).store(paused());
    let one = move |call: Call, tenant: usize, number: u64| async move {
        let call = call.cost([20, reserved][tenant]).wait(PATIENCE);
        let charge = call.await.expect("patience").charge.expect("a charge");
        let meter = (says == Says::Meters).then(|| charge.meter());
        sleep(millis(50)).await;
        let keeps = says != Says::Refunds || tenant == 0 || number.is_multiple_of(2);
        match meter {
            Some(meter) => meter.add(20),
            None if keeps => _ = charge.settle(20).await.expect("an answer"),
            None => _ = charge.refund().await.expect("an answer"),
        }
        if keeps { 20 } else { 0 }
    };
    by_tenant(&limits, (80, 2), one).await
}

/// A lane pays for what its requests use, and hardly for what they reserve.
#[tokio::test(start_paused = true)]
async fn lanes_share_what_is_used() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::Gcra] {
        // While units are kept for so much at once, others do without.
        for (says, reserved, most) in [
            (Says::Settles, 1, 400),
            (Says::Meters, 1, 400),
            (Says::Settles, 40, 800),
            (Says::Refunds, 20, 600),
        ] {
            let used = used(says, reserved, algorithm).await;
            let is_alike = used[0].abs_diff(used[1]) <= most;
            assert!(is_alike, "{algorithm:?} {says:?} {reserved}: {used:?}");
        }
    }
}

/// Of 100 units a second, what is used of 1 each in a minute by a tenant that reserves no more, and by
/// one that reserves this for so many milliseconds and then uses one or nothing.
async fn beside_reservations(
    algorithm: Algorithm,
    (reserved, held, uses): (u64, u64, u64),
) -> Vec<u64> {
    let rule = fair(algorithm, 100).with_settling(true);
    let limits = Limits::new([rule]).store(paused());
    let one = move |call: Call, tenant: usize, _| async move {
        let call = call.cost([1, reserved][tenant]).wait(PATIENCE);
        let charge = call.await.expect("patience").charge.expect("a charge");
        sleep(millis(held)).await;
        let used = [1, uses][tenant];
        charge.settle(used).await.expect("an answer");
        used
    };
    by_tenant(&limits, (80, 2), one).await
}

/// Who reserves too much is not behind, but for what it holds in the meantime; and who gives
/// everything back takes nobody's turn.
#[tokio::test(start_paused = true)]
async fn reservations_cost_what_they_hold() {
    let mut wrong = Vec::new();
    for algorithm in Algorithm::ALL {
        for held in [1, 50, 300] {
            let used = beside_reservations(algorithm, (5, held, 1)).await;
            // Of four that come back, what has drained does not.
            let is_log = u64::from(algorithm != Algorithm::Gcra);
            let paid = used[1] + used[1] * 4 * is_log * held / 1_000;
            let mut beside = Vec::new();
            for reserved in [50, 80, 100] {
                beside.push(beside_reservations(algorithm, (reserved, held, 0)).await[0]);
            }
            if paid.abs_diff(used[0]) * 4 > used[0] || beside.iter().any(|it| *it < 2_300) {
                wrong.push(format!("{algorithm:?} {held}: {used:?}, {beside:?}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Of 100 units a second, what lanes of the weights 1, 2 and 4 were served in a minute.
async fn weighted(algorithm: &str, cost: u64, callers: usize) -> Vec<u64> {
    let max = 100 * cost;
    let text = format!(
        "[rules.p]\nmax-count = {max}\nwindow = \"1s\"\nalgorithm = \"{algorithm}\"\n\
         fair-by = \"header:x-tenant\"\n[rules.p.plans]\n2 = {{ fair-weight = 2 }}\n\
         4 = {{ max-count = {max}, window = \"1s\", fair-weight = 4 }}\n"
    );
    let one = move |call: Call, tenant: usize, _| async move {
        let call = call.cost(cost).wait(PATIENCE);
        let call = match tenant {
            0 => call,
            _ => call.plan(["", "2", "4"][tenant]),
        };
        // Those of all lanes together may have no place.
        let is_served = call.await.is_ok();
        if !is_served {
            sleep(SECOND).await;
        }
        yield_now().await;
        u64::from(is_served)
    };
    by_tenant(&of_toml(&text).store(paused()), (3 * callers, 3), one).await
}

#[tokio::test(start_paused = true)]
async fn lanes_share_by_their_weights() {
    for (algorithm, callers) in [
        ("gcra", 20),
        ("sliding-log", 100),
        ("sliding-window", 100),
        ("fixed-window", 100),
    ] {
        for cost in [1, 1_000_000_000_000] {
            let served = weighted(algorithm, cost, callers).await;
            let sum: u64 = served.iter().sum();
            let is_share = |(served, weight): (&u64, u64)| {
                let share = sum * weight / 7;
                served.abs_diff(share) * 100 <= share * 3
            };
            let are_shares = served.iter().zip([1, 2, 4]).all(is_share);
            assert!(are_shares && sum > 5_900, "{algorithm} {cost}: {served:?}");
        }
    }
}

/// The processor's time of a turn, in nanoseconds, among so many that always wait in these lanes.
async fn turn_costs(callers: u64, lanes: u64) -> u128 {
    let text = "[rules.p]\nmax-count = 5000\nwindow = \"1s\"\noutgoing = true\npace = \"even\"";
    let partner = of_toml(text).store(paused()).outgoing("p").wait(PATIENCE);
    let served = Arc::new(AtomicUsize::new(0));
    let tasks = (0..callers).map(|at| {
        let (partner, served) = (partner.clone(), Arc::clone(&served));
        tokio::spawn(async move {
            loop {
                let turn = partner.clone().fair_by(format!("{}", at % lanes));
                drop(turn.ready("us").await.expect("patience"));
                served.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    // None of them checks whether its rule has changed, which each does once a second.
    sleep(millis(300)).await;
    let (before, begun) = (served.load(Ordering::Relaxed), std::time::Instant::now());
    sleep(millis(600)).await;
    let turns = served.load(Ordering::Relaxed) - before;
    tasks.iter().for_each(JoinHandle::abort);
    begun.elapsed().as_nanos() / turns as u128
}

/// Of figures that tell the time of a processor, the least of several rounds counts.
#[tokio::test(start_paused = true)]
#[ignore = "by hand, in a release build and alone"]
async fn a_turn_among_many_costs_little_more() {
    let [mut few, mut many] = [u128::MAX; 2];
    for _ in 0..7 {
        few = few.min(turn_costs(100, 10).await);
        many = many.min(turn_costs(10_000, 1_000).await);
    }
    let times = many as f64 / few as f64;
    println!("a turn: {few} ns of 100 in 10 lanes, {many} of 10,000 in 1,000: {times:.2}");
    assert!(times <= 2.0, "{times}");
}

#[test]
fn scenes() {
    let of = kit::paused_runtime().block_on(tenants(4));
    let names = ["one", "two", "three", "four"].into_iter().zip(of);
    kit::timeline::play_with("tests/layer/lanes.txt", &names.collect::<Vec<_>>());
}
