//! The contract of `Limits::check` and `Limits::call`: the same history, once through layers around
//! an empty service, once through `check` and once through `call`, has equal decisions, counters
//! and events.

use std::fmt::Write as _;
use std::fs;

use kit::full_log::Log;

use super::*;

/// What the store does with the takes that it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Decides,
    Fails(StoreErrorKind),
    Hangs,
    /// Only for rules that are not enforced.
    FailsShadows,
    HangsShadows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Layer,
    Check,
    Call,
}

/// How the store is wrapped.
#[derive(Debug, Clone, Copy)]
enum Around {
    Timeout,
    Fallback,
    Resilient,
}

const PATHS: [&str; 7] = ["a", "b", "c", "d", "e", "odd \"n\u{e4}me\"\n", "nobody's"];
const TIMEOUT: Duration = millis(80);

/// The key of each path as the file has it, and as code makes it.
fn key_of(path: &str) -> (&'static str, Arc<dyn KeyExtractor>) {
    let client = ClientIp::behind([]);
    match path {
        "a" => ("\"header:x-user\"", Arc::new(Header::new("x-user"))),
        "b" => (
            "\"header:x-user | client-ip\"",
            Arc::new(Header::new("x-user").or(client)),
        ),
        "c" => (
            "[\"client-ip\", \"cookie:sid | everyone\"]",
            Arc::new((client, Cookie::new("sid").or(Everyone))),
        ),
        "d" => ("\"everyone\"", Arc::new(Everyone)),
        "e" => ("\"bearer | peer-ip\"", Arc::new(Bearer.or(PeerIp))),
        // Of `Limits`.
        _ => ("", Arc::new(Header::new("x-user").or(Everyone))),
    }
}

fn any<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn any_quota(random: &mut Random) -> String {
    let max = any(random, &[0, 1, 2, 3, 5, 8, 1_000]);
    let window = any(random, &["100ms", "1s", "10s", "1m"]);
    format!("max-count = {max}\nwindow = \"{window}\"\n")
}

fn any_count(random: &mut Random) -> String {
    if random.is(25) {
        let (one, two) = (random.below(6), random.below(9));
        let name = if random.is(50) { ", name = \"n\"" } else { "" };
        return format!(
            "quotas = [{{ max-count = {one}, window = \"1s\" }}, \
             {{ max-count = {two}, window = \"10s\"{name} }}]\n"
        );
    }
    let (quota, algorithm) = (any_quota(random), any(random, &Algorithm::ALL));
    format!("{quota}algorithm = \"{}\"\n", algorithm.name())
}

/// The text of a file with some of the rules; sometimes it is none.
fn any_file(random: &mut Random) -> String {
    if random.is(8) {
        let wrong = ["", "enabled = \"no\"", "[rules.a]\nmax-count = -1\n", "x"];
        return any(random, &wrong).to_owned();
    }
    let mut text = String::new();
    for line in ["enabled = false\n", "shadow = true\n"] {
        text += if random.is(8) { line } else { "" };
    }
    text += "[client-ip]\ntrusted = []\n";
    for path in &PATHS[..6] {
        if random.is(25) {
            continue;
        }
        let name = path.replace('"', "\\\"").replace('\n', "\\n");
        text += &format!("[rules.\"{name}\"]\n{}", any_count(random));
        let key = key_of(path).0;
        if !key.is_empty() {
            text += &format!("key = {key}\n");
        }
        let lines = ["enabled = false\n", "shadow = true\n", "cost = 2\n"];
        for (percent, line) in [10, 10, 30].into_iter().zip(lines) {
            text += if random.is(percent) { line } else { "" };
        }
        if random.is(60) {
            let policy = any(random, &["respond", "fallback", "proceed"]);
            text += &format!("on-error = \"{policy}\"\n");
        }
        if random.is(30) {
            text += &format!("[rules.\"{name}\".shadow]\n{}", any_count(random));
        }
    }
    text
}

struct Story {
    side: Side,
    /// Whether decisions and charges are not looked at, which a call does not hand out.
    is_blind: bool,
    limits: Limits,
    mood: Arc<Mutex<Mood>>,
    /// Whether the store may fail more than once, or in parts. Of such changes the log is told at most once a
    /// second by the clock of the machine, so what it is told depends on how busy that is.
    is_wild: bool,
    has_failed: bool,
    clock: ManualClock,
    folder: TempDir,
    layers: HashMap<&'static str, Wrapped>,
    charges: Vec<Charge>,
    log: Log,
}

fn moody(inner: Arc<dyn Store>, mood: &Arc<Mutex<Mood>>) -> Stub {
    let mood = Arc::clone(mood);
    Stub::answering(inner, move |take| {
        let failure = |kind| {
            let error = StoreError::new(kind, "the test's store is in a mood");
            Some(StoreFuture::boxed(async { Err(error) }))
        };
        let hang = || Some(StoreFuture::boxed(std::future::pending()));
        let is_shadow = take.name("").contains("~shadow");
        let mood = *mood.lock().expect("no panic");
        match mood {
            Mood::Fails(kind) => failure(kind),
            Mood::Hangs => hang(),
            Mood::FailsShadows if is_shadow => failure(StoreErrorKind::WrongType),
            Mood::HangsShadows if is_shadow => hang(),
            _ => None,
        }
    })
}

impl Story {
    fn begin((side, is_blind): (Side, bool), seed: u64) -> Self {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_777);
        let around = around(seed);
        let is_wild = seed.is_multiple_of(2) || !matches!(around, Around::Timeout);
        let mood = Arc::new(Mutex::new(Mood::Decides));
        let inner = Arc::new(MemoryStore::new().clock(clock.clone()));
        let moody = moody(inner, &mood);
        let local = MemoryStore::new().clock(clock.clone());
        let bounded = |moody| Resilient::bare(moody).timeout(TIMEOUT);
        let store: Arc<dyn Store> = match around {
            Around::Timeout => Arc::new(bounded(moody)),
            Around::Fallback => {
                let store = Resilient::bare(bounded(moody)).fallback(Share::of_processes(1));
                Arc::new(store.fallback_store(local))
            }
            Around::Resilient => {
                let inner = Resilient::new(moody).timeout(TIMEOUT).failures(None);
                let inner = inner.clock(clock.clone()).build();
                let store = Resilient::bare(inner).fallback(Share::of_processes(2));
                Arc::new(store.fallback_store(local))
            }
        };
        let limits = Limits::new(Rules::default())
            .store(store)
            .headers(Headers::Draft7)
            .key(key_of("").1);
        Self {
            side,
            is_blind,
            limits,
            mood,
            is_wild,
            has_failed: false,
            clock,
            folder: tempfile::tempdir().expect("a folder"),
            layers: HashMap::new(),
            charges: Vec::new(),
            log: Log::start(),
        }
    }

    /// A thing that happens, and all that can be told of it.
    async fn step(&mut self, random: &mut Random) -> String {
        let event = match random.below(100) {
            0..70 => self.ask(random).await,
            70..80 => {
                let by = any(random, &[1, 1_000, 50_000, 700_000, 11_000_000]);
                self.clock.set(self.clock.now() + by);
                String::new()
            }
            80..84 => self.change_mood(random),
            84..87 => self.reload(random),
            87..94 => self.refund(random).await,
            94..97 => self.look(random).await,
            _ => format!("{:?}", self.limits.warnings()),
        };
        // Shadow rules, for which nobody waits, are answered afterwards.
        sleep(2 * TIMEOUT).await;
        let mut log = timeless(&self.log.lines());
        log.retain(|line| !self.is_wild || !line.trim_start().starts_with("WARN"));
        format!("{event}\n{log:#?}\n{}", self.counters())
    }

    fn change_mood(&mut self, random: &mut Random) -> String {
        let moods = [
            Mood::Decides,
            Mood::Fails(StoreErrorKind::Refused),
            Mood::Fails(StoreErrorKind::Unavailable),
            Mood::Hangs,
            Mood::FailsShadows,
            Mood::HangsShadows,
        ];
        let fails = |mood| mood != Mood::Decides;
        let mut mood = self.mood.lock().expect("no panic");
        let next = any(random, &moods);
        if !self.is_wild && self.has_failed && fails(next) {
            return String::new();
        }
        self.has_failed |= fails(next);
        *mood = next;
        format!("{next:?}")
    }

    async fn ask(&mut self, random: &mut Random) -> String {
        let path = any(random, &PATHS);
        let mut fields = vec![("x-user", any(random, &["alice", "bob", PEER]))];
        if path == "b" && random.is(30) {
            fields.clear();
        }
        if random.is(50) {
            fields.push(("cookie", "sid=5e55i0n"));
        }
        if random.is(50) {
            fields.push(("authorization", "Bearer t0ken"));
        }
        let cost = any(random, &[0, 1, 1, 2, 3, 1_001, u64::MAX]);
        let cost = random.is(60).then_some(cost);
        let said = match self.side {
            Side::Layer => self.ask_layer(path, cost, request(&fields)).await,
            Side::Check => self.by_name(path, cost, request(&fields)).await,
            Side::Call => self.call(path, cost, request(&fields)).await,
        };
        format!("{path:?} {fields:?} {cost:?}: {said}")
    }

    async fn ask_layer(
        &mut self,
        path: &'static str,
        cost: Option<u64>,
        mut request: Request<Body>,
    ) -> String {
        #[derive(Clone, Copy)]
        struct Cost(u64);

        let limits = &self.limits;
        // One for each path: each tells the log of failures by itself.
        let layer = self.layers.entry(path).or_insert_with(|| {
            let cost = |head: &Parts| head.extensions.get::<Cost>().expect("inserted").0;
            wrap(limits.layer(path).cost(cost))
        });
        let rules = limits.rules().load();
        let of_rule = || rules.get(path).map_or(1, |rule| rule.cost());
        let cost = Cost(cost.unwrap_or_else(of_rule));
        request.extensions_mut().insert(cost);
        let response = send(layer, request).await;
        if response.status() != 200 {
            return format!("refused: {}", seen(response).await);
        }
        let decision = Decision::from_extensions(response.extensions()).cloned();
        let charges = Charges::from_extensions(response.extensions());
        assert!(charges.len() <= 1, "one layer: {charges:?}");
        self.admitted(decision.as_ref(), charges.first())
    }

    async fn by_name(&mut self, path: &str, cost: Option<u64>, request: Request<Body>) -> String {
        let check = self.limits.check(path, key_in(path, request));
        let answer = match cost {
            Some(cost) => check.cost(cost).await,
            None => check.await,
        };
        match answer {
            Ok(admitted) => self.admitted(admitted.decision.as_ref(), admitted.charge.as_ref()),
            Err(refused) => {
                assert_eq!(refused.rule().path(), path);
                assert_ne!(refused.error().is_some(), refused.decision().is_some());
                format!("refused: {}", seen(refused.into_response()).await)
            }
        }
    }

    async fn call(&mut self, path: &str, cost: Option<u64>, request: Request<Body>) -> String {
        let call = self.limits.call(path).key(key_in(path, request));
        let ran = match cost {
            Some(cost) => call.cost(cost).run(async || ()).await,
            None => {
                let ran = call.try_run(async || Ok::<_, Infallible>(())).await;
                ran.map_err(|error| match error {
                    CallError::Denied(refused) | CallError::Failed(refused) => refused,
                    CallError::Inner(never) => match never {},
                })
            }
        };
        match ran {
            Ok(()) => self.admitted(None, None),
            Err(refused) => format!("refused: {}", seen(refused.into_response()).await),
        }
    }

    fn admitted(&mut self, decision: Option<&Decision>, charge: Option<&Charge>) -> String {
        if self.is_blind {
            return "admitted: blindly".to_owned();
        }
        self.charges.extend(charge.cloned());
        let charge = charge.map(|charge| {
            let take = charge.take();
            (charge.receipt().units(), take.cost(), take.key().clone())
        });
        let decision = decision.map(|it| {
            let failure = it.failure().map(ToString::to_string);
            (it.verdict(), it.source(), it.quotas().to_vec(), failure)
        });
        format!("admitted: {decision:?} {charge:?}")
    }

    fn reload(&self, random: &mut Random) -> String {
        let text = any_file(random);
        if random.is(30) {
            return match Rules::from_toml(&text) {
                Ok(rules) => {
                    self.limits.rules().replace(rules);
                    format!("replaced: {text}")
                }
                Err(error) => error.to_string(),
            };
        }
        let file = self.folder.path().join("limits.toml");
        fs::write(&file, &text).expect("is written");
        let answer = self.limits.reload(&file).map_err(|error| {
            let folder = self.folder.path().display().to_string();
            error.to_string().replace(&folder, "")
        });
        let kept = self.limits.status().kept_rules;
        let verified = self.limits.verify();
        format!("{text}\n{answer:?} {kept:?} {verified:?}")
    }

    async fn refund(&mut self, random: &mut Random) -> String {
        if self.charges.is_empty() {
            return String::new();
        }
        let number = random.below(self.charges.len() as u64) as usize;
        let answer = self.charges[number].refund().await;
        if random.is(50) {
            self.charges.swap_remove(number);
        }
        format!("refunded: {answer:?}")
    }

    async fn look(&self, random: &mut Random) -> String {
        let path = any(random, &PATHS);
        let key = key_in(path, request(&[("x-user", "bob")]));
        if random.is(30) {
            return format!("reset: {:?}", self.limits.reset(path, key).await);
        }
        let seen = self.limits.peek(path, key).await;
        let seen = seen.map(|seen| seen.map(|it| (it.verdict(), it.quotas().to_vec())));
        format!("peeked: {seen:?}")
    }

    /// All counters, without how long something took.
    fn counters(&self) -> String {
        let mut text = String::new();
        let snapshot = self.limits.snapshot();
        for rule in snapshot.rules {
            let answers = rule.latency.count();
            let counters = format!("{rule:?}");
            let at = counters.find("latency:").expect("the last field");
            let end = counters[at..]
                .find("}])")
                .map_or("", |end| &counters[at + end + 3..]);
            writeln!(text, "{} {answers} {end}", &counters[..at]).expect("a text");
        }
        let rules = self.limits.paths_without_rule();
        format!("{text}{} {rules:?}", snapshot.unmatched)
    }
}

/// Lines of the log without times, and without the folder of the test.
fn timeless(lines: &[String]) -> Vec<String> {
    let timeless = |line: &String| {
        let words = line.split(' ').filter(|word| {
            !word.starts_with("time.busy=")
                && !word.starts_with("time.idle=")
                && !word.contains("limits.toml")
        });
        words.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(timeless).collect()
}

/// The key of a request, as code makes it for this path.
fn key_in(path: &str, request: Request<Body>) -> Key {
    let key = key_of(path).1.extract(&request.into_parts().0);
    key.expect("a key")
}

fn around(seed: u64) -> Around {
    [Around::Timeout, Around::Fallback, Around::Resilient][seed as usize % 3]
}

fn check_story(other: Side, seed: u64, steps: usize) -> Vec<String> {
    let is_blind = other == Side::Call;
    let [layer, other] = [Side::Layer, other].map(|side| {
        paused_runtime().block_on(async {
            let mut story = Story::begin((side, is_blind), seed);
            let mut random = Random::new(seed);
            let mut told = Vec::with_capacity(steps);
            for _ in 0..steps {
                told.push(story.step(&mut random).await);
            }
            told
        })
    });
    for (step, (layer, other)) in layer.iter().zip(&other).enumerate() {
        let case = format!("seed {seed}, {:?}, step {step}", around(seed));
        let both = format!("--- layer\n{layer}\n--- the other\n{other}");
        let [layer, other] = [layer, other].map(|told| without_waits(told));
        assert!(layer == other, "{case}:\n{both}");
    }
    other
}

/// What was told, without the time of a denial by a fallback, which is spread by chance.
fn without_waits(told: &str) -> String {
    if !told.contains("#temporary-reduced-capacity") {
        return told.to_owned();
    }
    let parts = [
        "(\"retry-after\", \"",
        "\\\"retry-after\\\":",
        "retry_after_seconds=",
        "again in ",
    ];
    parts.iter().fold(told.to_owned(), |told, part| {
        let mut rest = told.split(part);
        let first = rest.next().unwrap_or_default().to_owned();
        rest.fold(first, |all, next| {
            let is_number = |it: char| it.is_ascii_digit() || it == '.';
            all + part + next.trim_start_matches(is_number)
        })
    })
}

/// 10,000 requests, and all that can become of one.
#[test]
fn in_memory() {
    let mut told = Vec::new();
    for seed in 0..75 {
        told.extend(check_story(Side::Check, seed, 200));
    }
    let of = |what: &str| told.iter().filter(|step| step.contains(what)).count();
    let asked = of(": admitted: ") + of(": refused: ");
    assert!(asked >= 10_000, "{asked}");
    for (what, least) in [
        ("Allowed, Local", 300),
        ("Allowed, Fallback", 50),
        ("admitted: None None", 300),
        ("refused: 429", 100),
        ("refused: 503", 20),
        ("refunded: Ok(1)", 10),
        ("reset: Ok(true)", 1),
        ("Ok(()) [\"", 5),
        (" WARN ", 10),
    ] {
        assert!(of(what) >= least, "{what}: {}", of(what));
    }
}

/// 10,000 histories of requests, checks and calls in the long form.
#[test]
fn calls_in_memory() {
    let histories = std::env::var("TIDEGATE_HISTORIES").map_or(Ok(75), |number| number.parse());
    for seed in 0..histories.expect("a number") {
        let steps = if seed < 75 { 200 } else { 20 };
        check_story(Side::Call, seed, steps);
        check_story(Side::Check, seed, steps.min(20));
    }
}
