//! Charges behind every switch: the handler runs, and finds what its layers charged.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};

use super::*;

/// All of these charges go back: how many units.
async fn refund(charges: &Charges) -> u64 {
    charges.refund().await.expect("an answer")
}

async fn remaining(store: &impl Store, rule: &Rule) -> u64 {
    let take = Take::new(rule.clone().into(), Key::default());
    store.peek(&take).await.expect("a decision").remaining()
}

/// Rules at random: everything that an operator may turn.
fn turned(random: &mut Random) -> Rules {
    let mut rules = Rules::default();
    for path in ["outer", "middle", "inner"] {
        let mut one = per_hour(path, 1_000_000).with_cost(1 + random.below(3));
        match random.below(8) {
            0 => continue,
            1 => one = one.into_shadow(),
            2 => one = one.with_cost(0),
            4 => one = one.with_on_error(OnError::Proceed),
            _ => {}
        }
        rules.insert(one);
        if random.below(6) == 0 {
            rules.disable(path);
        }
    }
    let is_enabled = random.below(8) != 0;
    rules.enabled(is_enabled)
}

/// An operator turns every switch while requests run, also between two layers of one request. No
/// handler is down, and what each gives back is what its layers charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_turn_while_requests_run() {
    let server = Server::start();
    let store = connected(&server.url).await.timeout(PATIENT);
    let limits = Limits::new(turned(&mut Random::new(1))).store(store.clone());
    let handler = async |charges: Charges, same: Charges| {
        assert_eq!(charges.len(), same.len());
        let charged: u64 = charges.iter().map(|one| one.receipt().units()).sum();
        let middle = refund(&charges.of("middle")).await;
        let all = [&charges, &same, &charges.of("x")];
        let back: u64 = join_all(all.map(refund)).await.into_iter().sum();
        assert_eq!(middle + back, charged, "law 15");
        assert_eq!(refund(&charges).await, 0);
        charges.len().to_string()
    };
    let exempt = |head: &http::request::Parts| head.uri.query().is_some();
    let meddles = {
        let (rules, random) = (limits.rules().clone(), Arc::new(Mutex::new(Random::new(2))));
        from_fn(move |request: Request, next: Next| {
            let mut random = random.lock().expect("no panic");
            if random.below(4) == 0 {
                rules.replace(turned(&mut random));
            }
            drop(random);
            next.run(request)
        })
    };
    let inner = get(handler).layer(limits.layer("inner").exempt(exempt));
    let app = Router::new()
        .route("/", inner)
        .layer(meddles.clone())
        .layer(limits.layer("middle"))
        .layer(meddles)
        .layer(limits.layer("outer").exempt(exempt))
        .layer(limits.layer("no rule"));
    let (charged, empty) = (AtomicU64::new(0), AtomicU64::new(0));
    let clients = (0..8).map(async |client| {
        for at in 0..150 {
            let uri = ["/", "/?exempt"][usize::from((client + at) % 7 == 0)];
            let response = send(&app, uri).await;
            assert_eq!(response.status(), StatusCode::OK, "law 16");
            let outside = Charges::from_extensions(response.extensions());
            assert_eq!(refund(&outside).await, 0, "it was given back inside");
            let count: u64 = text(response).await.parse().expect("a number");
            assert_eq!(outside.len() as u64, count);
            let of = if count == 0 { &empty } else { &charged };
            of.fetch_add(1, Ordering::Relaxed);
        }
    });
    join_all(clients).await;
    assert!(charged.into_inner() > 100 && empty.into_inner() > 20);
    for path in ["outer", "middle", "inner"] {
        let rule = per_hour(path, 1_000_000);
        // Shadows keep what they count.
        remaining(&store, &rule.clone().into_shadow()).await;
        assert_eq!(remaining(&store, &rule).await, 1_000_000, "{path}");
    }
}
