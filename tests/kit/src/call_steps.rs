//! What callers of limits do, what their functions do with their charges, and what comes of it, as
//! text.

use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Extensions, Request, Response};
use tidegate::callback::{Denied, ErrorCallbackChain, Failed, Recovery};
use tidegate::decision::{Source, Verdict};
use tidegate::key::KeyError;
use tidegate::layer::{CallError, Refused, SubjectKeys};
use tidegate::rule::{Plan, Share};
use tidegate::store::{Charge, Charges};
use tidegate::{Limits, MemoryStore, RateLimitLayer, Resilient, Rules, Store, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use crate::http as with;
use crate::page_steps::scenes_of;
use crate::stub::Stub;
use crate::{HOUR, PATIENT, Redis, counters, paused_runtime, run, still_runtime, store_on};

/// Plays the scenes of a file of the repository. `== ` begins a scene with its name. Then stand its
/// rules as TOML, of which lines that begin with blanks go on. It is played in memory, where time
/// stands still while anything runs; with a line `on all stores` there and on Redis in real time,
/// with `in an outage` in a fallback of one process, and with `down` over a store that never
/// decides, or `behind a cache` of denials. With a line `each $x = a | b` it is played with each of these. The rest are steps,
/// which `;` and ends of lines divide; what begins with `//` is a comment.
///
/// - `run PATH KEY`, `try`: a call, which runs a function that cannot fail, or that may; `request`:
///   a request, through a layer or through several, as `outer+inner`; `check`. A key is as
///   `user=alice,all=` under a joint rule. Behind it stand `cost 5`, `plan pro`, `as rule` (a plan of
///   its quotas), `wait 2` (seconds), `times 3` (one after the other) and `together 3`; of a call
///   `insists` (on a decision), `chain` (of callbacks, see [`chain`]) and `answered` (by callbacks);
///   of a request `bare` (without extensions); and the steps of the function as `{ .. }`.
/// - `= denied for 60` is what comes of it, of a request its status, by default `ok`; with
///   `after 2.0` the seconds that it took.
/// - `one: run ..` is done in a task of this name, `await one = ok` waits for it, `drop one` ends it.
/// - In a function: `fail` and `fail NAME`, `panic`, `answer 304`; `found = 1`, how many charges it
///   finds, and `units = 5` of what they are; `settle 5 = 1 0 0` (given back, charged, forgiven),
///   `settle PATH 5`, `refund = 5`, `meter add 5`, `meter set 5`, `failed PATH`, `succeeded PATH`.
///   `#1 settle 5`: of the charge of the first check; `forget` drops those.
/// - `sleep 0.5`; `say x` and `hear x`, which waits for it; `rules p = { .. }` from now on, without
///   one none; `off p` and `off` switch a rule off, and all.
/// - `block PATH KEY 60`, `let PATH KEY 60`, `raise PATH KEY 2 60`: what an operator does.
/// - `left PATH KEY = 5 9`: of each quota, once nothing is under way; `counted PATH units = 4`.
///
/// # Panics
///
/// If something is otherwise. It names the scene and the step.
pub fn play_calls(file: &str) {
    let server = std::cell::OnceCell::new();
    for scene in scenes_of(file).iter().flat_map(|scene| variants(scene)) {
        let has = |line: &str| scene.lines().any(|it| it == line);
        let memory = || MemoryStore::new().tokio_clock();
        let mut stores: Vec<Arc<dyn Store>> = vec![match () {
            () if has("down") => Arc::new(Stub::down()),
            () if has("behind a cache") => Resilient::new(memory()).denial_cache(HOUR).build(),
            () => Arc::new(memory()),
        }];
        if has("in an outage") {
            let down = Stub::down().capabilities_fn(|inner| inner.capabilities());
            let store = Resilient::new(down).fallback(Share::of_processes(1));
            stores.push(store.fallback_store(memory()).build());
        }
        for store in stores {
            paused_runtime().block_on(play(&scene, store, true));
        }
        if has("on all stores") {
            let server = server.get_or_init(Redis::start);
            run(server, "FLUSHALL");
            still_runtime().block_on(async {
                let store = store_on(server).await;
                play(&scene, Arc::new(store), false).await;
            });
        }
    }
}

/// The scene with each of the values that its lines say.
fn variants(scene: &str) -> Vec<String> {
    let Some(line) = scene.lines().find(|it| it.starts_with("each $")) else {
        return vec![scene.to_owned()];
    };
    let (name, values) = line["each ".len()..].split_once(" = ").expect("values");
    let rest = scene.replace(&format!("{line}\n"), "");
    let all = values.split(" | ");
    all.flat_map(|value| variants(&rest.replace(name, value)))
        .collect()
}

async fn play(scene: &str, store: Arc<dyn Store>, is_paused: bool) {
    const HEADERS: [&str; 4] = ["on all stores", "in an outage", "behind a cache", "down"];
    let (name, text) = scene.split_once('\n').expect("a name");
    let lines = text.lines().filter(|it| !it.trim().starts_with("//"));
    let mut lines = lines.filter(|it| !HEADERS.contains(it)).peekable();
    let is_rule = |it: &&str| it.starts_with("rules.") || it.starts_with(' ');
    let rules: Vec<_> = std::iter::from_fn(|| lines.next_if(is_rule)).collect();
    let (rules, steps) = (rules.join("\n"), lines.collect::<Vec<_>>().join("\n"));
    let limits = Limits::from_toml(&rules).unwrap_or_else(|it| panic!("{name}: {it}"));
    let limits = limits.key_by(|head| Ok(with::key(head)));
    let limits = limits.plan(|head| head.headers.get("x-plan")?.to_str().ok());
    let stage = Arc::new(Stage {
        limits: limits.store(Arc::clone(&store)),
        is_paused,
        tasks: Mutex::default(),
        said: Mutex::default(),
        charges: Mutex::default(),
    });
    let played = AssertUnwindSafe(stage.block(None, steps)).catch_unwind();
    let is_right = played.await.is_ok();
    assert!(is_right, "the scene, in {}: {name}\n{rules}", store.name());
}

/// Steps of a block, which are divided outside of braces.
fn steps(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let ends = move |it: char| {
        depth += i32::from(it == '{') - i32::from(it == '}');
        depth == 0 && matches!(it, ';' | '\n')
    };
    let steps = text.split(ends).map(str::trim);
    steps.filter(|it| !it.is_empty())
}

/// Where a scene is played.
struct Stage {
    limits: Limits,
    is_paused: bool,
    tasks: Mutex<HashMap<String, JoinHandle<(String, Duration)>>>,
    said: Mutex<HashMap<String, Arc<Notify>>>,
    /// Of checks.
    charges: Mutex<Vec<Charge>>,
}

type Block = Pin<Box<dyn Future<Output = io::Result<String>> + Send>>;
type Told<'a> = Pin<Box<dyn Future<Output = String> + Send + 'a>>;
type Task = Pin<Box<dyn Future<Output = (String, Duration)> + Send>>;

impl Stage {
    /// Plays steps, of the function of this request, if it is one of a request. Returns what the
    /// function does.
    fn block(self: &Arc<Self>, request: Option<Extensions>, text: String) -> Block {
        let stage = Arc::clone(self);
        Box::pin(async move {
            let mut answer = "ok".to_owned();
            let mut meter = None;
            let found = OnceLock::new();
            let find = || match &request {
                Some(extensions) => Charges::from_extensions(extensions),
                None => Charges::current(),
            };
            let own = || found.get_or_init(find);
            for case in steps(&text) {
                let (step, expected) = match case.rsplit_once(" = ") {
                    Some((step, expected)) if !expected.contains('}') => (step, Some(expected)),
                    _ => (case, None),
                };
                let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
                let seen = match verb {
                    "fail" => return Err(io::Error::other(rest.to_owned())),
                    "panic" => panic!("in a function"),
                    "answer" => {
                        rest.clone_into(&mut answer);
                        continue;
                    }
                    "meter" => {
                        let meter = meter.get_or_insert_with(|| find().meter());
                        match rest.rsplit_once(' ').expect("units") {
                            ("add", units) => meter.add(number(units)),
                            ("set", units) => meter.set(number(units)),
                            (path, units) => own().of(path).meter().add(number(units)),
                        }
                        let used = meter.used().to_string();
                        expected.map_or_else(|| "ok".to_owned(), |_| used)
                    }
                    "found" | "units" | "settle" | "refund" | "failed" | "succeeded" => {
                        settle(own(), verb, rest).await
                    }
                    _ => {
                        let mut looks = 0;
                        let (seen, took) = loop {
                            let seen = stage.step(request.as_ref(), step).await;
                            // A server may answer for a shadow rule later.
                            let may_come = verb == "left" && !stage.is_paused && looks < 5_000;
                            if !may_come || Some(&*seen.0) == expected {
                                break seen;
                            }
                            looks += 1;
                            sleep(Duration::from_millis(2)).await;
                        };
                        match expected.is_some_and(|it| it.contains(" after ")) {
                            true => format!("{seen} after {:.1}", took.as_secs_f64()),
                            false => seen,
                        }
                    }
                };
                assert_eq!(seen, expected.unwrap_or("ok"), "{case}");
            }
            Ok(answer)
        })
    }

    /// What comes of a step, and how long it took.
    async fn step(
        self: &Arc<Self>,
        request: Option<&Extensions>,
        step: &str,
    ) -> (String, Duration) {
        let began = Instant::now();
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let words: Vec<_> = rest.split(' ').collect();
        let seen = match verb {
            "run" | "try" | "check" | "request" => self.ask_often(verb, rest).await,
            "await" => {
                let task = self.tasks.lock().expect("no panic").remove(rest);
                return task.expect(step).await.expect(step);
            }
            "drop" => {
                let task = self.tasks.lock().expect("no panic").remove(rest);
                let task = task.expect(step);
                task.abort();
                assert!(task.await.is_err(), "it goes on: {step}");
                "ok".to_owned()
            }
            "left" => {
                assert!(self.limits.flush(PATIENT).await, "{step}");
                let asked = Asked::new(rest, &self.limits);
                let mut look = self.limits.peek(asked.path, keys(asked.key));
                if let Some(plan) = asked.plan {
                    look = look.plan(plan);
                }
                let left = look.plan_value(asked.value).await.expect("an answer");
                let left = left.expect("there is a rule");
                let left = left.quotas().iter().map(|it| it.remaining().to_string());
                left.collect::<Vec<_>>().join(" ")
            }
            "counted" => {
                let counted = format!("{:?}", counters(&self.limits, words[0]));
                let field = format!(" {}: ", words[1]);
                let (_, value) = counted.split_once(&field).expect(step);
                let end = value.find(|it: char| !it.is_ascii_digit());
                value[..end.unwrap_or(value.len())].to_owned()
            }
            _ if verb.starts_with('#') => {
                let at = number(&verb[1..]) as usize - 1;
                let charge = self.charges.lock().expect("no panic")[at].clone();
                let charges = Charges::from_iter([charge.clone()]);
                let charges = charges.of(charge.take().rule().path());
                settle(&charges, words[0], &words[1..].join(" ")).await
            }
            _ if verb.ends_with(':') => {
                let name = verb.trim_end_matches(':').to_owned();
                let task = tokio::spawn(self.in_task(request.cloned(), rest.to_owned()));
                self.tasks.lock().expect("no panic").insert(name, task);
                // It asks, and waits or works.
                sleep(Duration::from_millis(1)).await;
                "ok".to_owned()
            }
            _ => {
                self.arrange(verb, rest).await;
                "ok".to_owned()
            }
        };
        (seen, began.elapsed())
    }

    /// What comes of a step of a task; of steps in braces nothing does.
    fn in_task(self: &Arc<Self>, within: Option<Extensions>, step: String) -> Task {
        let stage = Arc::clone(self);
        Box::pin(async move {
            match step.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
                Some(steps) => {
                    let done = stage.block(within, steps.to_owned()).await;
                    (done.expect("no failure"), Duration::ZERO)
                }
                None => stage.step(within.as_ref(), &step).await,
            }
        })
    }

    async fn arrange(&self, verb: &str, rest: &str) {
        let rules = self.limits.rules();
        let signal = || {
            let mut said = self.said.lock().expect("no panic");
            Arc::clone(said.entry(rest.to_owned()).or_default())
        };
        match verb {
            "sleep" => sleep(seconds(rest)).await,
            "forget" => self.charges.lock().expect("no panic").clear(),
            "say" => signal().notify_one(),
            "hear" => signal().notified().await,
            "off" => {
                let mut all = Rules::clone(&rules.load());
                all.disable(rest);
                rules.replace(all.enabled(!rest.is_empty()));
            }
            "block" | "let" | "raise" => {
                let words: Vec<_> = rest.split(' ').collect();
                let (path, time) = (words[0], seconds(words[words.len() - 1]));
                let key = keys(words[1]);
                let done = match verb {
                    "block" => self.limits.block(path, key, time, "ops"),
                    "let" => self.limits.let_through(path, key, time, "ops"),
                    _ => {
                        let factor = words[2].parse().expect("a factor");
                        self.limits.raise(path, key, factor, time, "ops").replace()
                    }
                };
                done.await.expect(rest);
            }
            "rules" if rest.is_empty() => rules.replace(Rules::default()),
            "rules" => rules.replace(Rules::from_toml(&format!("rules.{rest}")).expect(rest)),
            _ => panic!("no step: {verb} {rest}"),
        }
    }

    /// The same of several, one after the other or at once: of each, unless all are alike.
    async fn ask_often(self: &Arc<Self>, verb: &str, text: &str) -> String {
        let head = text.split('{').next().unwrap_or_default();
        let asked = Asked::new(head, &self.limits);
        let mut all = Vec::new();
        for _ in 0..asked.times {
            if self.is_paused && asked.at_once == 1 {
                // What is admitted in the instant of a success is no failure.
                tokio::time::advance(Duration::from_micros(1)).await;
            }
            let beside = (0..asked.at_once).map(|_| self.caught(verb, text));
            all.extend(join_all(beside).await);
        }
        match all.iter().all(|it| *it == all[0]) {
            true => all.swap_remove(0),
            false => all.join(" "),
        }
    }

    fn caught<'a>(self: &'a Arc<Self>, verb: &'a str, text: &'a str) -> Told<'a> {
        Box::pin(async move {
            let done = AssertUnwindSafe(self.ask(verb, text)).catch_unwind();
            done.await.unwrap_or_else(|_| "panics".to_owned())
        })
    }

    /// What comes of a request, a call or a check.
    async fn ask(self: &Arc<Self>, verb: &str, text: &str) -> String {
        let (head, function) = text.split_once('{').unwrap_or((text, "}"));
        let function = function.trim_end().strip_suffix('}').expect("a function");
        let (asked, function) = (Asked::new(head, &self.limits), function.to_owned());
        if verb == "request" {
            return self.request(&asked, function).await;
        }
        let mut call = match verb {
            "check" => self.limits.check(asked.path, keys(asked.key)),
            _ if asked.key.is_empty() => self.limits.call(asked.path),
            _ => self.limits.call(asked.path).key(keys(asked.key)),
        };
        call = call.wait(asked.wait).plan_value(asked.value.clone());
        if let Some(units) = asked.cost {
            call = call.cost(units);
        }
        if let Some(plan) = asked.plan {
            call = call.plan(plan);
        }
        if asked.has("insists") {
            call = call.refuse_on_error();
        }
        let work = async || self.block(None, function).await;
        let done = match (verb, asked.has("chain")) {
            ("check", _) => call.await.map(|admitted| {
                let charge = admitted.charge;
                self.charges.lock().expect("no panic").extend(charge);
                Ok("ok".to_owned())
            }),
            ("run", false) => call.run(work).await,
            ("run", true) => call.run_with(&chain(), work).await,
            (_, false) => own_or_refused(call.try_run(work).await),
            (_, true) => own_or_refused(call.try_run_with(&chain(), work).await),
        };
        match done {
            Ok(done) => done.unwrap_or_else(|error| told_failure(&error)),
            Err(refused) if asked.has("answered") => {
                let degrade = async |it: Denied| {
                    format!("degraded {} {} {}", it.rule.path(), it.key, it.cost)
                };
                let on_error = async |it: Failed| format!("told {:?}", it.kind());
                refused.answer_by(degrade, on_error).await
            }
            Err(refused) => told(&refused),
        }
    }

    /// Through the layers of these paths, the outermost first.
    async fn request(self: &Arc<Self>, asked: &Asked<'_>, function: String) -> String {
        let stage = Arc::clone(self);
        let handler = service_fn(move |request: Request<Body>| {
            let done = stage.block(Some(request.extensions().clone()), function.clone());
            async move {
                let status = done.await?.parse().unwrap_or(200);
                let answer = Response::builder().status(status).body(Body::empty());
                Ok::<_, io::Error>(answer.expect("a status"))
            }
        });
        let mut service = BoxCloneSyncService::new(handler);
        for path in asked.path.rsplit('+') {
            let mut layer: RateLimitLayer = self.limits.layer(path).wait(asked.wait);
            if let Some(units) = asked.cost {
                layer = layer.cost(move |_| units);
            }
            if asked.has("bare") {
                layer = layer.without_extensions(true, true);
            }
            if let Some(value) = asked.value.clone() {
                layer = layer.plan_value(move |_| Some(value.clone()));
            }
            service = BoxCloneSyncService::new(layer.layer(service));
        }
        let fields = asked.key.split(',').map(|it| match it.split_once('=') {
            Some((name, text)) => format!("x-{name}: {text}"),
            None => format!("x-key: {it}"),
        });
        let plan = asked.plan.map(|plan| format!("x-plan: {plan}"));
        let fields = fields.chain(plan).collect::<Vec<_>>().join(", ");
        match service.oneshot(with::request("/", &fields)).await {
            Ok(response) if response.status() == 200 => "ok".to_owned(),
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => told_failure(&error),
        }
    }
}

/// What a caller asks for.
struct Asked<'a> {
    path: &'a str,
    key: &'a str,
    cost: Option<u64>,
    plan: Option<&'a str>,
    value: Option<Plan>,
    wait: Duration,
    times: usize,
    at_once: usize,
    flags: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    fn new(head: &'a str, limits: &Limits) -> Self {
        let mut words = head.split_whitespace();
        let mut asked = Self {
            path: words.next().expect("a path"),
            key: "",
            cost: None,
            plan: None,
            value: None,
            wait: Duration::ZERO,
            times: 1,
            at_once: 1,
            flags: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut next = || words.next().expect("a word behind it");
            match word {
                "cost" => asked.cost = Some(number(next())),
                "plan" => asked.plan = Some(next()),
                "wait" => asked.wait = seconds(next()),
                "as" => {
                    let rules = limits.rules().load();
                    let policies = rules.get(next()).expect("a rule").policies().to_vec();
                    asked.value = Some(Plan::of(policies).expect("valid"));
                }
                "times" => asked.times = number(next()) as usize,
                "together" => asked.at_once = number(next()) as usize,
                "insists" | "chain" | "answered" | "bare" => asked.flags.push(word),
                key => asked.key = key,
            }
        }
        asked
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

/// Answers failures of the store, but for the rule `proceeds`, and those of a function that are
/// called `answered`. One called `panics` panics in it.
fn chain() -> ErrorCallbackChain<io::Result<String>> {
    ErrorCallbackChain::default()
        .on::<StoreError>(async |failed: Failed| match failed.rule.path() {
            "proceeds" => Recovery::Proceed,
            _ => Recovery::Respond(Ok("answered".to_owned())),
        })
        .on::<io::Error>(async |failed: Failed| {
            let error = failed.downcast_ref::<io::Error>().expect("its type");
            match &*error.to_string() {
                "answered" => Recovery::Respond(Ok("answered".to_owned())),
                "panics" => panic!("in a callback"),
                _ => Recovery::Propagate,
            }
        })
        .on::<KeyError>(async |_: Failed| Recovery::Proceed)
}

/// An error of the function is what it returns; `Denied` is a decision, and `Failed` none.
fn own_or_refused<T>(done: Result<T, CallError<io::Error>>) -> Result<io::Result<T>, Refused> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(CallError::Inner(error)) => Ok(Err(error)),
        Err(CallError::Denied(refused)) => {
            assert!(refused.decision().is_some());
            Err(refused)
        }
        Err(CallError::Failed(refused)) => {
            assert!(refused.decision().is_none());
            Err(refused)
        }
    }
}

fn told_failure(error: &io::Error) -> String {
    format!("fails {error}").trim_end().to_owned()
}

/// Why a function did not run, as in `denied for 60`, `busy` and `Unavailable`.
fn told(refused: &Refused) -> String {
    let Some(decision) = refused.decision() else {
        let kind = refused.error().map(|it| format!("{:?}", it.kind()));
        return kind.unwrap_or_else(|| "a key lacks".to_owned());
    };
    match (decision.verdict(), refused.retry_after()) {
        (Verdict::Busy { .. }, _) => "busy".to_owned(),
        (Verdict::LockedOut { .. }, Some(wait)) => format!("locked out for {}", whole(wait)),
        (_, Some(wait)) if decision.source() == Source::Operator => {
            format!("blocked for {}", whole(wait))
        }
        (_, Some(wait)) => format!("denied for {}", whole(wait)),
        (_, None) => "never".to_owned(),
    }
}

/// What code sees of these charges, or of those of a path among them, and what comes of what it does.
async fn settle(charges: &Charges, verb: &str, rest: &str) -> String {
    let (path, units) = match verb {
        "settle" => rest.rsplit_once(' ').unwrap_or(("", rest)),
        _ => (rest, ""),
    };
    let of_path;
    let charges = if path.is_empty() {
        charges
    } else {
        of_path = charges.of(path);
        &of_path
    };
    match verb {
        "found" => charges.len().to_string(),
        "units" => {
            let units = charges.iter().map(|it| it.receipt().units());
            units.sum::<u64>().to_string()
        }
        "settle" => {
            let settled = charges.settle(number(units)).await;
            let it = settled.expect("an answer");
            format!("{} {} {}", it.given_back, it.charged, it.forgiven)
        }
        "refund" => charges.refund().await.expect("an answer").to_string(),
        _ => {
            match verb {
                "failed" => charges.failed(),
                _ => charges.succeeded(),
            }
            "ok".to_owned()
        }
    }
}

/// In seconds that have begun.
fn whole(time: Duration) -> f64 {
    time.as_secs_f64().ceil()
}

fn keys(text: &str) -> SubjectKeys {
    match text.contains('=') {
        true => SubjectKeys::from_iter(text.split(',').filter_map(|it| it.split_once('='))),
        false => text.into(),
    }
}

fn number(text: &str) -> u64 {
    text.replace('_', "")
        .parse()
        .unwrap_or_else(|_| panic!("no number: {text}"))
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(text.parse().expect("seconds"))
}
