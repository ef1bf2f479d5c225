//! The fleet: who takes part appears and disappears, and costs Redis one call a second.

use kit::cluster::Plan;

use super::*;

/// A child that is killed when a test ends or fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls of scripts that the server has seen so far.
fn scripts(server: &Redis) -> u64 {
    calls(server, "evalsha") + calls(server, "eval")
}

async fn scripts_in(server: &Redis, time: Duration) -> u64 {
    let before = scripts(server);
    sleep(time).await;
    scripts(server) - before
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
    let mut other = Killed(start_worker("page::fleet::worker", &server.url));
    // A process takes time to start; it joins before three seconds are over.
    let seen = here
        .until("fleet", |it| count(&it["processes"]) == Some(2))
        .await;
    for process in seen["processes"].as_array().expect("processes") {
        let is_this = process["process"] == seen["process"];
        assert_eq!(process["this"], json!(is_this));
        let ago = process["seen_ago_s"].as_f64().expect("a number");
        assert!(ago <= 2.5, "{process}");
    }
    other.0.kill().expect("our child");
    let is_alone = |it: &Value| count(&it["processes"]) == Some(1);
    here.wait("fleet", Duration::from_secs(10) + SLACK, is_alone)
        .await;
}

/// Law 4, after all that the page can do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_the_fleet_expires() {
    let server = Redis::start();
    let here = App::on(&server, Page::allow_changes);
    here.in_fleet().await;
    let steps = r#"
        use-up alice; let-through alice 60; let-through bob 86400; let-through bob 0; reset alice
        wait 2000"#;
    here.play(steps).await;
    let names = keys(&server, "*");
    assert!(names.len() >= 4, "{names:?}");
    check_expiries(&server, &[]);
    let mut slots = BTreeSet::new();
    for name in names.iter().filter(|name| name.contains("~fleet")) {
        let is_ours = name.starts_with("{shop:") || name.starts_with("shop:");
        assert!(is_ours, "{name}");
        let (_, tag) = name.split_once('{').expect("a hash tag");
        slots.insert(tag.split_once('}').expect("a hash tag").0);
    }
    assert_eq!(slots.len(), 1, "all in one hash tag");
    drop(here);
    // What is left when nobody is there goes by itself, but what is let through keeps its end.
    let is_so = async || keys(&server, "*~fleet*:process:*").is_empty();
    eventually("the processes are gone", is_so).await;
}

/// "No process calls another", whoever looks on, and however often it is said that it takes part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_costs_one_call_a_second() {
    let server = Redis::start();
    let time = Duration::from_secs(6);
    // One that does not take part.
    let alone = shop(&server);
    let layer = alone.layer("search");
    sleep(Duration::from_secs(1)).await;
    let calls = scripts_in(&server, Duration::from_secs(3)).await;
    assert_eq!(calls, 0, "it takes no part");
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    let joined = shop(&server);
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
    let is_so = async || scripts_in(&server, Duration::from_secs(2)).await <= 5;
    eventually("it reads them no longer", is_so).await;
    let began = Instant::now();
    let idle = scripts_in(&server, time).await;
    let took = began.elapsed();
    let expected = 2..=2 * (took.as_secs() + 2);
    let is_right = expected.contains(&idle);
    assert!(is_right, "{idle} calls of two processes in {took:?}");

    // A thousand looks.
    let began = Instant::now();
    let before = scripts(&server);
    while began.elapsed() < time {
        let views = (0..40).map(|at| app.view(GET_VIEWS[at % 4]));
        futures_util::future::join_all(views).await;
        sleep(millis(20)).await;
    }
    let looked = scripts(&server) - before;
    assert!(looked <= 30, "{looked} calls while many look on");
    drop(layer);
}

/// The task of a page is over with the last layer, router and clone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_limits_that_are_dropped() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    let alive = Arc::downgrade(app.limits.shared_store());
    app.in_fleet().await;
    app.let_through("alice", 60).await;
    let layer = app.limits.layer("search");
    drop(app);
    sleep(Duration::from_secs(3)).await;
    drop(layer);
    sleep(Duration::from_secs(3)).await;
    let calls = scripts_in(&server, Duration::from_secs(4)).await;
    assert_eq!(calls, 0, "a task goes on");
    assert!(alive.upgrade().is_none(), "somebody holds the store");
}

#[test]
fn outside_of_a_runtime_nothing_breaks_and_later_it_works() {
    let server = Redis::start();
    let first = Runtime::new().expect("a runtime");
    let limits = {
        let _inside = first.enter();
        shop(&server)
    };
    limits.join_fleet();
    let app = App::keyed(limits.clone(), Page::allow_changes);
    first.block_on(async {
        app.in_fleet().await;
        app.play("use-up alice; let-through alice 60; ask alice = 200; until now /tick in 2..99")
            .await;
    });
    first.shutdown_background();
    // Without a timer it does nothing, and says so.
    let bare = Builder::new_current_thread().build();
    bare.expect("a runtime").block_on(async {
        Limits::new([hourly("search", 2)]).join_fleet();
        let _ = Limits::new([hourly("search", 2)]).page().router();
        limits.join_fleet();
    });
}

/// What a process says of itself is bounded: it has a thousand warnings, and limits long keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_much_to_say_is_in_the_fleet() {
    let server = Redis::start();
    let [here, there] = [0, 1].map(|_| App::on(&server, Page::show_keys));
    here.in_fleet().await;
    let misspelt = |at| format!("{at} {}", "misspelt ".repeat(50));
    let layers = (0..1_000).map(|at| there.limits.layer(&misspelt(at)));
    let _layers: Vec<_> = layers.collect();
    for at in 0..150 {
        let parts = (0..40).map(|part| format!("{part} {at:060}"));
        let key = parts.fold(Key::default(), |key, part| key.with(part));
        for _ in 0..3 {
            let _ = there.limits.check("search", key.clone()).await;
        }
    }
    sleep(millis(2_500)).await;
    for app in [&here, &there] {
        app.play("until fleet /processes # 2").await;
        let fleet = app.get_view("fleet").await;
        let limited = app.get_view("limited").await;
        assert!(count(&limited.json()["rows"]) > Some(0));
        for answer in [fleet, limited] {
            assert!(answer.text.len() < 1_000_000, "{}", answer.text.len());
        }
    }
    for name in keys(&server, "*~fleet*:process:*") {
        let length: usize = query(&server, &format!("STRLEN {name}"));
        assert!(length <= 32 << 10, "{length} bytes");
    }
}

/// All keys of the fleet are in one slot, also where the prefix has braces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_has_a_fleet() {
    let cluster = Cluster::start(&Plan::default());
    for prefix in ["shop:CurrentLimiter:", "{shop}:", "sh}op:", "{"] {
        let apps = [0, 1].map(|_| {
            let store = RedisStore::connect_lazy(cluster.url().as_str());
            let store = store.expect("an address").prefix(prefix).timeout(PATIENT);
            let limits = Limits::new([hourly("search", 2)]).store(store);
            App::keyed(limits, Page::allow_changes)
        });
        for app in &apps {
            app.play("until fleet /processes # 2").await;
        }
        let apps = [("here", &apps[0]), ("there", &apps[1])];
        let steps = "here: use-up alice; here: let-through alice 60; there: soon alice = 200";
        play(&apps, steps).await;
    }
}
