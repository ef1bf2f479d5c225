//! Calls to a partner that counts requests and tokens: what they reserve, use and get back, and what
//! holds both. What single calls cost is in `tests/vectors/holds.txt`.

use tidegate::limits::Outgoing;

use crate::*;

const REQUESTS: u64 = 50;
const TOKENS: u64 = 40_000;

/// As its documentation says: 50 requests and 40,000 tokens a minute. A 304 is free.
const MODEL: &str = r#"
[rules.model]
outgoing = true
refund-on = ["304", "error"]
quotas = [{ max-count = 50, window = "1m", cost = 1 }, { max-count = 40_000, window = "1m" }]
"#;

fn model(store: impl Store) -> Limits {
    of_toml(MODEL).store(store)
}

/// What is left of requests and of tokens.
async fn left(limits: &Limits, key: &str) -> [u64; 2] {
    assert!(limits.flush(PATIENT).await);
    let left = limits.peek("model", key).await.expect("an answer");
    let left = left.expect("there is a rule");
    [0, 1].map(|at| left.quotas()[at].remaining())
}

#[tokio::test]
async fn a_head_before_the_end_of_its_stream() {
    for store in Stores::start().await.all {
        let limits = model(store);
        let turn = limits.outgoing("model").cost(5_000).ready("us").await;
        let (mut turn, minute) = (turn.expect("a turn"), HeaderValue::from_static("60"));
        let fields = HeaderMap::from_iter([(http::header::RETRY_AFTER, minute)]);
        turn.observe_response(DENIED, &fields);
        // The others learn of it before the stream has ended.
        assert!(limits.check("model", "us").cost(1).await.is_err());
        turn.settle(600);
        turn.settle(1_200);
        drop(turn);
        assert_eq!(left(&limits, "us").await, [49, 38_800]);
    }
}

fn field((name, value): (&'static str, &'static str)) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::from_static(value);
    (HeaderName::from_static(name), value)
}

/// What a process has sent, by a lower bound of what the store has charged.
#[derive(Default)]
struct Ledger {
    requests: u64,
    tokens: u64,
}

/// Calls as fast as they get turns, of both processes, until both are denied.
async fn use_up(processes: &[Limits; 2], seed: u64) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let used_in_all = Arc::new(Mutex::new(Ledger::default()));
    let callers = (0..16).map(|number| {
        let limits = processes[number % 2].clone();
        let (ledger, used_in_all) = (Arc::clone(&ledger), Arc::clone(&used_in_all));
        let mut random = Random::new(seed + number as u64);
        async move {
            let mut refused = 0;
            while refused < 3 {
                let cost = 1 + random.below(2_000);
                // More or less than that, by up to twice.
                let used = random.below(2 * cost + 1);
                let before = {
                    let known = ledger.lock().expect("a ledger");
                    [known.requests, known.tokens]
                };
                let partner = limits.outgoing("model").cost(cost);
                let Ok(mut turn) = partner.ready("us").await else {
                    refused += 1;
                    continue;
                };
                assert!(before[0] < REQUESTS, "{} requests", before[0]);
                let tokens = before[1] + cost;
                assert!(tokens <= TOKENS, "{tokens} tokens");
                let least = cost.min(used);
                {
                    let mut known = ledger.lock().expect("a ledger");
                    (known.requests, known.tokens) = (known.requests + 1, known.tokens + least);
                }
                tokio::task::yield_now().await;
                turn.settle(used);
                turn.observe_response(OK, &HeaderMap::new());
                drop(turn);
                assert!(limits.flush(PATIENT).await);
                let mut known = ledger.lock().expect("a ledger");
                known.tokens += used - least;
                let mut all = used_in_all.lock().expect("a ledger");
                (all.requests, all.tokens) = (all.requests + 1, all.tokens + used);
            }
        }
    });
    join_all(callers).await;
    let all = std::mem::take(&mut *used_in_all.lock().expect("a ledger"));
    assert!(all.requests <= REQUESTS, "{}", all.requests);
    let expected = [REQUESTS - all.requests, TOKENS.saturating_sub(all.tokens)];
    for limits in processes {
        assert_eq!(left(limits, "us").await, expected, "seed {seed}");
    }
}

/// Never above 50 requests, nor above 40,000 tokens by what was settled; through a cache of denials,
/// too.
#[tokio::test]
async fn two_processes_share_both() {
    let server = Redis::start();
    for seed in 0..20 {
        kit::run(&server, "FLUSHALL");
        let mut processes = Vec::new();
        for _ in 0..2 {
            let store = Resilient::new(store_on(&server).await);
            let store = store.timeout(PATIENT).denial_cache(WINDOW);
            processes.push(model(store));
        }
        use_up(&processes.try_into().expect("two"), seed).await;
    }
}

/// A refusal that names no token left holds the key until the reset, in both processes, through a
/// cache of denials.
#[tokio::test]
async fn a_refusal_holds_both() {
    let server = Redis::start();
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = Resilient::new(store_on(&server).await).denial_cache(WINDOW);
        processes.push(model(store.timeout(PATIENT)));
    }
    let refused = async |at: usize, cost: u64| {
        let partner: Outgoing = processes[at].outgoing("model").cost(cost);
        let refused = partner.ready("us").await.err()?;
        let is_on_hold = refused.decision().expect("a denial").is_on_hold();
        let seconds = refused.retry_after()?.as_secs_f64().ceil() as u64;
        Some((is_on_hold, seconds))
    };
    let fields = [
        ("x-ratelimit-remaining-requests", "40"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "20s"),
    ];
    let fields = fields.map(field).into_iter().collect();
    let turn = processes[0].outgoing("model").cost(100).ready("us").await;
    turn.expect("a turn").observe_response(DENIED, &fields);
    assert!(processes[0].flush(PATIENT).await);
    for at in [1, 0, 1] {
        assert_eq!(refused(at, 100).await, Some((true, 20)), "process {at}");
    }
    // What the tokens deny for longer is told, and what they never have.
    let [_, tokens] = left(&processes[0], "us").await;
    assert_eq!(tokens, TOKENS - 100);
    assert_eq!(refused(0, TOKENS).await, Some((false, 60)));
    assert_eq!(refused(1, TOKENS + 1).await, None);
    assert!(processes[1].reset("model", "us").await.expect("an answer"));
    eventually("it ends", async || refused(0, 100).await.is_none()).await;
}

/// What code says is what a file says.
#[tokio::test]
async fn by_code() {
    let requests = Policy::from(Quota::per_minute(50)).with_cost(1);
    let tokens = Policy::from(Quota::per_minute(40_000));
    let rule = Rule::with_policies("model", [requests.clone(), tokens]);
    let rule = rule.and_then(Rule::with_outgoing).expect("a rule");
    let names = |rule: &Rule| {
        let take = Take::new(Arc::new(rule.clone()), Key::from("us"));
        let names = take.counts().iter().map(|it| it.name(""));
        names.collect::<Vec<_>>()
    };
    let of_file = of_toml(MODEL).rules().load();
    let of_file = of_file.get("model").expect("a rule");
    assert_eq!(names(&rule), ["{model}:key:us", "{model}:key~1:us"]);
    assert_eq!(names(&rule), names(of_file));
    let alone = Rule::with_policies("model", [requests]).and_then(Rule::with_outgoing);
    assert_eq!(alone.expect_err("no cost"), RuleError::OutgoingCost);
    let permits = rule.clone().with_max_concurrent(4);
    assert_eq!(permits.expect_err("permits"), RuleError::OutgoingConcurrent);
    // In any order.
    let permits = per_minute("model", 5).with_max_concurrent(4);
    assert!(permits.expect("valid").with_outgoing().is_err());
    let user = |name| Subject::new(name, Header::new("x-user")).limit(Quota::per_second(5));
    let joint = Rule::joint("model", [user("a"), user("b")]).expect("valid");
    assert!(joint.with_outgoing().is_err());
    let plan = Quotas::with_policies([Policy::concurrent(4)]).expect("valid");
    assert!(rule.with_plan("pro", plan).is_err());
}

/// Around a client: the request says its cost, and the answer what was used.
#[tokio::test]
async fn a_layer_around_a_client() {
    for store in Stores::start().await.all {
        let limits = model(store);
        let number = |headers: &HeaderMap, name: &str| -> Option<u64> {
            headers.get(name)?.to_str().ok()?.parse().ok()
        };
        let client = limits
            .outgoing("model")
            .key_by(|_| Key::from("us"))
            .cost_by(move |head| number(&head.headers, "x-tokens").unwrap_or(1))
            .used_by(move |head| number(&head.headers, "x-used"));
        let client = client.layer(service_fn(async |request: Request<&'static str>| {
            let answer = match *request.body() {
                "breaks" => return Err("broken"),
                "free" => Response::builder().status(304).header("x-used", 9),
                "silent" => Response::builder(),
                used => Response::builder().header("x-used", used),
            };
            Ok(answer.body(()).expect("valid"))
        }));
        let send = async |says: &'static str| {
            let request = Request::builder().header("x-tokens", 5_000);
            let answer = client.clone().oneshot(request.body(says).expect("valid"));
            drop(answer.await);
            left(&limits, "us").await
        };
        assert_eq!(send("1200").await, [49, 38_800]);
        assert_eq!(send("6300").await, [48, 32_500]);
        assert_eq!(send("free").await, [48, 32_500]);
        assert_eq!(send("breaks").await, [48, 32_500]);
        assert_eq!(send("silent").await, [47, 27_500]);
    }
}

/// An answer of gRPC with this status of HTTP, and such a trailer.
fn of_grpc(status: u16, trailer: (&'static str, &'static str)) -> Response<Body> {
    let trailers = HeaderMap::from_iter([field(trailer)]);
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let body = body.with_trailers(async { Some(Ok(trailers)) });
    let answer = Response::builder().header("content-type", "application/grpc");
    let answer = answer.status(status).body(Body::new(body));
    answer.expect("valid")
}

/// A proxy's 503 to a call of gRPC is a status, and trailers without one are none.
#[tokio::test]
async fn a_grpc_call_that_a_proxy_answers() {
    let text = MODEL.replace("\"304\"", "\"5xx\", \"2xx\"");
    let limits = of_toml(&text).store(paused());
    let partner = limits.outgoing("model").key_by(|_| Key::from("us"));
    let client = partner
        .cost(5_000)
        .layer(service_fn(async |request: Request<Body>| {
            let status = request.uri().path()[1..].parse::<u16>().expect("a status");
            Ok::<_, Infallible>(of_grpc(status, ("x-sum", "1")))
        }));
    let send = async |path: &str| {
        let request = post(path, "content-type: application/grpc");
        let answer = client.clone().oneshot(request).await.expect("an answer");
        answer.into_body().collect().await.expect("a body");
        left(&limits, "us").await
    };
    assert_eq!(send("/500").await, [REQUESTS, TOKENS]);
    assert_eq!(send("/404").await, [49, 35_000]);
    assert_eq!(send("/200").await, [48, 30_000]);
}

/// The status of a gRPC call comes in its trailers: until then it is neither free nor settled.
#[tokio::test]
async fn a_grpc_call_that_is_free() {
    let text = MODEL.replace("304", "grpc-5");
    for store in Stores::start().await.all {
        let limits = of_toml(&text).store(store);
        let partner = limits.outgoing("model").key_by(|_| Key::from("us"));
        let partner = partner.cost(5_000).used_by(|_| Some(700));
        let client = partner.layer(service_fn(async |request: Request<&'static str>| {
            Ok::<_, Infallible>(of_grpc(200, ("grpc-status", request.into_body())))
        }));
        let send = async |status: &'static str| {
            let answer = client.clone().oneshot(Request::new(status));
            let body = answer.await.expect("an answer").into_body();
            let before = left(&limits, "us").await;
            body.collect().await.expect("a body");
            (before, left(&limits, "us").await)
        };
        assert_eq!(send("5").await, ([49, 35_000], [REQUESTS, TOKENS]));
        assert_eq!(send("0").await, ([49, 35_000], [49, 39_300]));
    }
}
