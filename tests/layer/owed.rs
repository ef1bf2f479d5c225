//! What was used beyond a reservation is charged: by a settlement, by a meter, by a body.

use axum::middleware::{Next, from_fn};
use axum::routing::get;

use crate::*;

fn limits<const N: usize>(rules: [Rule; N], store: impl Store) -> Limits {
    Limits::new(rules).store(store)
}

fn everyone() -> Key {
    Key::default()
}

/// The charge of a check.
async fn charge(limits: &Limits, path: &str) -> Charge {
    let admitted = limits.check(path, everyone()).await.expect("a decision");
    admitted.charge.expect("it was charged")
}

fn parts(settled: Settled) -> (u64, u64, u64) {
    (settled.given_back, settled.charged, settled.forgiven)
}

/// Above max, as far as may be owed; once; and counted.
#[tokio::test]
async fn a_settlement_charges_what_was_used() {
    for store in &Stores::start().await.all {
        for (path, at_most, expected) in [
            ("by default", None, (0, 16, 4)),
            ("nothing", Some(0), (0, 6, 14)),
            ("all", Some(99), (0, 20, 0)),
        ] {
            let mut rule = per_minute(path, 10).with_cost(4);
            if let Some(units) = at_most {
                rule = rule.with_owe_at_most(units);
            }
            let limits = limits([rule], Arc::clone(store));
            let charge = charge(&limits, path).await;
            let settled = charge.settle(24).await.expect("an answer");
            assert_eq!(parts(settled), expected);
            let again = charge.settle(30).await.expect("an answer");
            assert_eq!(again, Settled::default());
            assert_eq!(charge.refund().await.expect("an answer"), 0);
            let denied = limits.check(path, everyone()).cost(1).await;
            assert!(denied.is_err());
            let counted = counted(&limits, path);
            let beyond = (0, counted.owed_units, counted.forgiven_units);
            assert_eq!(beyond, expected);
            assert_eq!((counted.units, counted.refunded_units), (4, 0));
        }
    }
}

/// All rules of a request are charged no more than they reserved; the one that is named is.
#[tokio::test]
async fn only_a_rule_that_is_named_is_charged_beyond() {
    for store in &Stores::start().await.all {
        let rules = [per_minute("requests", 9), per_minute("tokens", 90)];
        let limits = limits(rules, Arc::clone(store));
        let handler = get(async |charges: Charges| {
            let of_none = charges.of("nothing").settle(50).await.expect("an answer");
            assert_eq!(of_none, Settled::default());
            let of_tokens = charges.of("tokens").settle(50).await.expect("an answer");
            let of_all = charges.settle(50).await.expect("an answer");
            format!("{:?} {:?}", parts(of_tokens), parts(of_all))
        });
        let app = Router::new().route("/", handler);
        let app = app
            .layer(limits.layer("tokens"))
            .layer(limits.layer("requests"));
        let settled = text(send(&app, "/").await).await;
        assert_eq!(settled, "(0, 49, 0) (0, 0, 0)");
        assert_eq!(left(&limits, "requests", everyone()).await, 8);
        assert_eq!(left(&limits, "tokens", everyone()).await, 40);
    }
}

/// In each count without a cost of its own.
#[tokio::test]
async fn each_count_is_charged_what_was_used() {
    for store in &Stores::start().await.all {
        let user = Subject::new("user", Bearer).limit(Quota::per_minute(20));
        let requests = Policy::from(Quota::per_minute(9)).with_cost(1);
        let all = Subject::new("all", Everyone).limit(Quota::per_minute(100));
        let rule = Rule::joint("chat", [user.limit(requests), all]).expect("valid");
        let limits = limits([rule.with_cost(5)], Arc::clone(store));
        let keys = [("user", "alice"), ("all", "")];
        let admitted = limits.check("chat", keys).await.expect("a decision");
        let charge = admitted.charge.expect("it was charged");
        let settled = charge.settle(65).await.expect("an answer");
        // The fewest that were charged, and the most that were forgiven.
        assert_eq!(parts(settled), (0, 35, 25));
        assert!(limits.flush(PATIENT).await);
        assert_eq!(left_of_each(&limits, "chat", keys).await, [0, 8, 35]);
    }
}

/// A denial that is remembered does not tell an earlier end than there is.
#[tokio::test]
async fn what_is_kept_of_a_key_is_void() {
    let clock = ManualClock::default();
    let store = Resilient::new(MemoryStore::new().clock(clock.clone())).clock(clock.clone());
    let take = Take::new(Arc::new(per_minute("tokens", 10)), everyone());
    let ask = async |cost| {
        let take = take.clone().with_cost(cost);
        store.take(&take).await.expect("a decision")
    };
    assert!(ask(1).await.is_allowed());
    clock.set(clock.now() + 20_000_000);
    let receipt = ask(9).await.receipt().expect("it was charged");
    assert_eq!(ask(1).await.retry_after(), Some(40 * SECOND));
    assert_eq!(store.owe(&take, &receipt).await.expect("an answer"), 1);
    assert_eq!(ask(1).await.retry_after(), Some(60 * SECOND));
}

/// What the fallback has reserved is charged there, and nothing in the store that has come back.
#[tokio::test]
async fn a_reservation_of_the_fallback_is_settled_there() {
    let rule = per_minute("tokens", 100).with_cost(5);
    let store = Resilient::new(no_store())
        .fallback(Share::new(1, 10))
        .fallback_store(MemoryStore::new());
    let take = Take::new(Arc::new(rule), everyone());
    let decision = store.take(&take).await.expect("a decision");
    assert_eq!(decision.source(), Source::Fallback);
    let receipt = decision.receipt().expect("it was charged");
    let owed = store.owe(&take.with_cost(50), &receipt).await;
    // Ten once more, of which five were left.
    assert_eq!(owed.expect("an answer"), 15);
}

/// A meter beyond the client's reach: the last of what it has counted is settled in the background.
#[tokio::test]
async fn a_meter_settles_when_it_is_dropped() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    let limits = limits(
        [per_minute("tokens", 10)],
        connect(&proxy.url, PATIENT).await,
    );
    for (units, expected) in [(&[3, 4][..], 7), (&[], 8), (&[u64::MAX, 1], 20)] {
        let meter = charge(&limits, "tokens").await.meter();
        units.iter().for_each(|units| meter.add(*units));
        drop(meter);
        assert!(limits.flush(PATIENT).await);
        let counted = counted(&limits, "tokens");
        assert_eq!(counted.units + counted.owed_units, expected);
    }
    assert_eq!(status(&app(limits.layer("tokens")), "/").await, 429);
}

/// A provider that tells the sum each time: the last one counts, and none leaves the reservation.
#[tokio::test]
async fn a_meter_is_set() {
    for (sums, more, expected) in [(&[3, 9, 7][..], 0, 7), (&[4], 2, 6), (&[5, 0], 0, 8)] {
        let limits = limits([per_minute("tokens", 100).with_cost(8)], MemoryStore::new());
        let meter = charge(&limits, "tokens").await.meter();
        meter.add(90);
        sums.iter().for_each(|sum| meter.set(*sum));
        assert_eq!(meter.used(), *sums.last().expect("a sum"));
        meter.add(more);
        drop(meter);
        assert!(limits.flush(PATIENT).await);
        let left = limits.peek("tokens", everyone()).await.expect("an answer");
        assert_eq!(
            left.expect("a rule").remaining(),
            100 - expected,
            "{sums:?}"
        );
    }
}

/// The recipe of docs/cookbook.md: a middleware outside of the layer reads it.
#[tokio::test(start_paused = true)]
async fn a_cost_that_stands_in_the_body() {
    #[derive(Clone)]
    struct Cost(u64);
    async fn price(request: Request<Body>, next: Next) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let Ok(body) = axum::body::to_bytes(body, 1 << 20).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        let asked = serde_json::from_slice::<Value>(&body);
        let asked = asked.ok().and_then(|it| it["max_tokens"].as_u64());
        head.extensions.insert(Cost(asked.unwrap_or(1_000).max(50)));
        next.run(Request::from_parts(head, body.into())).await
    }
    let limits = limits([per_minute("chat", 2_000)], paused());
    let cost = |head: &Parts| head.extensions.get::<Cost>().map_or(1, |it| it.0);
    let app = Router::new()
        .route("/", axum::routing::post(async |body: String| body))
        .route_layer(limits.layer("chat").cost(cost))
        .route_layer(from_fn(price));
    for (body, status, left) in [
        (r#"{"max_tokens":300}"#, 200, 1_700),
        ("no JSON", 200, 700),
        (r#"{"max_tokens":0}"#, 200, 650),
        (r#"{"max_tokens":700}"#, 429, 650),
        (&"x".repeat(2 << 20), 413, 650),
    ] {
        let request = Request::post("/").body(Body::from(body.to_owned()));
        let answer = app.clone().oneshot(request.expect("valid")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status);
        if status == 200 {
            let echoed = answer.into_body().collect().await.expect("a body");
            assert_eq!(echoed.to_bytes(), body);
        }
        let peeked = limits.peek("chat", everyone()).await.expect("an answer");
        assert_eq!(peeked.expect("a rule").remaining(), left);
    }
}

/// The recipe of docs/cookbook.md: each rule is settled by itself, and what the inner one denies
/// costs nothing.
#[tokio::test(start_paused = true)]
async fn tokens_and_money_of_one_request() {
    let tokens = refunding("tokens", 10_000, &["denied"]);
    let limits = limits([tokens, per_minute("money", 5)], paused());
    let chat = async |charges: Charges| {
        charges.of("tokens").settle(417).await.expect("an answer");
        charges.of("money").settle(2).await.expect("an answer");
    };
    let app = Router::new()
        .route("/", get(chat))
        .route_layer(limits.layer("money").cost(|_| 3))
        .route_layer(limits.layer("tokens").cost(|_| 500));
    for (expected, tokens, money) in [(200, 9_583, 3), (200, 9_166, 1), (429, 9_166, 1)] {
        assert_eq!(status(&app, "/").await, expected);
        assert!(limits.flush(PATIENT).await);
        for (path, left) in [("tokens", tokens), ("money", money)] {
            let peeked = limits.peek(path, everyone()).await.expect("an answer");
            assert_eq!(peeked.expect("a rule").remaining(), left, "{path}");
        }
    }
}

/// What could not be charged beyond a reservation is counted, also where somebody has waited.
#[tokio::test]
async fn a_settlement_without_an_answer_is_lost() {
    let limits = limits([per_minute("tokens", 10)], Stub::that_cannot_owe());
    let lost = || counted(&limits, "tokens").refunds_lost;
    let charge = charge(&limits, "tokens").await;
    assert!(charge.settle(5).await.is_err());
    assert_eq!(lost(), 1);
    assert_eq!(charge.settle(5).await.expect("once"), Settled::default());
    assert_eq!(lost(), 1);
}

/// An estimate above max reserves max, of the quotas that the request has; settling charges the
/// rest. Without that it never fits.
#[tokio::test]
async fn an_estimate_above_max_reserves_max() {
    const RULE: &str = "
        [rules.chat]
        settles = true
        CHOICE
        quotas = [
            { max-count = 60, window = '1h', key = 'header:x-org', cost = 1 },
            { max-count = 1_000, window = '1h', key = 'header:x-org' },
            { max-concurrent = 9, key = 'header:x-org' },
        ]
        plans.pro.quotas = [
            { max-count = 60, window = '1h', key = 'header:x-org', cost = 1 },
            { max-count = 10_000, window = '1h', key = 'header:x-org' },
        ]";
    const CHOICE: &str = "cost-above-max = 'reserve-max'";
    for store in &Stores::start().await.all {
        let key = |org: &str| Header::new("x-org").key(org);
        let never = of_toml(&RULE.replace("CHOICE", ""));
        let refused = never.check("chat", key("acme")).cost(5_000).await;
        assert_eq!(refused.expect_err("above max").retry_after(), None);
        let limits = of_toml(&RULE.replace("CHOICE", CHOICE)).store(Arc::clone(store));
        for (org, factor) in [("more", 10.0), ("less", 0.5)] {
            let raised = limits.raise("chat", key(org), factor, WINDOW, "ops").await;
            raised.expect("it is kept");
        }
        for (org, plan, reserved, settled) in [
            ("acme", "", 1_000, (700, 0, 0)),
            ("pro", "pro", 5_000, (4_700, 0, 0)),
            ("more", "", 5_000, (4_700, 0, 0)),
            ("less", "", 500, (200, 0, 0)),
            ("large", "", 1_000, (0, 500, 0)),
        ] {
            let check = || limits.check("chat", key(org)).plan(plan);
            let admitted = check().cost(5_000).await.expect("room");
            let decision = admitted.decision.expect("it is limited");
            let units = decision.receipt().map(|it| it.units());
            assert_eq!(
                (units, decision.is_reduced()),
                (Some(reserved), reserved < 5_000)
            );
            let used = if org == "large" { 1_500 } else { 300 };
            let charge = admitted.charge.expect("it was charged");
            let of_use = charge.settle(used).await.expect("an answer");
            assert_eq!(parts(of_use), settled, "{org}");
            let fits = check().cost(100).await;
            assert_eq!(fits.is_ok(), org != "large");
        }
        // It waits for what is used, as others do.
        let denied = limits.check("chat", key("acme")).cost(5_000).await;
        assert!(denied.expect_err("300 are used").retry_after().is_some());
        let app = app(limits.layer("chat").cost(|_| 5_000));
        assert_eq!(ask(&app, "/", "x-org: ajax").await.status, 200);
    }
}

/// A subject that the request lacks reduces nothing.
#[tokio::test]
async fn only_what_a_request_is_counted_by_reduces_it() {
    for store in &Stores::start().await.all {
        let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(1_000));
        let team = Subject::new("team", Header::new("x-team")).skip_absent();
        let rule = Rule::joint("chat", [user, team.limit(Quota::per_hour(400))]);
        let rule = rule.expect("valid").with_settling(true).with_reserve_max();
        let limits = limits_of(&rule, store);
        for (keys, reserved) in [
            (&[("user", "alice")][..], 900),
            (&[("user", "bob"), ("team", "a")], 400),
        ] {
            let keys = keys.iter().map(|(name, key)| (*name, Key::from(*key)));
            let keys: tidegate::layer::SubjectKeys = keys.collect();
            let admitted = limits.check("chat", keys).cost(900).await.expect("room");
            let receipt = admitted.decision.and_then(|it| it.receipt());
            assert_eq!(receipt.map(|it| it.units()), Some(reserved));
        }
    }
}

/// The recipe of docs/cookbook.md: what a budget has left below an estimate is reserved, and settled.
#[tokio::test(start_paused = true)]
async fn the_last_units_of_a_budget() {
    let month = Policy::calendar(tidegate::rule::Period::MONTH, 100);
    let rule = Rule::with_policies("chat", [month]).expect("valid");
    let limits = Limits::new([rule.with_settling(true)]).store(paused());
    let reserve = async || {
        let mut answer = limits.check("chat", "acme").cost(50).await;
        let denied = answer.as_ref().err().and_then(|it| it.decision());
        if let Some(left @ 1..50) = denied.map(|it| it.remaining()) {
            answer = limits.check("chat", "acme").cost(left).await;
        }
        answer
    };
    limits.check("chat", "acme").cost(60).await.expect("room");
    let last = reserve().await.expect("40 are left").charge;
    let settled = last.expect("it was charged").settle(30).await;
    assert_eq!(settled.expect("an answer").given_back, 10);
    let decision = reserve().await.expect("10 are left").decision;
    assert_eq!(decision.map(|it| it.remaining()), Some(0));
    assert!(reserve().await.is_err());
}
