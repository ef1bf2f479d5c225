//! What a client does about a limit, as docs/security.md lists it: keys that it invents, the limits
//! of others, and the plan of somebody else. On a real Redis, with the rules of a file.

use crate::*;

const ATTACKER: &str = "x-address: 203.0.113.9";

/// An app with a route for the rule `api` of this file, and the server that counts for it.
async fn app(file: &str) -> (Redis, Router) {
    let server = Redis::start();
    let store = RedisStore::connect(&*server.url).await.expect("it runs");
    let limits = Limits::from_toml(file).unwrap_or_else(|error| panic!("{error}"));
    let layer = limits.store(store.timeout(PATIENT)).layer("api");
    (server, Router::new().route("/", get("1").layer(layer)))
}

async fn admitted(app: &Router, fields: impl IntoIterator<Item = String>) -> usize {
    let mut admitted = 0;
    for fields in fields {
        admitted += usize::from(kit::http::ask(app, "/", &fields).await.status == 200);
    }
    admitted
}

/// A client sends another token in each request. Beside its address, that gives it no more than the
/// address has; and what is denied takes no memory in Redis.
#[tokio::test]
async fn invented_tokens_are_no_way_around() {
    let (server, app) = app("[rules.api]
        quotas = [
          { max-count = 5, window = '1h', key = 'bearer', subject = 'token' },
          { max-count = 20, window = '1h', key = 'header:x-address', subject = 'address' },
        ]")
    .await;
    let invented = |from: usize| {
        (from..from + 200).map(|it| format!("{ATTACKER}, authorization: Bearer invented-{it}"))
    };
    assert_eq!(admitted(&app, invented(0)).await, 20);
    let keys = server.names().len();
    assert_eq!(keys, 21, "20 tokens and one address");
    assert_eq!(admitted(&app, invented(1_000)).await, 0);
    assert_eq!(server.names().len(), keys, "a denial has left a key");
}

/// Somebody tries a thousand passwords of Alice. She logs in from her own address all the same,
/// since what is denied to the attacker's address is charged to nobody.
#[tokio::test]
async fn others_are_not_locked_out() {
    let (_server, app) = app("[rules.api]
        quotas = [
          { max-count = 5, window = '1h', key = 'header:x-address', subject = 'address' },
          { max-count = 20, window = '1h', key = 'header:x-user', subject = 'user' },
        ]")
    .await;
    let tries = (0..1_000).map(|_| format!("{ATTACKER}, x-user: alice"));
    assert_eq!(admitted(&app, tries).await, 5);
    let alice = (0..5).map(|_| "x-address: 198.51.100.1, x-user: alice".to_owned());
    assert_eq!(admitted(&app, alice).await, 5);
    // From three more addresses the attacker uses up the rest: a bound for each user is one that
    // many addresses reach together.
    let more = |it: usize| format!("x-address: 203.0.113.{}, x-user: alice", 10 + it % 3);
    assert_eq!(admitted(&app, (0..300).map(more)).await, 10);
}

/// No field chooses a plan: only code does. Whatever a client says, it has the rule's own quotas.
#[tokio::test]
async fn no_field_chooses_a_plan() {
    let (_server, app) = app("[rules.api]
        max-count = 2
        window = '1h'
        key = 'header:x-address'
        plans.pro = { max-count = 1_000, window = '1h' }")
    .await;
    let names = [
        "plan",
        "x-plan",
        "x-tidegate-plan",
        "tidegate-plan",
        "plans.pro",
    ];
    let claims = names.map(|name| format!("{ATTACKER}, {name}: pro"));
    assert_eq!(admitted(&app, claims).await, 2);
}
