//! The same in a cluster and behind a sentinel: what the lines need besides.

use kit::process::Process;

use super::*;

/// What the user gets besides: the line that begins with this permission.
fn addition(user: &str, permission: &str) -> Vec<String> {
    block(user, permission)
}

/// One take of a path.
async fn take(store: &RedisStore, path: &str) -> Result<bool, StoreError> {
    let take = Take::new(rule(path, 1_000, HOUR), Key::default());
    Ok(store.take(&take).await?.is_allowed())
}

#[tokio::test]
async fn takes_in_a_cluster() {
    let cluster = Cluster::start(&Plan {
        masters: 2,
        ..Plan::default()
    });
    let on_all = |line: &[String]| {
        for node in &cluster.nodes {
            acl::<()>(&mut node.connection(), line);
        }
    };
    cluster.begin_move("CurrentLimiter:moving");

    let (line, besides) = (line("takes"), addition("takes", "+cluster|slots"));
    let url = with_user(&cluster.url(), "takes");
    on_all(&line);
    on_all(&besides);
    let all = all_takes(&url, &mut cluster.nodes[0].connection()).await;
    all.expect("the lines are enough");
    let store = RedisStore::connect(&url).await.expect("it may");
    let store = store.timeout(PATIENT);
    assert!(take(&store, "moving").await.expect("it may"));
    for node in &cluster.nodes {
        assert_eq!(refused(&mut node.connection()), BTreeSet::new());
    }

    for command in commands(&besides) {
        on_all(&line);
        on_all(&without(&besides, &format!("+{command}")));
        if ["spublish", "ssubscribe", "sunsubscribe"].contains(&command) {
            // It is tried, and there is another way.
            let store = RedisStore::connect(&url).await.expect("it may");
            let turns = take_turns(&store.timeout(PATIENT)).await;
            turns.expect("it works without");
            let mut nodes = cluster.nodes.iter();
            assert!(nodes.any(|node| refused(&mut node.connection()).contains(command)));
            continue;
        }
        let outcome = match RedisStore::connect(&url).await {
            Ok(store) => take(&store.timeout(PATIENT), "moving").await,
            Err(error) => Err(error),
        };
        let error = outcome.expect_err("nobody needs it");
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{command}: {error}");
    }
}

#[tokio::test]
async fn takes_behind_a_sentinel() {
    let server = Process::start(&["--save", ""]);
    let sentinel = format!("sentinel monitor limits 127.0.0.1 {} 1\n", server.port);
    let sentinel = Process::sentinel(&sentinel);
    let login = "sentinel_username=finder&sentinel_password=PASSWORD";
    let url = format!("redis-sentinel://{}/limits?{login}", sentinel.address());
    let url = with_user(&url, "takes");
    let (of_server, besides) = (line("takes"), addition("takes", "+role"));
    let of_sentinel = line("finder");
    let (mut on_server, mut on_sentinel) = (server.connection(), sentinel.connection());
    acl::<()>(&mut on_server, &of_server);
    acl::<()>(&mut on_sentinel, &of_sentinel);

    let error = RedisStore::connect(&url).await.expect_err("no ROLE");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("'role'"), "{error}");

    acl::<()>(&mut on_server, &besides);
    acl::<()>(&mut on_server, &["LOG", "RESET"]);
    let all = all_takes(&url, &mut on_server).await;
    all.expect("the lines are enough");
    sleep(millis(300)).await;
    assert_eq!(refused(&mut on_server), BTreeSet::new());
    assert_eq!(refused(&mut on_sentinel), BTreeSet::new());

    let needed = of_sentinel.iter().filter(|word| word.contains(['+', '&']));
    for word in needed {
        acl::<()>(&mut on_sentinel, &without(&of_sentinel, word));
        acl::<()>(&mut on_sentinel, &["LOG", "RESET"]);
        let _connected = RedisStore::connect(&url).await;
        let what = format!("somebody needs {word}");
        let is_refused = async || refused(&mut on_sentinel).contains(&word[1..]);
        within(PATIENT, &what, is_refused).await;
    }
}
