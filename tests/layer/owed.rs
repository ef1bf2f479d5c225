//! What was used beyond a reservation is charged: by a settlement, by a meter, by a body.

use axum::middleware::{Next, from_fn};
use axum::routing::get;
use tokio::sync::Notify;

use crate::*;

fn limits<const N: usize>(rules: [Rule; N], store: impl Store) -> Limits {
    Limits::new(rules).store(store)
}

fn everyone() -> Key {
    Key::default()
}

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
            charges.of("nothing").meter().add(500);
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
    let store = connect(&proxy.url, PATIENT).await;
    let limits = limits([per_minute("tokens", 10)], store);
    let largest = [u64::MAX, u64::MAX, 1];
    for (units, expected) in [(&[3, 4][..], 7), (&[], 8), (&largest, 20)] {
        let meter = charge(&limits, "tokens").await.meter();
        units.iter().for_each(|units| meter.add(*units));
        let added = units.iter().fold(0_u64, |all, it| all.saturating_add(*it));
        assert_eq!(meter.used(), added);
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
        let left = left(&limits, "tokens", everyone()).await;
        assert_eq!(left, 100 - expected, "{sums:?}");
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
    for (body, status, left_then) in [
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
        assert_eq!(kit::left(&limits, "chat", everyone()).await, left_then);
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
        for (path, expected) in [("tokens", tokens), ("money", money)] {
            assert_eq!(left(&limits, path, everyone()).await, expected, "{path}");
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

/// An estimate above max reserves max, as `tests/vectors/subjects.txt` has it: behind a layer, too.
#[tokio::test]
async fn an_estimate_above_max_reserves_max() {
    let rule = "[rules.chat]\nsettles = true\nmax-count = 1_000\nwindow = '1h'\n";
    for store in &Stores::start().await.all {
        for (choice, status) in [("", 429), ("cost-above-max = 'reserve-max'", 200)] {
            let limits = of_toml(&format!("{rule}{choice}")).store(Arc::clone(store));
            let app = app(limits.layer("chat").cost(|_| 5_000));
            assert_eq!(ask(&app, "/", "").await.status, status, "{choice}");
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

/// What rules say of requests that leave, and what each has used then.
const LEAVING: [(&str, &str, u64); 6] = [
    ("early", "cost = 1_000, settle-dropped = 50", 50),
    ("plain", "cost = 1_000", 1_000),
    ("dear", "cost = 1_000, settle-dropped = 1_500", 1_500),
    (
        "quiet",
        "cost = 1_000, settle-dropped = 50, shadow = true",
        50,
    ),
    ("cheap", "cost = 10, settle-dropped = 50", 50),
    (
        "planned",
        "cost = 1_000, settle-dropped = 50, plans.pro = { max-count = 2_000, window = '1m' }",
        50,
    ),
];

/// Dropped before the head of its answer, a request settles to what its rule says, unless code has
/// settled, has metered, or may still settle. So does a call, and no check.
#[tokio::test]
async fn who_leaves_early_pays_what_the_rule_says() {
    let (reached, gone) = <(Arc<Notify>, Arc<Notify>)>::default();
    let inside = [&reached, &gone].map(Arc::clone);
    let work = move |what: &'static str, charges: Charges| {
        let [reached, gone] = inside.clone();
        async move {
            let meter = charges.first().map(Charge::meter);
            match what {
                "returns" => return,
                "meters" => meter.iter().for_each(|it| it.add(300)),
                "settles" => drop(charges.settle(200).await.expect("an answer")),
                "refunds" => drop(charges.refund().await.expect("an answer")),
                "spawns" => drop(tokio::spawn(async move {
                    gone.notified().await;
                    charges.settle(700).await.expect("an answer");
                })),
                _ => {}
            }
            reached.notify_one();
            std::future::pending().await
        }
    };
    let rules = LEAVING.map(|(path, rule, _)| {
        let quota = "settles = true, max-count = 10_000, window = '1m', key = 'header:x-user'";
        format!("rules.{path} = {{ {rule}, {quota} }}\n")
    });
    let stores = Stores::start().await;
    let outage = Resilient::new(kit::stub::Stub::down()).fallback(Share::of_processes(1));
    let outage: Arc<dyn Store> = Arc::new(outage.fallback_store(MemoryStore::new()).build());
    for store in stores.all.iter().chain([&outage]) {
        let limits = of_toml(&rules.concat()).store(Arc::clone(store));
        let limits = limits.plan(|_| Some("pro"));
        let ask = |path: &str, what: &'static str| {
            let work = work.clone();
            let handler = get(move |charges: Charges| work(what, charges));
            let app = Router::new().route("/", handler.layer(limits.layer(path)));
            let request = request("/", &format!("x-user: {what}"));
            tokio::spawn(async move { drop(call(&app, request).await) })
        };
        let run = |what: &'static str| {
            let (call, work) = (
                limits.call("early").key(format!("called {what}")),
                work.clone(),
            );
            let run = call.run(async move || work(what, Charges::current()).await);
            tokio::spawn(async move { run.await.expect("room") })
        };
        let leave = async |asked: JoinHandle<()>| {
            reached.notified().await;
            asked.abort();
            assert!(asked.await.is_err(), "it runs");
        };
        let has_used = async |path: &str, key: &str, used: u64| {
            assert!(limits.flush(PATIENT).await);
            let is_it = async || left(&limits, path, key).await == 10_000 - used;
            eventually(&format!("{path}, {key}: {used}"), is_it).await;
        };
        for (path, _, used) in LEAVING {
            leave(ask(path, "leaves")).await;
            has_used(path, "leaves", used).await;
        }
        for (what, used) in [("meters", 300), ("settles", 200), ("refunds", 0)] {
            leave(ask("early", what)).await;
            has_used("early", what, used).await;
        }
        leave(run("leaves")).await;
        has_used("early", "called leaves", 50).await;
        // A task that goes on settles it.
        leave(ask("early", "spawns")).await;
        has_used("early", "spawns", 1_000).await;
        gone.notify_one();
        has_used("early", "spawns", 700).await;
        // None of these is dropped.
        ask("early", "returns").await.expect("it returns");
        run("returns").await.expect("it returns");
        let broken = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("broken"));
        let broken = limits.layer("early").layer(broken);
        let failed = broken.oneshot(request("/", "x-user: fails")).await;
        assert_eq!(failed.expect_err("its own"), "broken");
        drop(limits.check("early", "checked").await.expect("room"));
        for key in ["returns", "called returns", "fails", "checked"] {
            has_used("early", key, 1_000).await;
        }
    }
}
