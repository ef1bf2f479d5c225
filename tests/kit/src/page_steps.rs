//! What operators and users of a page do, and what it shows, as text.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt;
use http::{HeaderValue, Request};
use serde_json::{Map, Value, json};
use tidegate::{Algorithm, Limits, Rules};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::page::{App, GET_VIEWS, count, hourly, user};
use crate::{HOUR, PATIENT, counters, http as with, left, millis, paused_runtime, words};

impl App {
    /// Plays steps, see [`play`].
    pub async fn play(&self, steps: &str) {
        play(&[("", self)], steps).await;
    }
}

/// A user's request, as in `alice`, `login/alice`, `alice@office` or `alice, x-plan: pro`: its path
/// is that of the rule `search`, or another one; `@office` is its field `x-address`, and `@` alone
/// says no user.
pub fn asked(text: &str) -> Request<Body> {
    let (who, fields) = text.split_once(", ").unwrap_or((text, ""));
    let (rule, who) = who.split_once('/').unwrap_or(("search", who));
    let mut request = with::request(&format!("/{rule}"), fields);
    let mut insert = |name, value: &str| {
        let value = value.parse().expect("the value of a field");
        request.headers_mut().insert(name, value);
    };
    let (user, address) = who.split_once('@').unwrap_or((who, ""));
    if !who.starts_with('@') {
        insert("x-user", user);
    }
    if who.contains('@') {
        insert("x-address", address);
    }
    request
}

/// Plays steps, which `; ` and ends of lines divide; what begins with `//` is a comment, and a line
/// that ends with `\` goes on.
///
/// - `wait 1500`: so many milliseconds pass.
/// - `ask alice`, `ask alice x4`: requests, see [`asked`]. `= 200 200 429 429` are their statuses,
///   `= 429` that of all of them; the fields of the last answer are looked at. With `x60/1000` each
///   is followed by a second. `use-up alice` asks until it is denied, `soon alice = 200` until the
///   status is this, at most 250 times in 5 s. `begin alice` holds its permit until `end`.
/// - `queue alice, x-tenant: acme x40`: so many requests are sent, and none is awaited; `#` is the
///   number of each.
/// - `now`, `limited /rows/0`: looks at a view, or at that part of it. `until limited /rows # 1`
///   looks until it is so. `counted`, `counted login`: at the counters of a rule, by their names on
///   the page. `used alice = 2`.
/// - `block alice 60`, `reset login/alice`, `key api>user/alice`: does that with the key, of the
///   rule `search`, of another one, or of a subject of a rule. `{"note": "why"}` joins what is
///   posted. `= {"found": true}` is the answer. `refused block alice 60` is refused, with a reason;
///   `gets 404 key alice` has this status.
/// - `hold alice`: for an hour. `rules login = { .. }`: this rule from now on; without one, none.
/// - `/rows/0/key = "alice"`: what was looked at, or answered, has this in it, as JSON; `!=`
///   something else. `# 3` is the length of a list, `in 1..2.5` a number; `has alice` and
///   `lacks alice` are about the text. `.` is all of it. `/rows/key=bob` is the row with this key.
/// - `keep row /rows/0/row`: from then on `$row` is this.
///
/// With several apps a step begins with the name of one of them, as in `here: ask alice`.
///
/// # Panics
///
/// If something is otherwise. It names the step.
pub async fn play(apps: &[(&str, &App)], steps: &str) {
    let (mut seen, mut kept) = (Value::Null, Vec::<(String, String)>::new());
    let mut held = Vec::new();
    let steps = steps.replace("\\\n", " ");
    let lines = steps.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    for case in lines.flat_map(|line| line.split("; ")).map(str::trim) {
        let whole = |step: String, kept: &(String, String)| step.replace(&kept.0, &kept.1);
        let step = kept
            .iter()
            .fold(case.trim_end_matches(';').to_owned(), whole);
        let of = |(name, app)| Some((app, step.strip_prefix(&format!("{name}: "))?));
        let (app, step) = apps
            .iter()
            .copied()
            .find_map(of)
            .unwrap_or((apps[0].1, &step));
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let (what, expected) = match rest.split_once("= ") {
            Some((what, expected)) => (what.trim(), Some(expected)),
            None => (rest, None),
        };
        match verb {
            "" => {}
            _ if step.starts_with(['/', '.']) => {
                assert!(holds(&seen, step), "{case}: {seen:#}");
            }
            "wait" => sleep(millis(rest.parse().expect("milliseconds"))).await,
            "use-up" => while app.send(asked(rest)).await.status != 429 {},
            "soon" => {
                let mut looks = 0;
                while Some(&*app.send(asked(what)).await.status.to_string()) != expected {
                    looks += 1;
                    assert!(looks < 250, "not in time: {case}");
                    sleep(millis(20)).await;
                }
            }
            "begin" => held.push(with::call(&app.router, asked(rest)).await),
            "end" => held.clear(),
            "queue" => {
                let (who, times) = repeated(what);
                for at in 0..times.parse().expect("a number") {
                    let request = asked(&who.replace('#', &u32::to_string(&at)));
                    tokio::spawn(app.router.clone().oneshot(request));
                }
                // They ask, and wait.
                sleep(millis(1)).await;
            }
            "ask" => {
                let (name, times) = repeated(what);
                let (times, pause) = times.split_once('/').unwrap_or((times, "0"));
                let mut statuses = Vec::new();
                for _ in 0..times.parse().expect("a number") {
                    let answer = app.send(asked(name)).await;
                    statuses.push(answer.status.to_string());
                    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
                    let fields = answer.head.iter();
                    let fields = fields.map(|it| (it.0.to_string(), json!(text(it.1))));
                    seen = fields.collect::<Map<_, _>>().into();
                    sleep(millis(pause.parse().expect("milliseconds"))).await;
                }
                let expected = words(expected.unwrap_or_default());
                let is_so = match expected[..] {
                    [] => true,
                    [one] => statuses.iter().all(|it| it == one),
                    _ => statuses == expected,
                };
                assert!(is_so, "{case}: {statuses:?}");
            }
            "keep" => {
                let (name, pointer) = rest.split_once(' ').expect("a name and a pointer");
                kept.push((format!("${name}"), at(&seen, pointer).to_string()));
            }
            "until" => {
                let ((view, check), began) = (rest.split_once(' ').expect("it"), Instant::now());
                seen = app.view(view).await;
                while !holds(&seen, check) {
                    assert!(began.elapsed() < PATIENT, "{case}: {seen:#}");
                    sleep(millis(50)).await;
                    seen = app.view(view).await;
                }
            }
            "counted" => {
                let path = if rest.is_empty() { "search" } else { rest };
                let it = counters(&app.limits, path);
                seen = json!({"let_through": it.let_through, "blocked": it.blocked,
                    "waiting": it.waiting});
            }
            "used" => {
                let used = 2 - left(&app.limits, "search", user(what)).await;
                assert_eq!(Some(&*used.to_string()), expected, "{case}");
            }
            "hold" => {
                let held = app.limits.hold("search", user(what), HOUR).await;
                held.expect("it is held");
            }
            "rules" => {
                let rules = match rest {
                    "" => Rules::default(),
                    rule => Rules::from_toml(&format!("rules.{rule}")).expect(rule),
                };
                app.limits.rules().replace(rules);
            }
            "refused" => {
                let (verb, rest) = rest.split_once(' ').expect("what is refused");
                seen = json!(app.refused(verb, body(rest)).await);
            }
            "gets" => {
                let mut words = rest.splitn(3, ' ');
                let mut word = || words.next().unwrap_or_default();
                let (status, verb, rest) = (word(), word(), word());
                let answer = app.post(verb, body(rest)).await;
                assert_eq!(answer.status.to_string(), status, "{case}: {answer:?}");
                seen = answer.json();
            }
            view if GET_VIEWS.iter().any(|it| view.starts_with(it)) => {
                seen = at(&app.view(view).await, rest).clone();
            }
            verb => {
                seen = app.done(verb, body(what)).await;
                let is_so = expected.is_none_or(|it| parsed(it) == seen);
                assert!(is_so, "{case}: {seen:#}");
            }
        }
    }
}

/// What is done, and how many times: once, if the text does not end as in `alice x4`.
fn repeated(what: &str) -> (&str, &str) {
    let parts = what.rsplit_once(" x");
    let parts = parts.filter(|it| it.1.starts_with(|it: char| it.is_ascii_digit()));
    parts.unwrap_or((what, "1"))
}

/// Plays the scenes of a file of the repository, each on an app of its own, in memory, which shows
/// keys and may be changed.
///
/// `== ` begins a scene with its name. Then stand its rules as TOML, if it has others than
/// [`App::new`], for [`App::of_rules`]. Lines that begin with blanks belong to a rule, `$algorithm`
/// is each in turn, and `$name` what the file says above the first scene, by `let name = `. With a
/// line `hides keys` the page does not show them, with `requests wait` they do, for a minute. The
/// rest are steps, see [`play`].
///
/// # Panics
///
/// If something is otherwise. It names the scene and the step.
pub fn play_scenes(file: &str) {
    for scene in scenes_of(file) {
        let algorithms = Algorithm::ALL.into_iter();
        let algorithms = algorithms.take(if scene.contains("$algorithm") { 4 } else { 1 });
        algorithms.for_each(|it| play_scene(&scene.replace("$algorithm", it.name())));
    }
}

/// The scenes of a file, with what it says above the first one.
pub(crate) fn scenes_of(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(crate::root().join(file)).expect("a file of scenes");
    let text = text.replace("\\\n", "");
    let mut scenes = text.split("\n== ");
    let lets = scenes.next().unwrap_or_default().split("\nlet ").skip(1);
    let lets: Vec<_> = lets.filter_map(|it| it.split_once(" = ")).collect();
    let scenes = scenes.map(|scene| {
        lets.iter().fold(scene.to_owned(), |scene, (name, is)| {
            scene.replace(&format!("${name}"), is.trim_end())
        })
    });
    scenes.collect()
}

fn play_scene(scene: &str) {
    let (name, text) = scene.split_once('\n').expect("a name");
    let is_rule = |line: &&str| line.starts_with("rules.") || line.starts_with(' ');
    let (rules, mut steps): (Vec<_>, Vec<_>) = text.lines().partition(is_rule);
    let [hides_keys, waits] = ["hides keys", "requests wait"].map(|it| steps.contains(&it));
    steps.retain(|it| !["hides keys", "requests wait"].contains(it));
    let wait = Duration::from_secs(60 * u64::from(waits));
    let played = paused_runtime().block_on(async {
        let limits = match &rules[..] {
            [] => Limits::new([hourly("search", 2)]),
            rules => Limits::from_toml(&rules.join("\n")).expect(name),
        };
        let app = App::waiting(limits, wait, |page| match hides_keys {
            true => page.allow_changes(),
            false => page.allow_changes().show_keys(),
        });
        let steps = steps.join("\n");
        AssertUnwindSafe(app.play(&steps)).catch_unwind().await
    });
    assert!(played.is_ok(), "the scene: {name}\n{}", rules.join("\n"));
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// What a pointer finds, in which `key=bob` is the element of a list with this member.
fn at<'a>(seen: &'a Value, pointer: &str) -> &'a Value {
    let parts = pointer.trim_start_matches('.').split('/');
    let mut parts = parts.filter(|it| !it.is_empty());
    let found = parts.try_fold(seen, |seen, part| match part.split_once('=') {
        Some((name, value)) => seen.as_array()?.iter().find(|it| it[name] == value),
        None => seen.pointer(&format!("/{part}")),
    });
    found.unwrap_or(&Value::Null)
}

/// What is posted for these words, and for what is added to them.
fn body(text: &str) -> Value {
    let (words, more) = text.split_at(text.find('{').unwrap_or(text.len()));
    let mut body = parsed(if more.is_empty() { "{}" } else { more });
    let mut words = words.split_whitespace();
    if let Some(who) = words.next() {
        let (rule, key) = who.split_once('/').unwrap_or(("search", who));
        let (rule, subject) = rule.split_once('>').unwrap_or((rule, ""));
        let seconds: u64 = words.next().map_or(Ok(0), str::parse).expect("seconds");
        (body["rule"], body["key"], body["seconds"]) = (json!(rule), json!(key), json!(seconds));
        if !subject.is_empty() {
            body["subject"] = json!(subject);
        }
    }
    body
}

/// Whether what was seen is as this says, as in `/rows # 1`.
fn holds(seen: &Value, check: &str) -> bool {
    let mut words = check.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (found, how, wanted) = (at(seen, word()), word(), word());
    match how {
        "=" => *found == parsed(wanted),
        "!=" => *found != parsed(wanted),
        "#" => count(found) == wanted.parse().ok(),
        "has" => found.to_string().contains(wanted),
        "lacks" => !found.to_string().contains(wanted),
        _ => {
            let (from, to) = wanted.split_once("..").expect("two numbers");
            let [from, to]: [f64; 2] = [from, to].map(|it| it.parse().expect("a number"));
            found.as_f64().is_some_and(|it| (from..=to).contains(&it))
        }
    }
}
