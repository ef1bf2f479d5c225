//! The fleet: who takes part appears and disappears, and costs Redis one call a second.

use std::process::Child;

use kit::cluster::{Cluster, Plan};
use kit::workers::{instructions, start_worker};

use super::*;

/// A child that is killed when a test ends or fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn processes(fleet: &Value) -> usize {
    fleet["processes"].as_array().expect("processes").len()
}

/// Script calls that the server has seen so far.
fn calls(server: &Redis) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("stats");
    let of = |name: &str| {
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |line| {
            line.split(',')
                .next()
                .expect("a number")
                .parse()
                .expect("a number")
        })
    };
    of("evalsha") + of("eval")
}

async fn calls_in(server: &Redis, time: Duration) -> u64 {
    let before = calls(server);
    sleep(time).await;
    calls(server) - before
}

/// Plays a process of the fleet, for a minute at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by others"]
async fn worker() {
    let Some(words) = instructions() else { return };
    let limits = Limits::new([hourly("search", 2)]).store(store(&words[0], "shop"));
    limits.join_fleet();
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_is_gone_in_ten_seconds() {
    let server = Redis::start();
    let here = App::on(&server, |page| page);
    here.in_fleet().await;
    let mut other = Killed(start_worker("attacks::page::fleet::worker", &server.url));
    // A process takes time to start; it joins before three seconds are over.
    let seen = here.wait("fleet", PATIENT, |it| processes(it) == 2).await;
    println!("{seen}");
    for process in seen["processes"].as_array().expect("processes") {
        let is_this = process["process"] == seen["process"];
        assert_eq!(process["this"], json!(is_this));
        assert!(
            process["seen_ago_s"].as_f64().expect("a number") <= 2.5,
            "{process}"
        );
    }
    other.0.kill().expect("our child");
    let began = Instant::now();
    here.wait("fleet", Duration::from_secs(10) + SLACK, |it| {
        processes(it) == 1
    })
    .await;
    println!("gone after {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_appears_in_three_seconds_and_is_gone_when_it_is_dropped() {
    let server = Redis::start();
    let here = App::on(&server, |page| page);
    here.in_fleet().await;
    let second = App::on(&server, |page| page);
    let began = Instant::now();
    let both = |it: &Value| processes(it) == 2;
    here.wait("fleet", Duration::from_secs(3) + SLACK, both)
        .await;
    println!("there after {:?}", began.elapsed());
    let joined = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
    joined.join_fleet();
    here.wait("fleet", Duration::from_secs(3) + SLACK, |it| {
        processes(it) == 3
    })
    .await;
    drop((second, joined));
    let began = Instant::now();
    here.wait("fleet", Duration::from_secs(10) + SLACK, |it| {
        processes(it) == 1
    })
    .await;
    println!("gone after {:?}", began.elapsed());
}

/// Law 4, after all that the page can do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_the_fleet_expires() {
    let server = Redis::start();
    let here = App::on(&server, Page::allow_changes);
    here.in_fleet().await;
    here.use_up("alice").await;
    here.let_through("alice", 60).await.expect_ok("let through");
    here.let_through("bob", 86_400)
        .await
        .expect_ok("let through");
    here.let_through("bob", 0).await.expect_ok("ended");
    here.post("reset", json!({"rule": "search", "key": "alice"}))
        .await
        .expect_ok("reset");
    sleep(Duration::from_secs(2)).await;
    let mut admin = server.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut admin)
        .expect("names");
    assert!(names.len() >= 4, "{names:?}");
    let mut slots = std::collections::BTreeSet::new();
    for name in &names {
        let left: i64 = redis::cmd("PTTL")
            .arg(name)
            .query(&mut admin)
            .expect("a time");
        println!("{name} {left}");
        assert_ne!(left, -1, "{name} never expires");
        if name.contains("~fleet") {
            assert!(
                name.starts_with("{shop:") || name.starts_with("shop:"),
                "{name}"
            );
            let (_, tag) = name.split_once('{').expect("a hash tag");
            slots.insert(tag.split_once('}').expect("a hash tag").0.to_owned());
        }
    }
    assert_eq!(slots.len(), 1, "all in one hash tag");
    drop(here);
    // What is left when nobody is there goes by itself, but what is let through keeps its end.
    let began = Instant::now();
    loop {
        let left: Vec<String> = redis::cmd("KEYS")
            .arg("*~fleet*:process:*")
            .query(&mut admin)
            .expect("names");
        if left.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENT, "{left:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// "No process calls another", whoever looks on, and however often it is said that it takes part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_costs_one_call_a_second() {
    let server = Redis::start();
    let time = Duration::from_secs(6);
    // One that does not take part.
    let alone = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
    let layer = alone.layer("search");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        calls_in(&server, Duration::from_secs(3)).await,
        0,
        "it takes no part"
    );
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    let joined = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
    for _ in 0..3 {
        joined.join_fleet();
        joined.clone().join_fleet();
    }
    let _routers = [
        app.limits.page().router(),
        app.limits.clone().page().show_keys().router(),
    ];
    app.limits.join_fleet();
    // A page that somebody has looked at reads what the others say for some seconds.
    sleep(Duration::from_secs(15)).await;
    let began = Instant::now();
    let idle = calls_in(&server, time).await;
    let took = began.elapsed();
    println!("{idle} calls of two processes in {took:?}");
    assert!(
        (2..=2 * (took.as_secs() + 2)).contains(&idle),
        "{idle} calls of two processes in {took:?}"
    );

    // A thousand looks.
    let began = Instant::now();
    let before = calls(&server);
    while began.elapsed() < time {
        let views = (0..40).map(|at| app.view(GET_VIEWS[at % 4]));
        futures_util::future::join_all(views).await;
        sleep(Duration::from_millis(20)).await;
    }
    let looked = calls(&server) - before;
    println!("{looked} calls while many look on");
    assert!(looked <= 30, "{looked} calls while many look on");
    drop(layer);
}

/// The task of a page is over with the last layer, router and clone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_limits_that_are_dropped() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    let alive = std::sync::Arc::downgrade(app.limits.shared_store());
    app.in_fleet().await;
    app.let_through("alice", 60).await.expect_ok("let through");
    let layer = app.limits.layer("search");
    drop(app);
    sleep(Duration::from_secs(3)).await;
    drop(layer);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        calls_in(&server, Duration::from_secs(4)).await,
        0,
        "a task goes on"
    );
    assert!(alive.upgrade().is_none(), "somebody holds the store");
}

/// A layer alone keeps the process in its fleet, and so does a page alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_alone_obeys() {
    let server = Redis::start();
    let here = App::on(&server, Page::allow_changes);
    here.in_fleet().await;
    let layered = {
        let limits = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
        let limits = limits.key(Header::new("x-user"));
        limits.join_fleet();
        Router::new().route("/search", get("found").layer(limits.layer("search")))
    };
    let ask = async || {
        let request = Request::get("/search").header("x-user", "alice");
        send(&layered, request.body(Body::empty()).expect("a request"))
            .await
            .status
    };
    while ask().await != 429 {}
    here.let_through("alice", 60).await.expect_ok("let through");
    let began = Instant::now();
    while ask().await != 200 {
        assert!(began.elapsed() < Duration::from_secs(2) + SLACK);
        sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn outside_of_a_runtime_nothing_breaks_and_later_it_works() {
    let server = Redis::start();
    let mut first = tokio::runtime::Builder::new_multi_thread();
    let first = first.worker_threads(2).enable_all().build();
    let first = first.expect("a runtime");
    let store = {
        let _inside = first.enter();
        store(&server.url, "shop")
    };
    let limits = Limits::new([hourly("search", 2)]).store(store);
    limits.join_fleet();
    let app = App::of(limits.clone(), Page::allow_changes);
    first.block_on(async {
        app.in_fleet().await;
        app.use_up("alice").await;
        app.let_through("alice", 60).await.expect_ok("let through");
        assert_eq!(app.search("alice").await, 200);
        app.wait("now", PATIENT, |it| it["tick"].as_u64() >= Some(2))
            .await;
    });
    first.shutdown_background();
    // Without a timer it does nothing, and says so.
    let bare = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    bare.block_on(async {
        Limits::new([hourly("search", 2)]).join_fleet();
        let _ = Limits::new([hourly("search", 2)]).page().router();
        limits.join_fleet();
    });
    drop(bare);
}

/// A router that outlives its runtime, as in tests of an application.
#[test]
fn a_page_goes_on_in_another_runtime() {
    let app = App::new(Page::allow_changes);
    for round in 0..3 {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let before = app.view("now").await["tick"].as_u64().expect("a number");
            app.wait("now", Duration::from_secs(5) + SLACK, |it| {
                it["tick"].as_u64() >= Some(before + 2)
            })
            .await;
            println!("round {round}");
        });
    }
}

/// More processes than one page shows, and texts of a foreign size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_processes_are_bounded() {
    let server = Redis::start();
    let here = App::on(&server, |page| page);
    here.in_fleet().await;
    let mut admin = server.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*~fleet*:process:*")
        .query(&mut admin)
        .expect("names");
    let own = &names[0];
    let (index, of_all) = (
        own.rsplit_once(':').expect("a number").0,
        own.rsplit_once(":process:").expect("a number").0,
    );
    let text: Vec<u8> = redis::cmd("GET")
        .arg(own)
        .query(&mut admin)
        .expect("a text");
    let index_name = format!("{of_all}:processes");
    let scored: Vec<(String, String)> = redis::cmd("ZRANGE")
        .arg(&index_name)
        .arg(&["0", "-1", "WITHSCORES"])
        .query(&mut admin)
        .expect("the index");
    for at in 0..300 {
        let number = format!("{at:016x}");
        redis::cmd("SET")
            .arg(format!("{index}:{number}"))
            .arg(&text)
            .arg("PX")
            .arg(60_000)
            .exec(&mut admin)
            .expect("is set");
        redis::cmd("ZADD")
            .arg(&index_name)
            .arg(&scored[0].1)
            .arg(&number)
            .exec(&mut admin)
            .expect("is added");
    }
    sleep(Duration::from_millis(1_500)).await;
    let answer = here.get("/limits/api/fleet").await;
    let fleet = answer.json();
    println!(
        "{} processes in {} bytes",
        processes(&fleet),
        answer.text.len()
    );
    assert!((1..=201).contains(&processes(&fleet)));
    assert!(answer.text.len() < 1_000_000);
    let this = fleet["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .filter(|it| it["this"] == true);
    assert_eq!(this.count(), 1, "this one is among them");
    here.search("alice").await;
}

/// What a process says of itself is bounded: it has a thousand warnings, and limits long keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_much_to_say_is_in_the_fleet() {
    let server = Redis::start();
    let here = App::on(&server, Page::show_keys);
    let there = App::on(&server, Page::show_keys);
    here.in_fleet().await;
    let _layers: Vec<_> = (0..1_000)
        .map(|at| {
            there
                .limits
                .layer(&format!("{at} {}", "misspelt ".repeat(50)))
        })
        .collect();
    for at in 0..150 {
        let mut key = tidegate::Key::default();
        for part in 0..40 {
            key = key.with(format!("{part} {at:060}"));
        }
        for _ in 0..3 {
            let _ = there.limits.check("search", key.clone()).await;
        }
    }
    sleep(Duration::from_millis(2_500)).await;
    for app in [&here, &there] {
        app.wait("fleet", PATIENT, |it| processes(it) == 2).await;
        let answer = app.get("/limits/api/fleet").await;
        let limited = app.get("/limits/api/limited").await;
        let rows = limited.json()["rows"].as_array().expect("rows").len();
        println!(
            "{} and {} bytes, {rows} rows",
            answer.text.len(),
            limited.text.len()
        );
        assert!(rows > 0);
        assert!(answer.text.len() < 1_000_000 && limited.text.len() < 1_000_000);
    }
    let mut admin = server.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*~fleet*:process:*")
        .query(&mut admin)
        .expect("names");
    for name in names {
        let length: usize = redis::cmd("STRLEN")
            .arg(name)
            .query(&mut admin)
            .expect("a text");
        println!("{length} bytes");
        assert!(length <= 32 << 10);
    }
}

/// All keys of the fleet are in one slot, also where the prefix has braces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_has_a_fleet() {
    let cluster = Cluster::start(&Plan::default());
    for prefix in ["shop:CurrentLimiter:", "{shop}:", "sh}op:", "{"] {
        let apps = [0, 1].map(|_| {
            let store = tidegate::RedisStore::connect_lazy(cluster.url().as_str());
            let store = store
                .expect("a valid address")
                .prefix(prefix)
                .timeout(PATIENT);
            App::of(
                Limits::new([hourly("search", 2)]).store(store),
                Page::allow_changes,
            )
        });
        for app in &apps {
            app.wait("fleet", PATIENT, |it| processes(it) == 2).await;
        }
        let [here, there] = &apps;
        here.use_up("alice").await;
        here.let_through("alice", 60).await.expect_ok(prefix);
        let began = Instant::now();
        while there.search("alice").await != 200 {
            assert!(began.elapsed() < Duration::from_secs(2) + SLACK, "{prefix}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}
