//! What rules answer on all stores, beside what else they may say: `calendar`, `charges`, `permits`,
//! `holds`, `lockouts` and `subjects` of `tests/vectors`, which are written anew as the others are.
//!
//! ```text
//! let a = max-count = 9               `$a` in rules, for the whole file
//! == a name of a case                 it begins with nothing
//! begin 1795737600                    seconds since 1970 of its instants, which may be in hours: 9h
//! processes 2                         of them one has a fallback, in `outages`
//! rules.p = { .. }                    TOML: these rules, from now on. Each `$algorithm` in turn, or
//!                                     each `$counting` one
//! at 1 take p k 2 plan pro         -> the answer; `as v`: by a plan of the quotas of the rule `v`
//! at 1 look p a=k,b=l              -> the answer, of the keys of several subjects
//! at 2 refund #1                   -> units given back of the take with this number
//! at 2 settle #1 5                 -> units charged, given back and forgiven
//! at 2 fail #1                     -> after how many more failures its key is locked out
//! at 2 fails p k 3                 -> the same of so many takes
//! at 2 takes p k 3                 -> how many of so many takes are allowed
//! at 2 succeed #1
//! at 2 end #1                      -> its permit goes back
//! at 2 reset p k                   -> whether something counted
//! at 2 hold p k 60, raise p k 2 60, block p k 60, let p k 60
//! at 2 call p k 9 used 5 answer 304   a turn at this cost, what is said of it, also `failed`, and
//!                                     what a look shows then
//! at 2 fails, works                   the store behind a fallback does so
//! ```

use kit::clocked::{Clocked, Stores};
use tidegate::layer::{Admitted, Call, SubjectKeys};
use tidegate::rule::Plan;
use tidegate::store::{Attempts, Capabilities};

use super::*;
use crate::wrappers::{FlakyStore, Mode};

/// A case, on a store.
struct Play<'a> {
    on: &'a Clocked,
    /// Begins its keys, which are no other case's.
    name: &'a str,
    begin: u64,
    limits: Option<Limits>,
    admitted: Vec<Admitted>,
    /// Algorithms differ in times, which are not told then.
    tells_times: bool,
    /// The store behind a fallback.
    behind: Option<&'a FlakyStore>,
}

impl Play<'_> {
    fn limits(&self) -> &Limits {
        self.limits.as_ref().expect("rules before the first step")
    }

    fn key(&self, text: &str) -> Key {
        Key::from(self.name).with(text)
    }

    fn keys(&self, words: &str) -> SubjectKeys {
        let subjects = words.split(',').filter_map(|it| it.split_once('='));
        let mut subjects = subjects.peekable();
        match subjects.peek() {
            None => self.key(words).into(),
            Some(_) => subjects
                .map(|(name, text)| (name, self.key(text)))
                .collect(),
        }
    }

    fn rules(&mut self, text: &str) {
        match &self.limits {
            None => {
                let limits = Limits::from_toml(text).unwrap_or_else(|it| panic!("{it}\n{text}"));
                self.limits = Some(limits.store(Arc::clone(&self.on.store)));
            }
            Some(limits) => limits
                .rules()
                .replace(Rules::from_toml(text).expect("valid")),
        }
    }

    fn taking(&self, path: &str, key: &str, more: &[&str]) -> Call {
        let check = self.limits().check(path, self.keys(key));
        match more {
            [] => check,
            ["plan", plan, rest @ ..] => self.taking(path, key, rest).plan(plan),
            ["as", other, rest @ ..] => {
                let rules = self.limits().rules().load();
                let policies = rules.get(other).expect("a rule").policies().to_vec();
                let plan = Plan::of(policies).expect("valid");
                self.taking(path, key, rest).plan_value(plan)
            }
            [cost, rest @ ..] => self.taking(path, key, rest).cost(integer(cost)),
        }
    }

    fn one(&self, number: &str) -> &Admitted {
        let at = integer(number.trim_start_matches('#')) as usize;
        let one = self.admitted.get(at - 1);
        one.unwrap_or_else(|| panic!("{number} was not admitted"))
    }

    fn charge(&self, number: &str) -> &Charge {
        self.one(number).charge.as_ref().expect("it was charged")
    }

    async fn answer(&mut self, words: &[&str]) -> String {
        let time = |seconds: &str| Duration::from_micros(micros(seconds));
        match words {
            ["take", path, key, more @ ..] => match self.taking(path, key, more).await {
                Ok(admitted) => {
                    let told = admitted.decision.as_ref().map(|it| self.told(it));
                    self.admitted.push(admitted);
                    let number = self.admitted.len();
                    format!("#{number} {}", told.unwrap_or("by nobody".to_owned()))
                }
                Err(refused) => match refused.decision() {
                    Some(decision) => self.told(decision),
                    None => refused.to_string(),
                },
            },
            ["takes", path, key, times, more @ ..] => {
                let mut allowed = 0;
                for _ in 0..integer(times) {
                    let taken = self.taking(path, key, more).await.ok();
                    allowed += usize::from(taken.is_some());
                    self.admitted.extend(taken);
                }
                format!("{allowed} allowed")
            }
            ["look", path, key] => {
                let look = self.limits().peek(path, self.keys(key)).await;
                self.told(&look.expect("an answer").expect("a rule"))
            }
            ["refund", number] => {
                let back = self.charge(number).refund().await;
                back.expect("an answer").to_string()
            }
            // Of a part, which only the store can be asked for.
            ["refund", number, units] => {
                let charge = self.charge(number);
                let take = charge.take().clone().with_cost(integer(units));
                let back = charge.store().refund(&take, &charge.receipt()).await;
                back.expect("an answer").to_string()
            }
            ["settle", number, used] => {
                let settled = self.charge(number).settle(integer(used)).await;
                let it = settled.expect("an answer");
                format!(
                    "{} charged, {} given back, {} forgiven",
                    it.charged, it.given_back, it.forgiven
                )
            }
            ["fail", number] => match self.charge(number).tell_failure().await {
                Ok(Some(Attempts::Left(left))) => format!("{left} left"),
                Ok(Some(_)) => "locked out".to_owned(),
                Ok(None) => "nothing counts".to_owned(),
                Err(error) => error.to_string(),
            },
            ["fails", path, key, times, more @ ..] => {
                let mut told = Vec::new();
                for _ in 0..integer(times) {
                    let step = [&["take", path, key], more].concat();
                    let taken = Box::pin(self.answer(&step)).await;
                    let number = format!("#{}", self.admitted.len());
                    told.push(match taken.starts_with('#') {
                        true => Box::pin(self.answer(&["fail", &number])).await,
                        false => taken.split(';').next().unwrap_or_default().to_owned(),
                    });
                }
                let look = self.limits().peek(path, self.keys(key)).await;
                let look = look.expect("an answer").expect("a rule");
                if let Some(last) = told.last_mut().filter(|it| *it == "locked out") {
                    *last = self.told_wait(last, &look);
                }
                let alike = told.chunk_by(|one, other| one == other);
                let alike = alike.map(|all| match all.len() {
                    1 => all[0].clone(),
                    times => format!("{} ({times} times)", all[0]),
                });
                alike.collect::<Vec<_>>().join(", ")
            }
            ["succeed", number] => {
                self.charge(number).succeeded();
                String::new()
            }
            ["end", number] => {
                let charge = self.charge(number).clone();
                let at = integer(&number[1..]) as usize;
                let look = async || {
                    let look = charge.store().peek(charge.take()).await;
                    look.expect("an answer").quotas().to_vec()
                };
                let before = look().await;
                drop(self.admitted[at - 1].permit.take());
                kit::eventually("it is back", async || look().await != before).await;
                String::new()
            }
            ["reset", path, key] => {
                let reset = self.limits().reset(path, self.keys(key)).await;
                reset.map_or_else(|error| format!("{:?}", error.kind()), |it| it.to_string())
            }
            ["hold", path, key, seconds] => {
                let held = self.limits().hold(path, self.key(key), time(seconds));
                let held = held.await.expect("an answer");
                format!("for {}", self::seconds(held.as_micros() as i64))
            }
            ["call", path, key, cost, said @ ..] => {
                let outgoing = self.limits().outgoing(path).cost(integer(cost));
                let mut turn = match outgoing.ready(self.key(key)).await {
                    Ok(turn) => turn,
                    Err(refused) => return self.told(refused.decision().expect("a denial")),
                };
                let (said, has_failed) = match said {
                    [said @ .., "failed"] => (said, true),
                    said => (said, false),
                };
                for said in said.chunks(2) {
                    match said {
                        ["used", units] => turn.settle(integer(units)),
                        ["answer", status] => {
                            let status = StatusCode::from_bytes(status.as_bytes());
                            turn.observe_response(status.expect("a status"), &HeaderMap::new());
                        }
                        _ => panic!("{said:?}"),
                    }
                }
                match has_failed {
                    true => turn.failed(),
                    false => drop(turn),
                }
                assert!(self.limits().flush(PATIENT).await);
                let look = Box::pin(self.answer(&["look", path, key])).await;
                format!("a turn; then {look}")
            }
            ["raise", path, key, factor, seconds] => {
                let (factor, key) = (factor.parse().expect("a factor"), self.keys(key));
                let raised = self.limits().raise(path, key, factor, time(seconds), "ops");
                raised.replace().await.expect("it can be raised");
                String::new()
            }
            [what @ ("block" | "let"), path, key, seconds] => {
                let (key, time, limits) = (self.keys(key), time(seconds), self.limits());
                let done = match *what {
                    "block" => limits.block(path, key, time, "ops"),
                    _ => limits.let_through(path, key, time, "ops"),
                };
                done.await.expect("it can be");
                String::new()
            }
            [what @ ("fails" | "works")] => {
                let store = self.behind.expect("a store behind a fallback");
                store.set(match *what {
                    "fails" => Mode::Fails(StoreErrorKind::Timeout),
                    _ => Mode::Works,
                });
                String::new()
            }
            _ => panic!("no step: {words:?}"),
        }
    }

    fn told_wait(&self, verdict: &str, decision: &Decision) -> String {
        let by_fallback = decision.source() == Source::Fallback;
        // An operator's time is that of the machine.
        let is_told = self.tells_times && decision.source() != Source::Operator;
        match decision.retry_after().filter(|_| is_told) {
            // A fallback sends nobody away for long, and at random.
            Some(wait) if by_fallback && wait <= 6 * SECOND => format!("{verdict} for now"),
            Some(wait) => format!("{verdict} for {}", seconds(wait.as_micros() as i64)),
            None => verdict.to_owned(),
        }
    }

    fn told(&self, decision: &Decision) -> String {
        let source = decision.source();
        let verdict = match decision.verdict() {
            Verdict::Allowed => "allowed",
            Verdict::Denied { .. } => "denied",
            Verdict::Busy { .. } => "busy",
            Verdict::OnHold { .. } => "on hold",
            Verdict::LockedOut { .. } => "locked out",
            Verdict::Never => "never",
            other => panic!("{other:?}"),
        };
        let mut told = self.told_wait(verdict, decision);
        for (is_so, what) in [
            (
                decision.is_locked_out() && verdict != "locked out",
                "locked out",
            ),
            (decision.is_reduced(), "reduced"),
            (source == Source::Operator, "by an operator"),
            (source == Source::Fallback, "by the fallback"),
        ] {
            told += &if is_so {
                format!(", {what}")
            } else {
                String::new()
            };
        }
        for quota in decision.quotas() {
            told += &format!("; {} left", quota.remaining());
            told += if quota.is_exceeded() { ", denies" } else { "" };
            if self.tells_times && ![Source::Fallback, Source::Operator].contains(&source) {
                let whole_in = quota.reset_after().as_micros() as i64;
                told += &format!(", whole in {}", seconds(whole_in));
            }
        }
        told
    }
}

/// Tells each line of a case, and it with the answer of this store.
async fn play(
    case: &str,
    lets: &[(&str, &str)],
    (on, behind): &(Clocked, Option<FlakyStore>),
    algorithm: Option<Algorithm>,
    mut tell: impl FnMut(&str, &str),
) {
    let name = format!("{} {algorithm:?}", case.lines().next().expect("its name"));
    let mut play = Play {
        on,
        name: &name,
        begin: START,
        limits: None,
        admitted: Vec::new(),
        tells_times: algorithm.is_none(),
        behind: behind.as_ref(),
    };
    let mut rules = String::new();
    for line in case.lines() {
        let asked = line.split(" -> ").next().unwrap_or_default().trim_end();
        let words: Vec<_> = asked.split(' ').collect();
        match words[..] {
            ["begin", seconds] => play.begin = micros(seconds),
            ["at", instant, ref step @ ..] => {
                if !rules.is_empty() {
                    let algorithm = algorithm.map_or("", Algorithm::name);
                    let rules = std::mem::take(&mut rules).replace("$counting", algorithm);
                    let rules = rules.replace("$algorithm", algorithm);
                    play.rules(&lets.iter().fold(rules, |rules, (name, is)| {
                        rules.replace(&format!("${name}"), is)
                    }));
                }
                let instant = play.begin
                    + match instant.strip_suffix('h') {
                        Some(hours) => 3_600 * micros(hours),
                        None => micros(instant),
                    };
                if behind.is_some() {
                    let passed = instant.saturating_sub(on.clock.now().max(play.begin));
                    tokio::time::advance(Duration::from_micros(passed)).await;
                }
                on.clock.set(instant);
                let answer = play.answer(step).await;
                assert!(play.limits().flush(PATIENT).await, "{line}");
                match answer.is_empty() {
                    true => tell(line, asked),
                    false => tell(line, &format!("{asked:<36} -> {answer}")),
                }
                continue;
            }
            _ if line.starts_with("rules.") || line.starts_with("    ") => {
                rules += &format!("{line}\n");
            }
            _ => {}
        }
        tell(line, line);
    }
}

/// Plays a file on stores, which may be made for each case.
async fn answers_are_those_of(
    file: &str,
    stores: impl Fn(&str) -> Vec<(Clocked, Option<FlakyStore>)>,
) {
    let path = kit::root().join(format!("tests/vectors/{file}.txt"));
    let text = fs::read_to_string(&path).expect("a file of vectors");
    let lets = text
        .lines()
        .filter_map(|it| it.strip_prefix("let ")?.split_once(" = "));
    let lets: Vec<_> = lets.collect();
    let (mut written, is_update) = (String::new(), std::env::var("TIDEGATE_UPDATE").is_ok());
    for case in text.split_inclusive("\n\n") {
        let algorithms = match case {
            case if case.contains("$algorithm") => Algorithm::ALL.map(Some).to_vec(),
            case if case.contains("$counting") => kit::COUNTING.map(Some).to_vec(),
            _ => vec![None],
        };
        for (at, on) in stores(case).iter().enumerate() {
            for algorithm in &algorithms {
                let is_first = at == 0 && *algorithm == algorithms[0];
                // What a wrapper has heard of a denial is told again, with what was left then.
                let part = |line: &str| match at < 2 {
                    true => line.to_owned(),
                    false => line.split(';').next().unwrap_or_default().to_owned(),
                };
                let name = case.lines().next().unwrap_or_default();
                let tell = |line: &str, told: &str| match is_update {
                    true if is_first => written += &format!("{told}\n"),
                    true => {}
                    false => {
                        let of = format!("{} {algorithm:?}: {file}.txt, {name}", on.0.name);
                        assert_eq!(part(told), part(line), "{of}");
                    }
                };
                play(case, &lets, on, *algorithm, tell).await;
            }
        }
    }
    if !written.is_empty() {
        fs::write(&path, written).expect("is written");
    }
}

async fn on_all_stores(file: &str) {
    let stores = Stores::start().await;
    let clone = |it: &Clocked| Clocked {
        name: it.name,
        store: Arc::clone(&it.store),
        clock: it.clock.clone(),
    };
    let all = |_: &str| stores.all.iter().map(|it| (clone(it), None)).collect();
    answers_are_those_of(file, all).await;
}

#[tokio::test]
async fn calendar() {
    on_all_stores("calendar").await;
}

#[tokio::test]
async fn charges() {
    on_all_stores("charges").await;
}

#[tokio::test]
async fn permits() {
    on_all_stores("permits").await;
}

#[tokio::test]
async fn holds() {
    on_all_stores("holds").await;
}

#[tokio::test]
async fn lockouts() {
    on_all_stores("lockouts").await;
}

#[tokio::test]
async fn subjects() {
    on_all_stores("subjects").await;
}

/// In memory, behind a fallback of one of so many processes.
#[tokio::test(start_paused = true)]
async fn outages() {
    let wrapped = |case: &str| {
        let processes = case.lines().find_map(|it| it.strip_prefix("processes "));
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().clock(clock.clone());
        let behind = FlakyStore::around(memory(), Mode::Works);
        let inner = Stub::around(behind.clone()).capabilities_fn(|_| {
            let mut capabilities = Capabilities::default();
            (capabilities.calendar, capabilities.joint) = (true, true);
            capabilities
        });
        let store = Resilient::bare(inner).processes(processes.map_or(1, integer) as u32);
        let store = Arc::new(store.fallback_store(memory()));
        let on = Clocked {
            name: "a fallback",
            store,
            clock: clock.clone(),
        };
        vec![(on, Some(behind))]
    };
    answers_are_those_of("outages", wrapped).await;
}
