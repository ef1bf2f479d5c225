//! Random histories of calls that wait, run, give back and are aborted while their rule is
//! replaced, in paused time, in memory and on Redis: each is admitted as the rule of its last
//! question allows, nobody waits beyond its patience, a change is heard within a second, and all
//! are served at last. Nobody who costs as much or more passes one that has waited for a window,
//! and lanes share alike.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use kit::clocked::clock_at;
use kit::random::{Random, of_the_run};
use kit::steps::number_of_histories;
use kit::{Redis, paused_runtime};
use tidegate::Limits;
use tidegate::store::{Ask, Capabilities, Change};
use tokio::task::LocalSet;

use crate::*;

/// The time of the server when a history begins, in microseconds.
const BEGIN: u64 = 1_800_000_000_000_000;

/// What is in force.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Now {
    Limited { max: u64, at_a_time: Option<u64> },
    Shadow,
    Off,
    Gone,
}

impl Now {
    fn any(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Shadow,
            1 => Self::Off,
            2 => Self::Gone,
            _ => Self::Limited {
                max: random.below(6),
                at_a_time: (random.below(3) == 0).then(|| 1 + random.below(3)),
            },
        }
    }

    fn rules(self) -> Rules {
        let of = |max| {
            let rule = owned_rule("p", max, SECOND).with_algorithm(Algorithm::SlidingLog);
            let rule = rule.with_refund_on(["error"]).expect("an outcome");
            let double = Quotas::of_fair_weight(2).expect("a weight");
            rule.with_plan("2", double).expect("a plan")
        };
        let some = |rule: Rule| Rules::from([rule]);
        match self {
            Self::Limited { max, at_a_time } => some(match at_a_time {
                Some(at_a_time) => of(max).with_max_concurrent(at_a_time).expect("permits"),
                None => of(max),
            }),
            Self::Shadow => some(of(1).into_shadow()),
            Self::Off => some(of(1)).enabled(false),
            Self::Gone => Rules::default(),
        }
    }
}

/// A call that was admitted under a rule that limits.
struct Admitted {
    at: Instant,
    cost: u64,
    is_given_back: Rc<Cell<bool>>,
    /// If it has a permit.
    runs: Option<Rc<Cell<bool>>>,
}

struct World {
    limits: Limits,
    now: Cell<(Now, Instant)>,
    admitted: RefCell<Vec<Admitted>>,
    waiting: RefCell<Vec<Waiting>>,
    /// Whether calls say their lanes.
    has_lanes: bool,
    lanes: Vec<String>,
    /// How much more one lane was served and kept than another one was served, by both, in halves by
    /// the weights of plans, while calls of both waited.
    ahead: RefCell<HashMap<(u64, u64), i64>>,
    /// Who was admitted before an older one that has waited for a window.
    passed: RefCell<Vec<(Instant, Waiting, Waiting)>>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    came: Instant,
    cost: u64,
    lane: u64,
    weight: i64,
}

impl Waiting {
    fn step(&self) -> i64 {
        2 * self.cost.max(1) as i64 / self.weight
    }
}

/// Another store, on a runtime of its own. The time of the test stands still while it is asked.
#[derive(Debug)]
struct Elsewhere {
    store: Arc<dyn Store>,
    clock: ManualClock,
    began: Instant,
    runtime: tokio::runtime::Handle,
}

impl Elsewhere {
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let passed = self.began.elapsed().as_micros() as u64;
        self.clock.set(BEGIN + passed);
        let (store, runtime) = (Arc::clone(&self.store), self.runtime.clone());
        let asked = tokio::task::spawn_blocking(move || {
            runtime.block_on(async { question(&*store).await })
        });
        StoreFuture::boxed(async { asked.await.expect("no panic") })
    }
}

impl Store for Elsewhere {
    fn take(&self, take: &Ask) -> StoreFuture<Decision> {
        let take = take.clone();
        self.ask(move |store| store.take(&take))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let (ask, change) = (ask.clone(), change.clone());
        self.ask(move |store| store.change(&ask, &change))
    }

    fn name(&self) -> String {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

impl World {
    fn new(store: impl Store, has_lanes: bool, lanes: Vec<String>) -> Self {
        let now = Now::Limited {
            max: 3,
            at_a_time: None,
        };
        Self {
            limits: Limits::new(now.rules()).store(store),
            now: Cell::new((now, Instant::now())),
            admitted: RefCell::default(),
            waiting: RefCell::default(),
            has_lanes,
            lanes,
            ahead: RefCell::default(),
            passed: RefCell::default(),
        }
    }

    fn replace(&self, now: Now) {
        self.now.set((now, Instant::now()));
        self.limits.rules().replace(now.rules());
        self.ahead.borrow_mut().clear();
    }

    /// Whose turn it was when this one was admitted.
    fn check_turn(&self, one: Waiting) {
        let (now, (rule, since)) = (Instant::now(), self.now.get());
        let Now::Limited { max, at_a_time } = rule else {
            return;
        };
        let is_of_rule = |it: &Waiting| now - since.max(it.came) > SECOND + millis(2);
        let waiting = self.waiting.borrow();
        let passed = waiting.iter().find(|it| {
            let is_older = it.came < one.came && is_of_rule(it);
            it.lane == one.lane && is_older && it.cost <= one.cost.min(max)
        });
        // Several may be woken at a time, in whatever order they are polled.
        if let Some(passed) = passed.filter(|_| at_a_time.is_none()) {
            self.passed.borrow_mut().push((now, one, *passed));
        }
        // After a reload each asks once for itself.
        let is_asking = now - since <= SECOND + millis(2);
        if !self.has_lanes || at_a_time.is_some() || is_asking {
            return;
        }
        let mut ahead = self.ahead.borrow_mut();
        let waits = |lane| waiting.iter().any(|it| it.lane == lane && it.cost <= max);
        for lane in (0..3).filter(|lane| *lane != one.lane) {
            *ahead.entry((one.lane, lane)).or_default() += one.step();
            *ahead.entry((lane, one.lane)).or_default() -= one.step();
        }
        ahead.retain(|(one, other), _| waits(*one) && waits(*other));
        let farthest = ahead.iter().find(|(_, halves)| **halves > 8);
        assert!(farthest.is_none(), "{farthest:?} {waiting:?}");
    }

    /// Its lane gets back what it has paid, if others wait on.
    fn gives_back(&self, one: Waiting) {
        for ((lane, _), ahead) in self.ahead.borrow_mut().iter_mut() {
            if *lane == one.lane {
                *ahead -= one.step();
            }
        }
    }

    /// The handler begins within the poll that heard the decision, so under the rule of that.
    fn admits(&self, cost: u64) -> (Rc<Cell<bool>>, Rc<Cell<bool>>) {
        let (at, mut admitted) = (Instant::now(), self.admitted.borrow_mut());
        let (is_given_back, runs) = (Rc::default(), Rc::new(Cell::new(true)));
        let Now::Limited { max, at_a_time } = self.now.get().0 else {
            return (is_given_back, runs);
        };
        let counts = |one: &&Admitted| at - one.at < SECOND && !one.is_given_back.get();
        let used: u64 = admitted.iter().filter(counts).map(|one| one.cost).sum();
        assert!(max > 0 && used + cost <= max, "{used} and {cost} of {max}");
        let with_permit = admitted.iter().filter_map(|one| one.runs.as_ref());
        let running = with_permit.filter(|runs| runs.get()).count() as u64;
        let is_right = at_a_time.is_none_or(|most| running < most);
        assert!(is_right, "{running} run, of {at_a_time:?}");
        admitted.push(Admitted {
            at,
            cost,
            is_given_back: Rc::clone(&is_given_back),
            runs: at_a_time.map(|_| Rc::clone(&runs)),
        });
        (is_given_back, runs)
    }

    /// One call from its arrival to its end.
    async fn call(self: Rc<Self>, number: u64, mut random: Random) {
        let (cost, patience) = (random.below(3), millis(random.below(5_000)));
        let (takes, fails) = (millis(random.below(400)), random.below(3) == 0);
        let came = Instant::now();
        let lane = if self.has_lanes { random.below(3) } else { 0 };
        let one = Waiting {
            number,
            came,
            cost,
            lane,
            weight: 1 + i64::from(random.is(50)),
        };
        self.waiting.borrow_mut().push(one);
        let leaves = Leaves(&self, number);
        let mut call = self.limits.call("p").cost(cost).wait(patience);
        if self.has_lanes {
            call = call.fair_by(self.lanes[lane as usize].as_str());
        }
        if one.weight > 1 {
            call = call.plan("2");
        }
        let ran = call.try_run(async || {
            drop(leaves);
            // A call without patience may not wait, and asks for itself.
            if !patience.is_zero() {
                self.check_turn(one);
            }
            let (is_given_back, runs) = self.admits(cost);
            // Whoever is aborted gives its permit back, and no units.
            let _ends = Ends(Rc::clone(&runs));
            sleep(takes).await;
            is_given_back.set(fails);
            if fails {
                self.gives_back(one);
            }
            if fails { Err(()) } else { Ok(()) }
        });
        let denied = match ran.await {
            Ok(()) | Err(CallError::Inner(())) => false,
            Err(CallError::Denied(_)) => true,
            Err(other) => panic!("{other:?}"),
        };
        let waited = came.elapsed();
        assert!(!denied || waited <= patience + millis(10), "{waited:?}");
    }

    /// Whom nothing limits any more does not wait on.
    fn assert_heard(&self) {
        let mut passed = self.passed.borrow_mut();
        let waits = |one: Waiting| {
            self.waiting
                .borrow()
                .iter()
                .any(|it| it.number == one.number)
        };
        let wrong = passed
            .iter()
            .find(|(at, _, it)| at.elapsed() > millis(1) && waits(*it));
        assert!(wrong.is_none(), "the first passes the second: {wrong:?}");
        passed.retain(|(at, ..)| at.elapsed() <= millis(1));
        let (now, since) = self.now.get();
        if matches!(now, Now::Limited { .. }) || since.elapsed() < SECOND + millis(10) {
            return;
        }
        let mut waiting = self.waiting.borrow_mut();
        assert!(waiting.is_empty(), "{now:?} for a second: {waiting:?}");
        waiting.clear();
    }
}

/// Takes a call out of those that wait.
struct Leaves<'a>(&'a World, u64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.borrow_mut();
        waiting.retain(|it| it.number != self.1);
    }
}

struct Ends(Rc<Cell<bool>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

async fn history(mut random: Random, store: impl Store, lanes: Vec<String>) {
    let (has_lanes, mut tasks) = (random.is(50), Vec::new());
    let world = Rc::new(World::new(store, has_lanes, lanes));
    for number in 0..40 {
        match random.below(8) {
            0 => world.replace(Now::any(&mut random)),
            1 if !tasks.is_empty() => {
                let at = random.below(tasks.len() as u64) as usize;
                let task: tokio::task::JoinHandle<()> = tasks.swap_remove(at);
                task.abort();
            }
            _ => {
                let call = Rc::clone(&world).call(number, Random::new(random.below(u64::MAX)));
                tasks.push(tokio::task::spawn_local(call));
            }
        }
        sleep(millis(random.below(8) * random.below(60))).await;
        world.assert_heard();
    }
    world.replace(Now::Limited {
        max: 1_000,
        at_a_time: None,
    });
    sleep(SECOND + millis(10)).await;
    let waiting = world.waiting.borrow().clone();
    assert!(waiting.is_empty(), "there is room: {waiting:?}");
    for task in tasks {
        task.await.expect("lawful");
    }
}

fn histories<S: Store>(own: u64, store: impl Fn(u64) -> S) {
    let lanes = paused_runtime().block_on(crate::lanes::tenants(3));
    for number in 0..number_of_histories(own) {
        let play = std::panic::AssertUnwindSafe(|| {
            let tasks = LocalSet::new();
            let history =
                async { history(Random::new(number), store(number), lanes.clone()).await };
            tasks.block_on(&paused_runtime(), history);
        });
        let is_lawful = std::panic::catch_unwind(play).is_ok();
        let seed = of_the_run();
        assert!(
            is_lawful,
            "history {number}; TIDEGATE_SEED={seed} plays it again"
        );
    }
}

#[test]
fn each_is_admitted_by_the_rule_of_its_last_question() {
    histories(2_000, |_| MemoryStore::new().tokio_clock());
}

#[test]
fn the_same_on_redis() {
    let (server, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let store = runtime.block_on(async {
        let store = RedisStore::connect(&server.url).await.expect("a server");
        store.timeout(PATIENT)
    });
    histories(40, |number| {
        let clock = clock_at(BEGIN);
        let store = store.clone().prefix(format!("{number}:"));
        Elsewhere {
            store: Arc::new(store.clock(clock.clone())),
            clock,
            began: Instant::now(),
            runtime: runtime.handle().clone(),
        }
    });
}
