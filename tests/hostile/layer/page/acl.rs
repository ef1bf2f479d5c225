//! The line of docs/security.md is enough for all that the page does.

use super::*;

const GUIDE: &str = include_str!("../../../../docs/security.md");

/// The words of the line for a service, with the keys that processes share.
fn line() -> Vec<String> {
    let at = GUIDE
        .find("ACL SETUSER shop on ")
        .expect("the page has such a line");
    let (line, _) = GUIDE[at..].split_once("```").expect("the block ends");
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_line_of_the_guide_can_do_it_all() {
    let server = Redis::start();
    let mut admin = server.connection();
    let words = line();
    let mut set = redis::cmd(&words[0]);
    set.arg(&words[1..])
        .exec(&mut admin)
        .expect("an administrator may");
    let url = server.url.replace("//", "//shop:PASSWORD@");
    let apps = [0, 1].map(|_| App::of_service(&url, "shop", |it| it.allow_changes().show_keys()));
    for app in &apps {
        app.in_fleet().await;
    }
    let [here, there] = &apps;
    here.use_up("alice").await;
    here.wait("fleet", PATIENT, |it| {
        it["processes"].as_array().map(Vec::len) == Some(2)
    })
    .await;
    there
        .wait("limited", PATIENT, |it| it["rows"] != json!([]))
        .await;
    here.post("key", json!({"rule": "search", "key": "alice"}))
        .await
        .expect_ok("a look");
    here.let_through("alice", 60).await.expect_ok("let through");
    there
        .wait("limited", PATIENT, |it| it["let_through"] != json!([]))
        .await;
    assert_eq!(there.search("alice").await, 200);
    here.let_through("alice", 0).await.expect_ok("ended");
    there
        .wait("limited", PATIENT, |it| it["let_through"] == json!([]))
        .await;
    let found = there
        .post("reset", json!({"rule": "search", "key": "alice"}))
        .await;
    assert_eq!(found.expect_ok("reset")["found"], true);
    kit::run(&server, "SCRIPT FLUSH");
    here.let_through("bob", 2)
        .await
        .expect_ok("the scripts come back");
    sleep(Duration::from_secs(3)).await;
    for app in &apps {
        app.view("fleet").await;
    }
    let log: Vec<redis::Value> = redis::cmd("ACL")
        .arg("LOG")
        .query(&mut admin)
        .expect("a log");
    let refused: Vec<_> = log.iter().map(|entry| format!("{entry:?}")).collect();
    let refused: Vec<_> = refused
        .iter()
        .filter(|it| !it.contains("'info'") && !it.contains("\"info\""))
        .collect();
    println!("{refused:#?}");
    assert!(refused.is_empty());
}

/// Without the pattern of the fleet decisions go on: only the page is poorer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_fleet_decides_still() {
    let server = Redis::start();
    let words: Vec<_> = line()
        .into_iter()
        .filter(|it| !it.contains("~fleet") && it != "~{shop:*}:*")
        .collect();
    let mut set = redis::cmd(&words[0]);
    set.arg(&words[1..])
        .exec(&mut server.connection())
        .expect("an administrator may");
    let url = server.url.replace("//", "//shop:PASSWORD@");
    let app = App::of_service(&url, "shop", Page::allow_changes);
    // More reports than a breaker takes failures.
    let began = Instant::now();
    let mut at = 0;
    while began.elapsed() < Duration::from_secs(13) {
        assert_eq!(
            app.search(&format!("user{at}")).await,
            200,
            "after {:?}",
            began.elapsed()
        );
        at += 1;
        sleep(Duration::from_millis(100)).await;
    }
    for view in GET_VIEWS {
        println!("{}", app.view(view).await);
    }
    let answer = app.let_through("alice", 60).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let found = app
        .post("reset", json!({"rule": "search", "key": "user1"}))
        .await;
    assert_eq!(found.expect_ok("counts are its own")["found"], true);
}
