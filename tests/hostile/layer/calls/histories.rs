//! The same history through a layer around a service and through calls of a function: what fails and
//! what does not, under rules of all kinds, leaves equal counts and equal counters.

use std::io;

use tidegate::rule::Plan;

use super::*;

/// What a call, or a request, says of itself.
#[derive(Debug, Clone, Copy, Default)]
struct Ask {
    cost: Option<u64>,
    plan: Option<&'static str>,
    table: Option<u64>,
    fails: bool,
}

fn quotas(max: u64) -> Quotas {
    Quotas::new([Quota::new(SECOND, max).expect("valid")]).expect("valid")
}

fn key(_: &Parts) -> Result<Key, tidegate::key::KeyError> {
    Ok(Key::from("k"))
}

/// Rules of all kinds, each with the keys of a call.
fn rules() -> Vec<(&'static str, Rule, bool)> {
    let quota = |max| Quota::new(SECOND, max).expect("valid");
    let plain = || Rule::new("p", [quota(5)]).expect("valid").with_key(key);
    let several = Rule::new("p", [quota(5), Quota::per_minute(20)]).expect("valid");
    let subject = |name, max| Subject::new(name, key).limit(quota(max));
    let joint = || Rule::joint("p", [subject("user", 5), subject("org", 7)]).expect("valid");
    let costly = subject("org", 9);
    let costly = costly.limit(tidegate::rule::Policy::new("calls", quota(4)).with_cost(1));
    let of_cost = Rule::joint("p", [subject("user", 6), costly]).expect("valid");
    let with_permit = plain().with_max_concurrent(1).expect("valid");
    let candidate = Rule::new("p", [quota(2)]).expect("valid");
    let joint_plan = Rule::joint("p", [subject("user", 5), subject("org", 7)]).expect("valid");
    let by = |algorithm| plain().with_algorithm(algorithm);
    let zero = Rule::new("p", [quota(0)]).expect("valid");
    let with_plan = plain().with_plan("pro", quotas(8));
    vec![
        ("plain", plain(), false),
        ("several", several.with_key(key), false),
        ("gcra", by(Algorithm::Gcra), false),
        ("fixed", by(Algorithm::FixedWindow), false),
        ("sliding window", by(Algorithm::SlidingWindow), false),
        ("cost", plain().with_cost(2), false),
        ("zero", zero.with_key(key), false),
        ("shadow", plain().into_shadow(), false),
        ("candidate", plain().with_shadow(candidate), false),
        ("candidate of joint", joint().with_shadow(joint_plan), true),
        ("plans", with_plan.expect("valid"), false),
        ("permit", with_permit, false),
        ("joint", joint(), true),
        ("joint, in shadow", joint().into_shadow(), true),
        ("cost of a quota", of_cost, true),
    ]
}

async fn by_call(limits: &Limits, is_joint: bool, ask: Ask) -> &'static str {
    let call = limits.call("p");
    let mut call = match is_joint {
        true => call.key([("user", Key::from("k")), ("org", Key::from("k"))]),
        false => call.key("k"),
    };
    if let Some(cost) = ask.cost {
        call = call.cost(cost);
    }
    if let Some(plan) = ask.plan {
        call = call.plan(plan);
    }
    if let Some(max) = ask.table {
        call = call.plan_value(Plan::from(quotas(max)));
    }
    let function = async || match ask.fails {
        true => Err("failed"),
        false => Ok("ran"),
    };
    let call = call.degrade(async |_| Ok("denied"));
    let call = call.on_error(async |failed| panic!("{failed}"));
    call.try_run(function).await.unwrap_or_else(|it| it)
}

async fn by_layer(limits: &Limits, ask: Ask) -> &'static str {
    let mut layer: RateLimitLayer = limits.layer("p");
    if let Some(cost) = ask.cost {
        layer = layer.cost(move |_| cost);
    }
    if let Some(max) = ask.table {
        let plan = Plan::from(quotas(max));
        layer = layer.plan_value(move |_: &Parts| Some(plan.clone()));
    }
    let service = layer.layer(service_fn(async |_: Request<Body>| match ask.fails {
        true => Err(io::Error::other("failed")),
        false => Ok(Response::new(Body::empty())),
    }));
    let mut request = kit::http::get("/");
    if let Some(plan) = ask.plan {
        request.extensions_mut().insert(Plan::new(plan));
    }
    match service.oneshot(request).await {
        Err(_) => "failed",
        Ok(response) if response.status() == 429 => "denied",
        Ok(response) => {
            assert!(response.status().is_success());
            "ran"
        }
    }
}

/// All that is counted, but for times.
fn seen(limits: &Limits) -> String {
    let it = counted(limits);
    let decisions = [DecisionOutcome::Allowed, DecisionOutcome::Denied].map(|of| it.decisions(of));
    let errors: Vec<_> = it.errors().filter(|(_, number)| *number > 0).collect();
    format!(
        "{decisions:?} {:?} {:?} {:?} units {} near {} refunds {} {} {} owed {} {} shadow {} {} \
         through {} {} plans {} wait {} {} latency {} {errors:?}",
        it.denials,
        it.shadow_denials,
        it.plans,
        it.units,
        it.near_limit,
        it.refunds,
        it.refunded_units,
        it.refunds_lost,
        it.owed_units,
        it.forgiven_units,
        it.shadow_errors,
        it.lagged,
        it.let_through,
        it.proceeded,
        it.unknown_plans,
        it.waiting,
        it.waited,
        it.latency.count(),
    )
}

async fn counts(limits: &Limits, is_joint: bool) -> String {
    let peek = match is_joint {
        true => limits.peek("p", [("user", Key::from("k")), ("org", Key::from("k"))]),
        false => limits.peek("p", "k"),
    };
    let decision = peek.await.expect("an answer").expect("a rule");
    let quotas = decision.quotas().iter().map(|it| it.remaining());
    format!("{:?}", quotas.collect::<Vec<_>>())
}

fn random_ask(random: &mut Random) -> Ask {
    let pick = random.below(8) as usize;
    Ask {
        cost: [0, 1, 2, 3, u64::MAX].get(pick).copied(),
        plan: [None, None, Some("pro"), Some("unknown")][random.below(4) as usize],
        table: [None, None, None, Some(3)][random.below(4) as usize],
        fails: random.below(2) == 0,
    }
}

/// What is answered, counted and left at each step, and when.
async fn story(rule: &Rule, is_joint: bool, is_layer: bool, seed: u64) -> Vec<String> {
    let limits = paused(rule.clone());
    let mut random = Random::new(seed);
    let mut told = Vec::new();
    let began = Instant::now();
    for step in 0..40 {
        let mut ask = random_ask(&mut random);
        if is_joint {
            ask.table = None;
        }
        let answer = match is_layer {
            true => by_layer(&limits, ask).await,
            false => by_call(&limits, is_joint, ask).await,
        };
        assert!(limits.flush(PATIENT).await);
        sleep(millis(random.below(400))).await;
        let (seen, counts) = (seen(&limits), counts(&limits, is_joint).await);
        let after = began.elapsed();
        told.push(format!(
            "{answer} {step}, {after:?}: {ask:?}, {seen}, {counts}"
        ));
    }
    told
}

#[tokio::test(start_paused = true)]
async fn a_layer_and_calls_have_equal_counts_and_counters() {
    let mut answers = std::collections::BTreeMap::<String, u32>::new();
    for (name, rule, is_joint) in rules() {
        let of_permits_alone = rule.policies().iter().all(|it| it.is_concurrent());
        let rule = match of_permits_alone {
            true => rule,
            false => refunding(rule),
        };
        for seed in 0..12 {
            let by_layer = story(&rule, is_joint, true, seed).await;
            let by_call = story(&rule, is_joint, false, seed).await;
            for (called, layered) in by_call.iter().zip(&by_layer) {
                assert_eq!(called, layered, "{name}, seed {seed}");
                let answer = called.split(' ').next().expect("a word");
                *answers.entry(answer.to_owned()).or_default() += 1;
            }
        }
    }
    println!("{answers:?}");
    let is_right = answers.len() == 3 && answers.values().all(|number| *number > 500);
    assert!(is_right, "{answers:?}");
}
