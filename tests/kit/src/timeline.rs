//! Requests and calls that come, wait, leave and give back at instants of a clock that the test
//! moves, as text: the files `tests/layer/*.txt` and `tests/hostile/layer/*.txt`, but the page's.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use futures_util::FutureExt;
use tidegate::decision::Verdict;
use tidegate::layer::{Admitted, SubjectKeys};
use tidegate::store::{Ask, Charge};
use tidegate::{Limits, MemoryStore, Rules, Store};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::http::{costly, handler, key};
use crate::stub::{Stub, always, far};
use crate::{PATIENT, Redis, left_of_each, millis, paused_runtime, still_runtime, store_on};

/// Plays the scenes of a file of the repository, each with limits of its own. All times are
/// milliseconds.
///
/// ```text
/// let units = window = "1m"            `$units` in each scene; stands above the first one
/// == a name of a scene
/// each $max $window = 1 ; 1s | 2 ; 1m  the scene is played for each of these; `= 0..9` is a range
/// each $algorithm = gcra | $counting   all of them
/// with store far 10, wait 2000, max-waiting 8
///                                      the last two of layers, and of `check`; a store is `near`
///                                      by default; `denies 0` denies all; `memory` and `redis`
///                                      are in real time
/// rules.p = { .. }                     TOML, from now on; `rules` alone are none
/// at 0 ask p x-hold: 30 x8          -> 6x 200 after 0..30, 429 after 0 says 60, waits
/// at 0 a: check p k cost 2 -> ok after 0; left p k -> 3
/// then left p k                     -> 4
/// ```
///
/// `at` counts since the beginning, or since the last `then`, which waits for all before it, and
/// until all that is given back is there. What a request or call came to is written as often as it
/// came: its status, after which time, and what it is told to wait: of a request the field
/// `retry-after`, of a call milliseconds; `really 900` is what the decision of a request says.
/// `all` stands for all others, and `waits` for one that has not ended when all others have.
///
/// - `ask p`: a request of [`handler`] behind the layer of this rule; `a+b` are two, the inner
///   one first. Its fields follow, `x-cost` of them is its cost, `x-key` its key. `try p` does not
///   wait.
/// - `check p k`: by `Limits::check`; the key may be `user=k,all=`. `cost 2`, `wait 900`, `lane a`,
///   `plan pro` may follow.
/// - `x8` behind these is so many, each with its number for `#` in its fields, `x8/10` each 10 ms
///   after the one before; `leave 3` that it leaves after 3 ms.
/// - With its name: `drop a`, `drop a 3`, all or the first three leave, and what calls were granted
///   ends; `refund a`, `settle a 5`, `meter a 5`; `done a` is how many have ended.
/// - `left p k`, `reset p k`, `hold p k 60`, `waiting`, `takes` since the last time, and `repeats`
///   and `looks` of these, `counted p`, its units that were given back.
///
/// In the end nobody waits, and no refund is lost.
///
/// # Panics
///
/// If something is otherwise. It names the scene, and says what was seen.
pub fn play(file: &str) {
    play_with(file, &[]);
}

/// The same with these names for what the file leaves open, as in `$one`.
pub fn play_with(file: &str, names: &[(&str, String)]) {
    let text = std::fs::read_to_string(crate::root().join(file)).expect("a file of scenes");
    let text = text.replace("\\\n", " ");
    let (mut wrong, mut scenes) = (Vec::new(), text.split("\n== "));
    let lets = scenes.next().unwrap_or_default().split("\nlet ").skip(1);
    let lets = lets.filter_map(|it| it.trim_end().split_once(" = "));
    let names = names.iter().map(|(name, is)| (*name, &**is));
    let lets: Vec<_> = lets.chain(names).chain([("counting", COUNTING)]).collect();
    for scene in scenes {
        let whole = |scene: String, it: &(&str, &str)| scene.replace(&format!("${}", it.0), it.1);
        let scene = lets.iter().fold(scene.to_owned(), whole);
        wrong.extend(variants(&scene).iter().filter_map(|it| played(it)));
    }
    assert!(wrong.is_empty(), "{file}\n{}", wrong.join("\n"));
}

const COUNTING: &str = "sliding-log | sliding-window | fixed-window";

/// The scene for each of its values.
fn variants(scene: &str) -> Vec<String> {
    let Some(each) = scene.lines().find(|it| it.starts_with("each ")) else {
        return vec![scene.to_owned()];
    };
    let (names, values) = each["each ".len()..].split_once(" = ").expect("values");
    let range = values.split_once("..").filter(|it| !it.0.contains(' '));
    let values: Vec<_> = match range {
        Some((from, to)) => (number(from)..=number(to))
            .map(|it| it.to_string())
            .collect(),
        None => values.split(" | ").map(str::to_owned).collect(),
    };
    let of = |value: &String| {
        let parts = names.split(' ').zip(value.split(" ; "));
        let scene = scene.replacen(each, "", 1);
        parts.fold(scene, |scene, (name, is)| scene.replace(name, is.trim()))
    };
    values.iter().flat_map(|it| variants(&of(it))).collect()
}

fn number(text: &str) -> u64 {
    let number = text.trim().parse();
    number.unwrap_or_else(|_| panic!("no number: {text}"))
}

/// So many milliseconds, or `forever`.
fn time(text: &str) -> Duration {
    match text {
        "forever" => Duration::MAX,
        text => millis(number(text)),
    }
}

/// What is wrong, if something is.
fn played(scene: &str) -> Option<String> {
    let is_real = ["store memory", "store redis"]
        .iter()
        .any(|it| scene.contains(it));
    let runtime = [paused_runtime, still_runtime][usize::from(is_real)]();
    let mut played = Played::default();
    let rows = AssertUnwindSafe(played.rows(scene)).catch_unwind();
    if runtime.block_on(rows).is_err() {
        played.wrong.push("it panicked".to_owned());
    }
    let wrong = played.wrong.join("\n");
    (!wrong.is_empty()).then(|| format!("\n== {scene}\n{wrong}"))
}

/// What came of a request or a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    after: u128,
    status: String,
    says: Option<u64>,
    /// What the decision of a denied request says, in milliseconds.
    really: Option<u64>,
}

impl Seen {
    fn of(status: &str) -> Self {
        let status = status.to_owned();
        Self {
            after: 0,
            status,
            says: None,
            really: None,
        }
    }

    /// Whether it is what a row says, as in `429 after 0..10 says 60`.
    fn is(&self, expected: &str) -> bool {
        let mut words = expected.split(' ');
        let is_status = words.next() == Some(&self.status);
        let words: Vec<_> = words.collect();
        is_status
            && words.chunks(2).all(|two| match two {
                ["after", time] => is_in(self.after, time),
                ["says", "nothing"] => self.says.is_none(),
                ["really", time] => self.really.is_some_and(|it| is_in(it.into(), time)),
                ["says", time] => self.says.is_some_and(|it| is_in(it.into(), time)),
                _ => panic!("no result: {expected}"),
            })
    }
}

/// Whether it is this number, as in `10`, or one of these, as in `..10`.
fn is_in(seen: u128, expected: &str) -> bool {
    let Some((from, to)) = expected.split_once("..") else {
        return seen == number(expected).into();
    };
    let to = if to.is_empty() { u64::MAX } else { number(to) };
    (number(&format!("0{from}")).into()..=to.into()).contains(&seen)
}

/// One request or call, and what a call was granted.
struct Started {
    task: JoinHandle<()>,
    seen: Arc<Mutex<Option<Seen>>>,
    granted: Arc<Mutex<Option<Admitted>>>,
}

impl Started {
    fn seen(&self) -> Seen {
        let seen = self.seen.lock().expect("no panic").clone();
        let missing = ["waits", "panicked"][usize::from(self.task.is_finished())];
        let after = u128::MAX;
        seen.unwrap_or_else(|| Seen {
            after,
            ..Seen::of(missing)
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All that one row has started, and what it is to come to.
struct Row {
    step: String,
    expected: String,
    started: Vec<Started>,
}

#[derive(Default)]
struct Played {
    limits: Option<Limits>,
    recorded: Option<Stub>,
    taken: usize,
    apps: HashMap<String, Router>,
    wait: Duration,
    max_waiting: Option<usize>,
    is_costly: bool,
    rows: BTreeMap<String, Row>,
    wrong: Vec<String>,
    server: Option<Redis>,
}

impl Played {
    async fn rows(&mut self, scene: &str) {
        let (mut rules, mut began, mut store) = (None::<String>, Instant::now(), "near");
        self.is_costly = scene.contains("x-cost");
        for line in scene.lines().skip(1) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            match verb {
                "" if rest.is_empty() => {}
                "//" => {}
                "with" => {
                    for setting in rest.split(", ") {
                        match setting.split_once(' ').expect("a setting and its value") {
                            ("store", what) => store = what,
                            ("wait", up_to) => self.wait = time(up_to),
                            (_, max) => self.max_waiting = Some(number(max) as usize),
                        }
                    }
                }
                "at" | "then" => {
                    let new = rules.take();
                    if self.limits.is_none() {
                        let text = new.as_deref().expect("rules before the first step");
                        let limits = Limits::from_toml(text).unwrap_or_else(|it| panic!("{it}"));
                        let limits = limits.store(self.store(store).await);
                        self.limits = Some(limits.key_by(|head| Ok(key(head))));
                        began = Instant::now();
                    }
                    let (mut at, mut steps) = ("0", rest);
                    if verb == "then" {
                        self.all_done().await;
                        began = Instant::now();
                    } else {
                        (at, steps) = rest.split_once(' ').expect("a step");
                    }
                    sleep_until(began + millis(number(at))).await;
                    if let Some(text) = new {
                        let rules = Rules::from_toml(&text).unwrap_or_else(|it| panic!("{it}"));
                        self.limits().rules().replace(rules);
                    }
                    for step in steps.split("; ") {
                        let (what, expected) = step.split_once("-> ").unwrap_or((step, ""));
                        self.step(what.trim(), expected).await;
                    }
                }
                _ => {
                    let text = rules.get_or_insert_default();
                    // Alone, it is no rule.
                    *text += if line == "rules" { "" } else { line };
                    text.push('\n');
                }
            }
        }
        self.all_done().await;
        self.rows.clear();
        sleep(millis(1)).await;
        let rules = self.limits().snapshot().rules;
        let rest = rules.iter().map(|it| (it.waiting, it.refunds_lost));
        let rest = rest.reduce(|one, two| (one.0 + two.0, one.1 + two.1));
        self.check(
            "the end",
            "(0, 0)",
            &format!("{:?}", rest.unwrap_or_default()),
        );
    }

    fn limits(&self) -> &Limits {
        self.limits.as_ref().expect("rules before the first step")
    }

    async fn store(&mut self, spec: &str) -> Arc<dyn Store> {
        let (what, time) = spec.split_once(' ').unwrap_or((spec, ""));
        let memory = || Arc::new(MemoryStore::new().tokio_clock());
        let stub = match what {
            "near" => return memory(),
            "memory" => return Arc::new(MemoryStore::new()),
            "redis" => {
                let server = self.server.insert(Redis::start());
                return Arc::new(store_on(server).await);
            }
            "far" => far(millis(number(time))),
            "denies" => {
                let retry_after = self::time(time);
                always(Verdict::Denied { retry_after })
            }
            _ => panic!("no store: {spec}"),
        };
        self.recorded = Some(stub.clone());
        Arc::new(stub)
    }

    /// What is to be seen is text, or a number as in [`is_in`].
    fn check(&mut self, step: &str, expected: &str, seen: &str) {
        let is_number = expected.contains("..") && is_in(number(seen).into(), expected);
        if expected != seen && !is_number {
            self.wrong
                .push(format!("{step}\n    saw {seen}, not {expected}"));
        }
    }

    /// The layers of a path, as in `inner+outer`, which may wait or not.
    fn app(&mut self, paths: &str, waits: bool) -> Router {
        let layer = |path: &str| {
            let layer = self.limits().layer(path);
            let layer = layer.max_waiting(self.max_waiting.unwrap_or(1_024));
            let layer = if self.is_costly { costly(layer) } else { layer };
            layer.wait(if waits { self.wait } else { Duration::ZERO })
        };
        let name = format!("{paths} {waits}");
        let app = self.apps.get(&name).cloned().unwrap_or_else(|| {
            let app = Router::new().fallback(any(handler));
            paths.split('+').map(layer).fold(app, Router::layer)
        });
        self.apps.insert(name, app.clone());
        app
    }

    async fn step(&mut self, step: &str, expected: &str) {
        let (name, step) = match step.split_once(": ") {
            Some((name, step)) if !name.contains(' ') => (name.to_owned(), step),
            _ => (format!("{}", self.rows.len()), step),
        };
        let words: Vec<_> = step.split(' ').collect();
        let seen = match words[..] {
            ["ask" | "try" | "check" | "turn", ..] => {
                let row = Row {
                    step: step.to_owned(),
                    expected: expected.to_owned(),
                    started: self.start(step),
                };
                self.rows.insert(name, row);
                return;
            }
            ["drop", name, ref first @ ..] => {
                let started = &self.rows[name].started;
                let all = started.len();
                let number = first.first().map_or(all, |it| number(it) as usize);
                for one in &started[..number] {
                    one.task.abort();
                    one.granted.lock().expect("no panic").take();
                    let mut seen = one.seen.lock().expect("no panic");
                    seen.get_or_insert_with(|| Seen::of("dropped"));
                }
                return;
            }
            ["done", name] => {
                let started = self.rows[name].started.iter();
                let done = started.filter(|it| it.task.is_finished());
                done.count().to_string()
            }
            ["refund", name] => {
                let mut units = 0;
                for charge in self.charges(name) {
                    units += charge.refund().await.expect("an answer");
                }
                units.to_string()
            }
            ["settle", name, used] => {
                let settled = self.charges(name)[0].settle(number(used)).await;
                let settled = settled.expect("an answer");
                format!("{} back, {} owed", settled.given_back, settled.charged)
            }
            ["meter", name, used] => return self.charges(name)[0].meter().add(number(used)),
            ["left", path, keys] => {
                let left = left_of_each(self.limits(), path, of(keys)).await;
                let left: Vec<_> = left.iter().map(u64::to_string).collect();
                left.join(" ")
            }
            ["reset", path, keys] => {
                let reset = self.limits().reset(path, of(keys)).await;
                reset.expect("an answer").to_string()
            }
            ["hold", path, key, time] => {
                let held = self.limits().hold(path, key, millis(number(time)));
                held.await.expect("an answer");
                return;
            }
            ["waiting"] => {
                let rules = self.limits().snapshot().rules;
                let waiting = rules.iter().map(|rule| rule.waiting);
                waiting.sum::<u64>().to_string()
            }
            [what @ ("takes" | "repeats" | "looks")] => {
                let takes = self.recorded.as_ref().expect("a far store").takes();
                let are = |take: &&Ask| match what {
                    "takes" => true,
                    "repeats" => take.is_repeat(),
                    _ => take.only_looks(),
                };
                let number = takes[self.taken..].iter().filter(are).count();
                if what == "takes" {
                    self.taken = takes.len();
                }
                number.to_string()
            }
            ["counted", path] => {
                let it = crate::counters(self.limits(), path);
                it.refunded_units.to_string()
            }
            _ => panic!("no step: {step}"),
        };
        self.check(step, expected, &seen);
    }

    /// What the calls of this name were charged, of which nobody else keeps the permits.
    fn charges(&self, name: &str) -> Vec<Charge> {
        let started = self.rows[name].started.iter();
        let granted = started.filter_map(|it| it.granted.lock().expect("no panic").take());
        let charges = granted.map(|it| it.charge.expect("it was charged"));
        charges.collect()
    }

    fn start(&mut self, step: &str) -> Vec<Started> {
        let (step, leave) = match step.rsplit_once(" leave ") {
            Some((step, time)) => (step, Some(millis(number(time)))),
            None => (step, None),
        };
        let is_times = |it: &(&str, &str)| it.1.starts_with(|it: char| it.is_ascii_digit());
        let times = step.rsplit_once(" x").filter(is_times);
        let (step, times) = times.unwrap_or((step, "1"));
        let (times, pause) = times.split_once('/').unwrap_or((times, "0"));
        let (verb, rest) = step.split_once(' ').expect("a path");
        let (path, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let one = |at: u64| {
            let (seen, granted) = <(Arc<Mutex<Option<Seen>>>, Arc<Mutex<_>>)>::default();
            let call = match verb {
                "check" => self.call(path, rest, Arc::clone(&granted)),
                _ => request(
                    self.app(path, verb == "ask"),
                    rest.replace('#', &at.to_string()),
                ),
            };
            let (slot, pause) = (Arc::clone(&seen), millis(at * number(pause)));
            let task = tokio::spawn(async move {
                sleep(pause).await;
                let began = Instant::now();
                let call = tokio::time::timeout(leave.unwrap_or(Duration::MAX), call);
                let mut came_to = call.await.unwrap_or_else(|_| Seen::of("left"));
                came_to.after = began.elapsed().as_millis();
                *slot.lock().expect("no panic") = Some(came_to);
            });
            Started {
                task,
                seen,
                granted,
            }
        };
        (0..number(times)).map(one).collect()
    }

    fn call(&self, path: &str, rest: &str, granted: Arc<Mutex<Option<Admitted>>>) -> Call {
        let words: Vec<_> = rest.split(' ').collect();
        let options: HashMap<_, _> = words[1..].chunks(2).map(|two| (two[0], two[1])).collect();
        let wait = options.get("wait").map_or(self.wait, |it| time(it));
        let mut call = self.limits().check(path, of(words[0])).wait(wait);
        for (option, value) in &options {
            call = match *option {
                "cost" => call.cost(number(value)),
                "lane" => call.fair_by(*value),
                "plan" => call.plan(value),
                _ => call,
            };
        }
        let call = call.into_future();
        Box::pin(async move {
            match call.await {
                Ok(admitted) => {
                    *granted.lock().expect("no panic") = Some(admitted);
                    Seen::of("ok")
                }
                Err(refused) => {
                    let is_denied = refused.decision().is_some();
                    let says = refused.retry_after().map(|it| it.as_millis() as u64);
                    let seen = Seen::of(["failed", "denied"][usize::from(is_denied)]);
                    Seen { says, ..seen }
                }
            }
        })
    }

    /// Waits for all that ends, and looks at what it came to.
    async fn all_done(&mut self) {
        for row in self.rows.values_mut() {
            let waits = row.expected.contains("waits");
            for one in &mut row.started {
                if !waits && !one.task.is_finished() {
                    let ended = tokio::time::timeout(60 * PATIENT, &mut one.task).await;
                    drop(ended.expect("it ends"));
                }
            }
        }
        assert!(self.limits().flush(PATIENT).await, "refunds are under way");
        for row in self.rows.values_mut().filter(|it| !it.expected.is_empty()) {
            let seen = row.started.iter().map(Started::seen);
            let seen = seen.filter(|it| it.status != "dropped").collect();
            if let Some(seen) = wrong(seen, &std::mem::take(&mut row.expected)) {
                self.wrong.push(format!("{}\n    saw {seen}", row.step));
            }
        }
    }
}

type Call = Pin<Box<dyn Future<Output = Seen> + Send>>;

fn request(app: Router, fields: String) -> Call {
    Box::pin(async move {
        let answer = crate::http::ask(&app, "/", &fields).await;
        let decision = answer.decision.as_ref();
        Seen {
            says: answer.field("retry-after").map(number),
            really: decision.and_then(|it| Some(it.retry_after()?.as_millis() as u64)),
            ..Seen::of(&answer.status.to_string())
        }
    })
}

fn of(keys: &str) -> SubjectKeys {
    let subjects = keys.split(',').filter_map(|it| it.split_once('='));
    if keys.contains('=') {
        subjects.collect()
    } else {
        keys.into()
    }
}

/// What these came to, if it is something else.
fn wrong(mut seen: Vec<Seen>, expected: &str) -> Option<String> {
    seen.sort();
    let is_right = are_as(&seen, expected);
    // In real time the first of a kind may be later than the first of another one.
    seen.sort_by(|one, other| one.status.cmp(&other.status));
    if is_right || are_as(&seen, expected) {
        return None;
    }
    let alike = seen.chunk_by(|one, other| one == other);
    let alike = alike.map(|all| format!("{} of {:?}", all.len(), all[0]));
    Some(alike.collect::<Vec<_>>().join(", "))
}

/// Whether these are what a row says, in its order.
fn are_as(mut rest: &[Seen], expected: &str) -> bool {
    let mut is_right = true;
    for item in expected.split(", ").map(str::trim) {
        let counted = item.split_once("x ");
        let (times, item) = match (counted, item.strip_prefix("all ")) {
            (Some((times, item)), _) => (number(times) as usize, item),
            (None, Some(item)) => (rest.len(), item),
            (None, None) => (1, item),
        };
        let (these, others) = rest.split_at(times.min(rest.len()));
        is_right &= these.len() == times && these.iter().all(|it| it.is(item));
        rest = others;
    }
    is_right && rest.is_empty()
}
