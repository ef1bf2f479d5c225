//! Who is limited: the most denied by name, within the error that is said, in bounded memory.

use allocation_counter::measure;

use super::*;

async fn denied(app: &App, name: &str) -> bool {
    app.limits.check("search", user(name)).await.is_err()
}

/// Zipf: the key of rank `r` has a share of `1 / r`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self(sums.collect())
    }

    fn pick(&self, random: &mut Random) -> usize {
        let all = self.0.last().expect("there are keys");
        let at = random.below(1 << 40) as f64 / (1_u64 << 40) as f64 * all;
        let rank = self.0.partition_point(|sum| *sum < at);
        rank.min(self.0.len() - 1)
    }
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

fn check_most(seen: &Value, exact: &HashMap<String, u64>, most: usize) {
    let (rows, _) = rows(seen);
    let mut order: Vec<_> = exact.iter().collect();
    order.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let least = order[most - 1].1;
    let most_denied = rows.iter().take(most);
    let is_right = |(key, _): &&(String, u64)| exact.get(key) >= Some(least);
    let right = most_denied.filter(is_right).count();
    assert!(right >= most - 2, "{right}: {rows:?} {order:.20?}");
    assert!(rows.len() <= 100);
    assert!(rows.is_sorted_by(|a, b| a.1 >= b.1), "most denied first");
}

fn check_rows(seen: &Value, exact: &HashMap<String, u64>, most: usize) {
    check_most(seen, exact, most);
    let (rows, error) = rows(seen);
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
        let (zipf, mut random) = (Zipf::new(10_000), Random::new(seed));
        let mut exact = HashMap::new();
        let mut picks: Vec<_> = (0..200_000).map(|_| zipf.pick(&mut random)).collect();
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
    let apps = all_denied::<2>(&server).await;
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
    for app in &apps {
        check_rows(&of_whole_fleet(app).await, &exact, 2);
    }
}

/// Processes of one service, and whoever asks is denied.
async fn all_denied<const PROCESSES: usize>(server: &Redis) -> [App; PROCESSES] {
    let max0 = || Limits::new([hourly("search", 0)]).store(store(&server.url, "shop"));
    let apps = [(); PROCESSES].map(|()| App::keyed(max0(), Page::show_keys));
    for app in &apps {
        app.in_fleet().await;
    }
    apps
}

/// What a page shows once every process has told what happened before.
async fn of_whole_fleet(app: &App) -> Value {
    sleep(millis(2_500)).await;
    // The others are asked while somebody looks.
    app.until("limited", |it| it["complete"] == true).await
}

fn row<'a>(seen: &'a Value, key: &str) -> Option<&'a Value> {
    let rows = seen["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["key"] == key)
}

fn number(row: &Value, name: &str) -> f64 {
    let number = row[name].as_f64();
    number.unwrap_or_else(|| panic!("{name}: {row}"))
}

#[tokio::test(start_paused = true)]
async fn since_and_until_are_those_of_the_key() {
    let short = Rule::new("short", [Quota::per_second(1)]).expect("a rule");
    let limits = Limits::new([hourly("search", 2), short]);
    let app = App::keyed(limits, |page| page.allow_changes().show_keys());
    let is_near = |row: &Value, name: &str, expected: f64| {
        assert!((number(row, name) - expected).abs() <= 2.0, "{row}");
    };
    let bob_asks_twice = async || {
        for _ in 0..2 {
            let _ = app.limits.check("short", user("bob")).await;
        }
    };
    sleep(millis(1_500)).await;
    app.use_up("alice").await;
    bob_asks_twice().await;
    let checked = app.limits.check("search", user("greedy")).cost(10).await;
    assert!(checked.is_err());
    sleep(Duration::from_secs(10)).await;
    app.search("alice").await;
    sleep(millis(2_100)).await;
    let seen = app.view("limited").await;
    let alice = row(&seen, "alice").expect("she is limited");
    assert_eq!(alice["denials"], 2);
    is_near(alice, "since_ago_s", 12.1);
    is_near(alice, "until_in_s", 3_587.9);
    assert_eq!(alice["never"], false);
    let greedy = row(&seen, "greedy").expect("he is limited");
    assert_eq!(greedy["never"], true, "{greedy}");
    let bob = row(&seen, "bob").expect("it stays for a minute");
    assert!(number(bob, "until_in_s") <= 0.0, "{bob}");
    sleep(Duration::from_secs(70)).await;
    let seen = app.view("limited").await;
    assert_eq!(row(&seen, "bob"), None, "over for a minute: {seen}");
    assert!(row(&seen, "alice").is_some());
    // A key that begins again is limited since then.
    sleep(Duration::from_secs(10)).await;
    bob_asks_twice().await;
    sleep(Duration::from_secs(2)).await;
    let seen = app.view("limited").await;
    let bob = row(&seen, "bob").expect("again");
    assert!(number(bob, "since_ago_s") < 5.0, "{bob}");
}

#[tokio::test(start_paused = true)]
async fn who_was_reset_is_forgotten() {
    let app = App::new(|page| page.allow_changes().show_keys());
    app.play("wait 1500; use-up alice; use-up bob; wait 2000")
        .await;
    assert!(row(&app.view("limited").await, "alice").is_some());
    app.play("reset alice; wait 2000").await;
    let seen = app.view("limited").await;
    let alice = row(&seen, "alice").map(|row| number(row, "until_in_s"));
    assert!(alice.is_none_or(|until| until <= 0.0), "{seen}");
    assert!(row(&seen, "bob").is_some());
}

/// Tests that read the log keep what all threads write to it.
fn without_log() -> tracing::subscriber::DefaultGuard {
    tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new())
}

/// An app that denies everybody: asks for these keys, and returns how many bytes are kept of that.
fn kept_after(app: &App, keys: impl Iterator<Item = tidegate::Key>) -> i64 {
    let used = measure(|| {
        for key in keys {
            assert!(at_once(app.limits.check("search", key)).is_err());
        }
    });
    used.bytes_current
}

/// A million keys that were never seen before, each denied.
#[tokio::test]
async fn a_flood_of_a_million_keys_takes_bounded_memory() {
    let _quiet = without_log();
    let app = App::keyed(Limits::new([hourly("search", 0)]), Page::show_keys);
    sleep(millis(1_200)).await;
    let flood = |keys: std::ops::Range<u64>| kept_after(&app, keys.map(tidegate::Key::from));
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

/// The busiest rules of many, however late they became busy.
#[tokio::test(start_paused = true)]
async fn the_busiest_rules_are_shown() {
    for rules in [200, 1_000] {
        expect_busiest(rules, 1, 50).await;
    }
}

/// Rules of which every twentieth is busy, from some time on.
async fn expect_busiest(rules: usize, quiet: usize, busy: usize) {
    let names: Vec<_> = (0..rules).map(|at| format!("rule{at:03}")).collect();
    let limits = Limits::new(names.iter().map(|name| hourly(name, 1)).collect::<Rules>());
    let _layers: Vec<_> = names.iter().map(|name| limits.layer(name)).collect();
    let app = App::keyed(limits, |page| page);
    sleep(millis(1_100)).await;
    let is_busy = |at: usize| at % 20 == 7;
    for second in 0..30 {
        for (at, name) in names.iter().enumerate() {
            let times = match second > 5 && is_busy(at) {
                true => busy,
                false => quiet,
            };
            for _ in 0..times {
                let _ = app.limits.check(name, "k").await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    let answer = app.get_view("now").await;
    assert!(answer.text.len() < 4_000_000, "{}", answer.text.len());
    let now = answer.json();
    let shown = now["rules"].as_array().expect("rules");
    assert_eq!(shown.len(), 64);
    assert_eq!(now["more_rules"], rules - 64);
    let is_shown = |name: &&String| shown.iter().any(|it| it["rule"] == **name);
    let busy = names.iter().skip(7).step_by(20);
    let missing: Vec<_> = busy.filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "not shown: {missing:?}");
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
