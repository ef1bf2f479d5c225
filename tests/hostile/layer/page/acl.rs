//! The line of docs/security.md is enough for all that the page does.

use super::*;

const GUIDE: &str = include_str!("../../../../docs/security.md");

/// The command of the guide for a service whose processes share keys, without some of its words.
fn allow(server: &Redis, is_meant: impl Fn(&str) -> bool) -> String {
    let at = GUIDE.find("ACL SETUSER shop on ");
    let rest = &GUIDE[at.expect("the page has such a line")..];
    let (line, _) = rest.split_once("```").expect("the block ends");
    let words: Vec<_> = words(line).into_iter().filter(|it| is_meant(it)).collect();
    kit::run(server, &words.join(" "));
    server.url.replace("//", "//shop:PASSWORD@")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_line_of_the_guide_can_do_it_all() {
    let server = Redis::start();
    let url = allow(&server, |_| true);
    let [here, there] =
        [0, 1].map(|_| App::of_service(&url, "shop", |it| it.allow_changes().show_keys()));
    here.in_fleet().await;
    there.in_fleet().await;
    let apps = [("here", &here), ("there", &there)];
    let steps = r#"
        here: use-up alice; here: until fleet /processes # 2; there: until limited /rows != []
        here: key alice
        here: let-through alice 60; there: until limited /let_through != []; there: ask alice = 200
        here: let-through alice 0; there: until limited /let_through = []
        there: reset alice; /found = true"#;
    play(&apps, steps).await;
    // The scripts come back.
    kit::run(&server, "SCRIPT FLUSH");
    let steps = r#"
        here: let-through bob 2; here: until limited /let_through = []; here: fleet
        there: until limited /let_through = []; there: fleet"#;
    play(&apps, steps).await;
    let log: Vec<redis::Value> = query(&server, "ACL LOG");
    let refused = log.iter().map(|entry| format!("{entry:?}"));
    let is_info = |it: &String| it.contains("'info'") || it.contains("\"info\"");
    let refused: Vec<_> = refused.filter(|it| !is_info(it)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Without the pattern of the fleet decisions go on: only the page is poorer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_fleet_decides_still() {
    let server = Redis::start();
    let url = allow(&server, |it| !it.contains("~fleet") && it != "~{shop:*}:*");
    let limits = Limits::new([hourly("search", 2)]).store(store(&url, "shop").failures(3));
    let app = App::keyed(limits, Page::allow_changes);
    // There are more reports, one a second, than the breaker takes failures.
    let began = Instant::now();
    let mut at = 0;
    while began.elapsed() < Duration::from_secs(6) {
        let status = app.search(&format!("user{at}")).await;
        assert_eq!(status, 200, "after {:?}", began.elapsed());
        at += 1;
        sleep(millis(100)).await;
    }
    for view in GET_VIEWS {
        app.view(view).await;
    }
    // Counts are its own.
    app.play("gets 503 let-through alice 60; reset user1; /found = true")
        .await;
}
