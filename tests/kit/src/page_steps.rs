//! What operators and users of a page do, and what it shows, as text.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::page::{App, GET_VIEWS, count, search};
use crate::{PATIENT, millis, words};

impl App {
    /// Plays steps, see [`play`].
    pub async fn play(&self, steps: &str) {
        play(&[("", self)], search, steps).await;
    }
}

/// Plays steps, which `; ` and ends of lines divide; what begins with `//` is a comment. `ask` makes
/// a user's request.
///
/// - `wait 1500`: so many milliseconds pass.
/// - `ask alice`, `ask alice x4`: requests. `= 200 200 429 429` are their statuses, `= 429` that of
///   all of them. `use-up alice` asks until it is denied.
/// - `now`, `limited /rows/0`: looks at a view, or at that part of it. `until limited /rows # 1`
///   looks until it is so.
/// - `block alice 60`, `reset login/alice`, `key api>user/alice`: does that with the key, of the
///   rule `search`, of another one, or of a subject of a rule. `{"note": "why"}` is added to what is
///   posted. `= {"found": true}` is the answer. `refused block alice 60` is refused, with a reason.
/// - `/rows/0/key = "alice"`: what was looked at, or answered, has this in it, as JSON; `!=`
///   something else. `# 3` is the length of a list, `in 1..2.5` a number; `has alice` and
///   `lacks alice` are about the text. `.` is all of it.
/// - `keep row /rows/0/row`: from then on `$row` is this.
///
/// With several apps a step begins with the name of one of them, as in `here: ask alice`.
///
/// # Panics
///
/// If something is otherwise. It names the step.
pub async fn play(apps: &[(&str, &App)], ask: fn(&str) -> Request<Body>, steps: &str) {
    let (mut seen, mut kept) = (Value::Null, Vec::<(String, String)>::new());
    let lines = steps.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    for case in lines.flat_map(|line| line.split("; ")) {
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
            "use-up" => while app.send(ask(rest)).await.status != 429 {},
            "ask" => {
                let (name, times) = what.split_once(" x").unwrap_or((what, "1"));
                let mut statuses = Vec::new();
                for _ in 0..times.parse().expect("a number") {
                    statuses.push(app.send(ask(name)).await.status.to_string());
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
            "refused" => {
                let (verb, rest) = rest.split_once(' ').expect("what is refused");
                seen = json!(app.refused(verb, body(rest)).await);
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

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn at<'a>(seen: &'a Value, pointer: &str) -> &'a Value {
    let found = seen.pointer(pointer.trim_start_matches('.'));
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
