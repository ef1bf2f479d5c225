//! Whose turn it is among those that wait: the bound on being passed.

use kit::near;
use kit::random::Random;

use crate::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn rule(algorithm: Algorithm, max: u64) -> Rule {
    owned_rule("p", max, SECOND).with_algorithm(algorithm)
}

/// In memory, so many milliseconds away.
pub(crate) fn store_at(round_trip: u64) -> Arc<dyn Store> {
    let way = Duration::from_micros(round_trip * 500);
    match round_trip {
        0 => paused(),
        _ => {
            let store = Stub::delayed(paused(), move || (way, way));
            Arc::new(store.capabilities_fn(|memory| memory.capabilities()))
        }
    }
}

/// Asks for so much again and again. What it does with it takes no time.
fn keep_asking(limits: &Limits, cost: u64) -> JoinHandle<()> {
    let limits = limits.clone();
    tokio::spawn(async move {
        loop {
            let admitted = limits.check("p", "k").cost(cost).wait(PATIENCE).await;
            drop(admitted.expect("patience"));
            tokio::task::yield_now().await;
        }
    })
}

/// How long one call of cost 80 waits among twenty that always wait for 10 each, of 100 a second.
async fn costly_wait(rule: Rule, store: impl Store) -> Duration {
    let limits = Limits::new([rule]).store(store);
    let others: Vec<_> = (0..20).map(|_| keep_asking(&limits, 10)).collect();
    sleep(millis(2_345)).await;
    let came = Instant::now();
    let call = limits.check("p", "k").cost(80).wait(PATIENCE);
    let admitted = timeout(10 * SECOND, call).await;
    others.iter().for_each(JoinHandle::abort);
    match admitted {
        Ok(admitted) => drop(admitted.expect("patience")),
        Err(_) => return Duration::MAX,
    }
    came.elapsed()
}

/// The twenty that came before it have their turns, 200 units, and then it has its own.
#[tokio::test(start_paused = true)]
async fn a_costly_call_has_its_turn_among_cheap_ones() {
    let mut late = Vec::new();
    for algorithm in Algorithm::ALL {
        for round_trip in [0, 2, 30] {
            for at_a_time in [None, Some(50)] {
                let rule = rule(algorithm, 100);
                let rule = match at_a_time {
                    Some(number) => rule.with_max_concurrent(number).expect("permits"),
                    None => rule,
                };
                let waited = costly_wait(rule, store_at(round_trip)).await;
                if waited > millis(2_900) {
                    late.push(format!(
                        "{algorithm:?} {round_trip} {at_a_time:?}: {waited:?}"
                    ));
                }
            }
        }
    }
    assert_eq!(late, Vec::<String>::new());
}

/// The same where each question spends another time on the way, so that the next one may arrive
/// before its units are free.
#[tokio::test(start_paused = true)]
async fn a_costly_call_has_its_turn_where_questions_are_late() {
    for algorithm in Algorithm::ALL {
        for seed in 0..20 {
            let random = Arc::new(std::sync::Mutex::new(Random::new(seed)));
            let late = move || millis(random.lock().expect("no panic").below(40));
            let store = Stub::delayed(paused(), move || (late(), Duration::ZERO));
            let store = store.capabilities_fn(|memory| memory.capabilities());
            let waited = costly_wait(rule(algorithm, 100), store).await;
            assert!(waited <= millis(2_900), "{algorithm:?} {seed}: {waited:?}");
        }
    }
}

/// The same on Redis, where everything takes longer.
#[tokio::test]
async fn a_costly_call_has_its_turn_on_redis() {
    let (_server, store) = near().await;
    let waits = Algorithm::ALL.map(|algorithm| {
        let store = store.clone().prefix(format!("{algorithm:?}:"));
        let rule = rule(algorithm, 100).with_max_concurrent(50);
        costly_wait(rule.expect("permits"), store)
    });
    let waited = join_all(waits).await;
    assert!(waited.iter().all(|it| *it < millis(4_000)), "{waited:?}");
}

/// What those are told whose patience ends, and when their cost fits, by a question right behind
/// it, in milliseconds. Of 4 units a second, six wait for long, and two for 871 ms.
async fn told_and_true(algorithm: Algorithm, round_trip: u64, lanes: bool) -> Vec<[u128; 2]> {
    let limits = Limits::new([rule(algorithm, 4)]).store(store_at(round_trip));
    let told: Arc<Mutex<Vec<[u128; 2]>>> = Arc::default();
    let names = crate::lanes::tenants(2).await;
    let tasks = (0..8).map(|at: u64| {
        let (limits, told) = (limits.clone(), Arc::clone(&told));
        let name = names[at as usize % 2].clone();
        tokio::spawn(async move {
            let wait = if at < 6 { PATIENCE } else { millis(871) };
            loop {
                let call = || limits.check("p", "k");
                let asked = call().wait(wait);
                let asked = if lanes {
                    asked.fair_by(name.as_str())
                } else {
                    asked
                };
                if let Err(denied) = asked.await {
                    let says = denied.retry_after().expect("a time").as_millis();
                    let fits = match call().await {
                        Err(it) => it.retry_after().expect("a time"),
                        _ => Duration::ZERO,
                    };
                    told.lock()
                        .expect("no panic")
                        .push([says, fits.as_millis()]);
                }
                sleep(millis(if at < 6 { 0 } else { 13 })).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    sleep(60 * SECOND).await;
    tasks.iter().for_each(JoinHandle::abort);
    std::mem::take(&mut *told.lock().expect("no panic"))
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_is_told_when_it_fits() {
    for algorithm in Algorithm::ALL {
        for round_trip in [0, 2, 30] {
            for lanes in [false, true] {
                let all = told_and_true(algorithm, round_trip, lanes).await;
                let is_right = |[told, fits]: &[u128; 2]| {
                    let most = fits + u128::from(round_trip) + 1;
                    *told > 0 && (told * 10 >= fits * 8 || told + 15 >= *fits) && *told <= most
                };
                let wrong = all.iter().filter(|it| !is_right(it)).collect::<Vec<_>>();
                // A question may be on its way that a queue does not know of.
                let is_right = wrong.len() * 200 <= all.len() && all.len() > 100;
                assert!(
                    is_right,
                    "{algorithm:?} {round_trip} {lanes}: {wrong:?} of {}",
                    all.len()
                );
            }
        }
    }
}

/// What becomes of these calls (when they come, their costs, patience and lanes, in milliseconds)
/// at an even pace of 20 a second: how long each took, and whether it was served.
async fn paced(store: impl Store, calls: &[[u64; 4]], may_return: bool) -> Vec<(u128, bool)> {
    let quota = quota(20, SECOND).with_burst(20).expect("a burst");
    let rule = Rule::new("p", [quota]).expect("valid");
    let rule = rule
        .with_algorithm(Algorithm::Gcra)
        .with_settling(may_return);
    let limits = Limits::new([rule]).store(store);
    limits.check("p", "k").cost(20).await.expect("a burst");
    let calls = calls.iter().map(|[at, cost, patience, lane]| {
        let call = limits.check("p", "k").cost(*cost).wait(millis(*patience));
        let call = if *lane > 0 {
            call.fair_by(format!("{lane}"))
        } else {
            call
        };
        let (call, at) = (call.into_future(), millis(*at));
        tokio::spawn(async move {
            sleep(at).await;
            let came = Instant::now();
            let is_served = call.await.is_ok();
            (came.elapsed().as_millis(), is_served)
        })
    });
    done(calls.collect::<Vec<_>>()).await
}

/// Who cannot be served in time behind others is refused at once.
#[tokio::test(start_paused = true)]
async fn who_comes_too_late_for_an_even_pace_is_refused_at_once() {
    let of_80 = |lane| vec![[0, 1, 2_000, lane]; 80];
    for lane in [0, 1] {
        for round_trip in [0, 2, 30] {
            let all = paced(store_at(round_trip), &of_80(lane), false).await;
            let served = all.iter().filter(|(_, is_served)| *is_served).count();
            assert_eq!(served, 40, "{lane} {round_trip}");
            // Of those before it one may be asking, or be passed.
            let is_late = |it: &&(u128, bool)| !it.1 && it.0 > round_trip.into();
            let late = all.iter().filter(is_late).count();
            assert!(late <= 1, "{lane} {round_trip}: {late}");
        }
    }
}

/// Nobody is refused who would be served if it waited on, as it does where units may return.
#[tokio::test(start_paused = true)]
async fn nobody_is_refused_who_would_be_served() {
    let mut at_once = [0, 0];
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (costs, spread, lanes) = (1 + random.below(4), random.below(400), random.below(3));
        let waits = [[2_000; 3], [500, 1_000, 2_000]][random.below(2) as usize];
        let calls = (0..80).map(|_| {
            let patience = waits[random.below(3) as usize];
            [
                random.below(1 + spread),
                1 + random.below(costs),
                patience,
                random.below(1 + lanes),
            ]
        });
        let calls: Vec<_> = calls.collect();
        let [waits, refuses] = [
            paced(paused(), &calls, true).await,
            paced(paused(), &calls, false).await,
        ];
        let would = waits.iter().zip(&refuses).zip(&calls);
        let wrong: Vec<_> = would
            .filter(|((one, other), _)| one.1 && !other.1)
            .collect();
        if !wrong.is_empty() {
            eprintln!("EE {seed} {costs} {spread} {lanes}: {wrong:?}");
        }
        for (at, all) in [waits, refuses].iter().enumerate() {
            at_once[at] += all.iter().filter(|it| **it == (0, false)).count();
        }
    }
    assert!(at_once[0] == 0 && at_once[1] > 100, "{at_once:?}");
}

#[test]
fn scenes() {
    kit::timeline::play("tests/layer/turns.txt");
}
