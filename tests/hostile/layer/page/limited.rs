//! Who is limited: the most denied by name, within the error that is said, in bounded memory.

use allocation_counter::measure;

use super::*;

async fn denied(app: &App, name: &str) -> bool {
    app.limits.check("search", user(name)).await.is_err()
}

/// The rows by key, and the error that is said.
fn rows(seen: &Value) -> (Vec<(String, u64)>, u64) {
    let rows = seen["rows"].as_array().expect("rows").iter().map(|row| {
        let key = row["key"].as_str().expect("keys are shown");
        (key.to_owned(), row["denials"].as_u64().expect("a number"))
    });
    let error = seen["too_many_by_at_most"].as_u64();
    (rows.collect(), error.expect("a number"))
}

/// The most denied ones come first, and the numbers of all rows are within the error.
fn check_rows(seen: &Value, exact: &HashMap<String, u64>, most: usize) {
    let (rows, error) = rows(seen);
    let mut order: Vec<_> = exact.iter().collect();
    order.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let least = order[most - 1].1;
    let most_denied = rows.iter().take(most);
    let is_right = |(key, _): &&(String, u64)| exact.get(key) >= Some(least);
    let right = most_denied.filter(is_right).count();
    assert!(right >= most - 2, "{right}: {rows:?} {order:.20?}");
    assert!(rows.len() <= 100);
    assert!(rows.is_sorted_by(|a, b| a.1 >= b.1), "most denied first");
    let missing = seen["too_few_by_at_most"].as_u64().expect("a number");
    for (key, denials) in &rows {
        let exact = exact.get(key).copied().unwrap_or_default();
        let case = format!("{key}: {denials} of {exact}, error {error}, missing {missing}");
        assert!(*denials <= exact + error, "{case}");
        assert!(exact <= *denials + missing, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_most_denied_of_ten_thousand_are_right_within_the_error() {
    for (seed, order) in [(1, false), (2, true), (3, false)] {
        let app = App::new(Page::show_keys);
        sleep(millis(1_100)).await;
        let mut random = Random::new(seed);
        let mut exact = HashMap::new();
        // Zipf: the key of rank `r` has a share of `1 / r`.
        let pick = |_| {
            let share = random.below(1 << 40) as f64 / (1_u64 << 40) as f64;
            10_000_f64.powf(share) as usize
        };
        let mut picks: Vec<_> = (0..200_000).map(pick).collect();
        if order {
            // The worst for a sketch: the heavy ones come first, and a long tail behind.
            picks.sort_unstable();
        }
        for (at, pick) in picks.into_iter().enumerate() {
            let name = format!("user{pick}");
            if denied(&app, &name).await {
                *exact.entry(name).or_insert(0) += 1;
            }
            if at % 40_000 == 0 {
                sleep(Duration::from_secs(1)).await;
            }
        }
        sleep(millis(2_100)).await;
        check_rows(&app.view("limited").await, &exact, 20);
    }
}

/// Each process tells of its most denied keys only: of a key that is among these in one process and
/// not in another one, the sum lacks what the other has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_fleet_is_said() {
    let server = Redis::start();
    let apps = [(); 2].map(|()| {
        let limits = Limits::new([hourly("search", 0)]).store(store(&server.url, "shop"));
        App::keyed(limits, Page::show_keys)
    });
    for app in &apps {
        app.in_fleet().await;
    }
    let mut exact: HashMap<String, u64> = HashMap::new();
    for (app, others) in apps.iter().zip(["here", "there"]) {
        // Behind a thousand others in the second process, before nearly all in the first.
        let all = (0..500).map(|at| (format!("{others}{at}"), 3));
        let common = if others == "here" { 5 } else { 2 };
        for (name, times) in all.chain([("common".to_owned(), common)]) {
            for _ in 0..times {
                assert!(denied(app, &name).await);
            }
            *exact.entry(name).or_insert(0) += times;
        }
    }
    // The others are asked while somebody looks.
    sleep(millis(2_500)).await;
    for app in &apps {
        let whole = app.until("limited", |it| it["complete"] == true).await;
        check_rows(&whole, &exact, 2);
    }
}

/// Tests that read the log keep what all threads write to it.
fn without_log() -> tracing::subscriber::DefaultGuard {
    tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new())
}

/// A million keys that were never seen before, each denied.
#[tokio::test]
async fn a_flood_of_a_million_keys_takes_bounded_memory() {
    let _quiet = without_log();
    let app = App::keyed(Limits::new([hourly("search", 0)]), Page::show_keys);
    sleep(millis(1_200)).await;
    // How many bytes are kept of that.
    let flood = |keys: std::ops::Range<u64>| {
        let used = measure(|| {
            for key in keys {
                assert!(at_once(app.limits.check("search", Key::from(key))).is_err());
            }
        });
        used.bytes_current
    };
    // What is kept for the process stands by then.
    flood(0..50_000);
    app.view("limited").await;
    let kept = flood(50_000..1_000_000);
    assert!(kept < 2_000_000, "{kept} bytes");
    let kept = flood(1_000_000..1_050_000);
    assert!(kept < 500_000, "{kept} bytes");
    let seen = app.view("limited").await;
    assert!(count(&seen["rows"]) <= Some(100));
    assert!(seen.to_string().len() < 100_000);
}

/// An hour of rates of two hundred rules, in at most 4 MB.
#[test]
fn an_hour_of_rates_takes_four_megabytes_at_most() {
    let _quiet = without_log();
    let names: Vec<_> = (0..200).map(|at| format!("rule{at:03}")).collect();
    let run = |with_page: bool| {
        let runtime = paused_runtime();
        let mut kept = None;
        let used = measure(|| {
            runtime.block_on(async {
                let rules = names.iter().map(|name| hourly(name, 1));
                let limits = Limits::new(rules.collect::<Rules>());
                let router = with_page.then(|| limits.page().router());
                for second in 0..3_700 {
                    let asked = if second % 10 == 0 { 100 } else { 0 };
                    for name in names.iter().take(asked) {
                        let _ = limits.check(name, "k").await;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
                kept = Some((limits, router));
            });
        });
        drop(kept);
        used.bytes_current
    };
    let (with, without) = (run(true), run(false));
    assert!(with - without < 4_000_000, "{with} and {without}");
}
