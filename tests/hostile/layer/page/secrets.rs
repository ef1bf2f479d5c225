//! Without `show_keys` no response says whose request it was, where Redis is, or what a file is
//! called: the views, and all that is refused.

use super::*;

/// No name on the page has this in it, and all that must be hidden has.
const MARK: &str = "zorro";

fn hides(answer: &Answer, case: &str, others: &[&str]) {
    let text = answer.text.to_lowercase();
    for hidden in [&[MARK][..], others].concat() {
        assert!(!text.contains(hidden), "{case} shows {hidden}: {text}");
    }
    for (name, value) in &answer.head {
        let value = String::from_utf8_lossy(value.as_bytes()).to_lowercase();
        assert!(!value.contains(MARK), "{case}: {name} {value}");
    }
}

/// All that a reader can ask, with what he may not read in the questions as well.
async fn expect_hidden(app: &App, others: &[&str]) {
    for view in GET_VIEWS {
        let answer = app.get_view(view).await;
        assert_eq!(answer.status, 200, "{view}: {answer:?}");
        hides(&answer, view, others);
    }
    for body in [
        json!({"rule": "search", "key": "k3y-zorro"}),
        json!({"rule": "search", "key": "k3y-zorro", "seconds": 60}),
        json!({"rule": "search", "key": "k3y-zorro", "seconds": 99_999_999}),
        json!({"rule": "search", "key": "k3y-zorro", "seconds": "x"}),
        json!({"rule": "search", "key": "k3y-zorro", "plan": "nothing"}),
        json!({"rule": "search", "key": "k3y-zorro", "row": "00000000000000000000000000000000"}),
        json!({"rule": "search", "key": ["k3y-zorro"]}),
        json!({"rule": "nothing", "key": "k3y-zorro"}),
    ] {
        for what in ["key", "let-through", "reset"] {
            let answer = app.post(what, &body).await;
            hides(&answer, &format!("{what} {body}"), others);
        }
    }
    let limited = app.view("limited").await;
    for row in limited["rows"].as_array().expect("rows") {
        let body = json!({"rule": row["rule"], "row": row["row"]});
        hides(&app.post("key", body).await, "by its row", others);
    }
}

#[tokio::test]
async fn without_show_keys_nothing_says_who_or_where() {
    let mut server = Redis::start();
    for command in [
        "ACL SETUSER us3r-zorro on >s3cret-zorro ~* &* +@all",
        "CONFIG SET maxmemory-policy allkeys-lru",
        "CONFIG SET maxmemory 500000000",
    ] {
        kit::run(&server, command);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zorro.toml");
    let rules = |more: &str| {
        let rules = "[rules.search]\nmax-count = 2\nwindow = \"1h\"\nkey = \"header:x-user\"\n";
        std::fs::write(&file, rules.to_owned() + more).expect("is written");
    };
    rules("");
    let url = server.url.replace("//", "//us3r-zorro:s3cret-zorro@");
    let port = format!(":{}", server.url.rsplit(':').next().expect("a port"));
    let others = [
        &*port, "us3r", "s3cret", "act0r", ".toml", "/tmp", "redis://",
    ];
    let limits = Limits::from_file(&file).expect("valid");
    let limits = limits.store(store(&url, "shop"));
    limits.watch(&file).expect("in a runtime");
    let actor = |_: &Parts| Some("act0r-zorro".to_owned());
    let page = |page: Page| page.allow_changes().actor(actor);
    let app = App::keyed(limits, page);
    // A setter after a layer is a warning.
    let _ = app.limits.layer("no-rule");
    app.in_fleet().await;
    app.use_up("k3y zorro{}").await;
    app.play("use-up k3y-zorro; until limited /rows # 2; let-through k3y-zorro 60")
        .await;
    expect_hidden(&app, &others).await;
    let steps = r#"
        let-through k3y-zorro 60; until limited /let_through # 1
        until fleet /processes/0/warnings != []"#;
    app.play(steps).await;
    expect_hidden(&app, &others).await;

    // A file that is wrong.
    rules("[rules.search.zorro]\nmax-count = \"zorro\"\n");
    app.until("now", |it| it["reload_failing"] == true).await;
    expect_hidden(&app, &others).await;
    // A file that is gone.
    std::fs::remove_file(&file).expect("it was there");
    sleep(Duration::from_secs(3)).await;
    expect_hidden(&app, &others).await;

    // The store refuses, with a text that names keys and users; then it is gone.
    let goes_on_hiding = async |times| {
        for _ in 0..times {
            app.search("an0-zorro").await;
            expect_hidden(&app, &others).await;
            sleep(millis(700)).await;
        }
    };
    kit::run(&server, "ACL SETUSER us3r-zorro -@all");
    goes_on_hiding(3).await;
    kit::run(&server, "ACL SETUSER us3r-zorro >other");
    kit::run(&server, "ACL SETUSER us3r-zorro <s3cret-zorro");
    kit::run(&server, "CLIENT KILL TYPE normal SKIPME yes");
    goes_on_hiding(2).await;
    server.kill();
    goes_on_hiding(3).await;
    let fleet = app.view("fleet").await;
    assert!(fleet["processes"][0]["last_error"].is_object(), "{fleet}");
}

/// What other processes with `show_keys` know stays hidden here.
#[tokio::test]
async fn another_process_that_shows_keys_does_not_show_them_here() {
    let server = Redis::start();
    let hiding = App::on(&server, Page::allow_changes);
    let actor = |_: &Parts| Some("act0r-zorro".to_owned());
    let showing = App::on(&server, |page| {
        page.allow_changes().show_keys().actor(actor)
    });
    hiding.in_fleet().await;
    showing.in_fleet().await;
    // One service has one hash.
    let steps = r#"
        showing: use-up k3y-zorro; showing: let-through k3y-zorro 60
        hiding: until limited /let_through # 1; keep row /let_through/0/row
        showing: until limited /let_through # 1; /let_through/0/row = $row
        /let_through/0/key = "k3y-zorro"; /let_through/0/by = "act0r-zorro"
        hiding: until limited /rows != []"#;
    play(&[("hiding", &hiding), ("showing", &showing)], steps).await;
    expect_hidden(&hiding, &["act0r"]).await;
}

/// 128 bits that are kept in Redis and never shown.
#[tokio::test]
async fn a_row_is_one_hash_in_a_service_and_another_elsewhere() {
    let server = Redis::start();
    let apps = [
        App::on(&server, Page::allow_changes),
        App::on(&server, Page::allow_changes),
        App::of_service(&server.url, "other", Page::allow_changes),
        App::new(Page::allow_changes),
        App::new(Page::allow_changes),
    ];
    let mut rows = Vec::new();
    for app in &apps {
        let steps = r#"
            until fleet /redis_answers != false; wait 1200; use-up alice
            until limited /rows != []; keep row /rows/0/row
            key bob; /row != $row; key alice; /row = $row"#;
        app.play(steps).await;
        let row = app.look("alice").await["row"].take();
        let row = row.as_str().expect("a row").to_owned();
        let is_hex = row.bytes().all(|it| it.is_ascii_hexdigit());
        assert!(row.len() == 32 && is_hex, "{row}");
        rows.push(row);
    }
    assert_eq!(rows[0], rows[1], "two processes of a service");
    let different: BTreeSet<_> = rows.iter().collect();
    assert_eq!(different.len(), 4, "{rows:?}");

    // No value in Redis of the page is shown.
    let mut admin = server.connection();
    for name in query::<Vec<Vec<u8>>>(&server, "KEYS *") {
        let value: redis::RedisResult<Vec<u8>> = redis::cmd("GET").arg(name).query(&mut admin);
        let Some(secret) = value.ok().filter(|value| value.len() == 16) else {
            continue;
        };
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        for app in &apps {
            for view in GET_VIEWS {
                let text = app.get_view(view).await.text;
                assert!(!text.contains(&hex), "{view} shows the secret");
            }
        }
    }
}
