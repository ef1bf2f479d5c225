//! The example `llm_gateway`: what its model bills is what the store has charged, and at most what
//! was reserved.

#[path = "../../examples/llm_gateway.rs"]
#[allow(dead_code, reason = "the example itself uses the rest")]
mod example;

use crate::*;
use example::{Customers, LIMITS, Model, bought, gateway, send};

const ORGS: [&str; 3] = ["acme", "ajax", "apex"];
const PLENTY: u64 = 1_000_000;

/// The limits of the example, with plenty of requests and tokens for each organisation.
fn generous(store: Arc<dyn Store>) -> Limits {
    let text = LIMITS
        .replace("60,", "1_000_000,")
        .replace("1_000,", "1_000_000,");
    of_toml(&text).store(store)
}

/// The tokens that were charged, by the store.
async fn charged(limits: &Limits, org: &str) -> u64 {
    let key = Header::new("x-org").key(org);
    let left = limits.peek("chat", key).await.expect("an answer");
    let left = left.expect("there is a rule");
    let rules = limits.snapshot();
    let names = rules.rules[0].denials.iter().map(|(name, _)| name);
    let tokens = names.zip(left.quotas()).find(|(name, _)| *name == "tokens");
    PLENTY - tokens.expect("a quota of tokens").1.remaining()
}

#[tokio::test]
async fn what_is_billed_is_charged() {
    for store in Stores::start().await.all {
        let limits = generous(store);
        let model = Arc::new(Model::default());
        let plan = bought(PLENTY as u32, PLENTY as u32, 4).expect("valid");
        let customers = Customers::new(std::sync::RwLock::new([("ajax".to_owned(), plan)].into()));
        let app = gateway(&limits, &model, &customers).expect("a rule");
        let mut random = Random::new(11);
        let requests = (0..90).map(|number| {
            let org = ORGS[number % 3];
            let tokens = 10 * (1 + random.below(9));
            // A fourth of the clients leaves in the middle; estimates are up to ten times too
            // small.
            let events = match random.is(25) {
                true => 1 + random.below(tokens / 10),
                false => 9,
            };
            let max_tokens = tokens / (1 + random.below(10));
            let (app, prompt) = (&app, (tokens / 10).to_string());
            async move { send(app, org, &prompt, max_tokens, events as usize).await }
        });
        let answers = join_all(requests).await;
        assert!(limits.flush(PATIENT).await);

        let served = answers.iter().filter(|answer| answer.is_success()).count();
        assert!(served > 45, "{answers:?}");
        let mut all = 0;
        for org in ORGS {
            let billed = model.bills()[org];
            assert_eq!(charged(&limits, org).await, billed, "{org}");
            all += billed;
        }
        let rule = &limits.snapshot().rules[0];
        assert_eq!(rule.units + rule.owed_units - rule.refunded_units, all);
        assert!(rule.refunded_units > 0, "{rule:?}");
        assert_eq!((rule.owed_units, rule.refunds_lost), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn clients_are_not_told_of_the_tries() {
    let world = World::with_layers(of_toml(LIMITS).store(paused()), &["tries"], |layer| layer);
    let answers = join_all((0..91).map(|_| world.ask("tries", "x-org: acme"))).await;
    assert!(answers.iter().all(|it| it.field("ratelimit").is_none()));
    assert_eq!(answers.iter().filter(|it| it.status == 200).count(), 90);
}

/// Nobody knows what the model has done for a client that leaves before its first token.
#[tokio::test(start_paused = true)]
async fn leaving_before_the_first_token_costs_the_reservation() {
    let limits = generous(paused());
    let app = gateway(&limits, &Arc::default(), &Arc::default()).expect("a rule");
    assert_eq!(send(&app, "acme", "9", 70, 0).await, OK);
    assert_eq!(charged(&limits, "acme").await, 70);
}

/// The model gets what was reserved, however little or much the client says.
#[tokio::test(start_paused = true)]
async fn no_estimate_makes_tokens_free() {
    for said in [0, 1, 60, 5_000, u64::MAX] {
        let limits = of_toml(LIMITS).store(paused());
        let model = Arc::new(Model::default());
        let app = gateway(&limits, &model, &Arc::default()).expect("a rule");
        for _ in 0..20 {
            join_all((0..4).map(|_| send(&app, "acme", "150", said, 150))).await;
        }
        let billed = model.bills()["acme"];
        assert!((800..=1_000).contains(&billed), "{billed} of {said}");
        // Another organisation, and the next minute.
        assert_eq!(send(&app, "ajax", "1", said, 1).await, OK);
        tokio::time::advance(WINDOW).await;
        assert_eq!(send(&app, "acme", "1", said, 1).await, OK);
    }
}

/// What the model does not answer is given back, and a client can bring that about.
#[tokio::test(start_paused = true)]
async fn prompts_that_make_the_model_fail_have_a_bound() {
    let limits = of_toml(LIMITS).store(paused());
    let app = gateway(&limits, &Arc::default(), &Arc::default()).expect("a rule");
    let answers = join_all((0..200).map(|_| send(&app, "acme", "ten", 200, 1))).await;
    let failed = answers.iter().filter(|it| **it == 502).count();
    assert_eq!(failed, 90);
    assert_eq!(charged(&limits, "acme").await, PLENTY - 1_000);
}

/// A plan from the table is exact over two processes, an organisation sees what it has left, and a
/// share of it holds while Redis is gone.
#[tokio::test]
async fn two_processes_and_a_redis_that_is_gone_for_a_while() {
    let mut server = Redis::start();
    let plan = bought(12, 100_000, 3).expect("valid");
    let customers = Customers::new(std::sync::RwLock::new([("acme".to_owned(), plan)].into()));
    let model = Arc::new(Model::default());
    let apps = [(); 2].map(|()| {
        let store = Resilient::redis(&*server.url, "gateway").expect("an address");
        let store = store.timeout(Duration::from_secs(1));
        let limits = of_toml(LIMITS).store(store.fallback(Share::of_processes(2)));
        gateway(&limits, &model, &customers).expect("a rule")
    });
    let left = async |app: &Router| {
        let shown = ask(app, "/limits", "x-org: acme").await;
        let shown: Value = serde_json::from_str(&shown.body).expect("JSON");
        let of = |at: usize| shown["rules"][0]["policies"][at]["remaining"].clone();
        [of(0), of(1), of(2)]
    };
    for app in &apps {
        let whole = async || left(app).await == [json!(12), json!(100_000), json!(3)];
        eventually("Redis answers in time, not the fallback", whole).await;
    }
    // All at once, and then one after the other, until it is denied.
    let served = async || {
        let answers = (0..30).map(|at| send(&apps[at % 2], "acme", "1", 10, 1));
        let answers = join_all(answers).await;
        let mut served = answers.iter().filter(|it| it.is_success()).count();
        for app in &apps {
            while send(app, "acme", "1", 10, 1).await.is_success() {
                served += 1;
            }
        }
        served
    };
    assert_eq!(served().await, 12);
    let all = async || left(&apps[1]).await == [json!(0), json!(99_880), json!(3)];
    eventually("all is given back", all).await;

    server.kill();
    assert_eq!(served().await, 12, "half of it by each process");
    server.restart();
    // It has lost what was counted.
    let is_back = async || left(&apps[0]).await[2] == 3;
    eventually("it decides again", is_back).await;
    assert_eq!(send(&apps[1], "acme", "1", 10, 1).await, OK);
}
