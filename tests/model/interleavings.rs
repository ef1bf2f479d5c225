//! The in-memory store between the turns of its threads: `tests/model.sh` runs it.
//!
//! `shuttle` decides at every lock, counter and look at the clock which thread goes on. The
//! smallest cases are tried in every order there is, the others in thousands of random ones. A
//! deadlock fails the test, too. Atomics are taken as sequentially consistent: what their weaker
//! orderings allow is not tried.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use shuttle::thread;
use tidegate::decision::Receipt;
use tidegate::key::Everyone;
use tidegate::rule::Subject;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Decision, Key, MemoryStore, Quota, Rule, Store, StoreError, Take};

/// In microseconds.
const WINDOW: u64 = 10_000;

/// Two of these are more than a window, and than what any algorithm adds to it.
const STEP: u64 = 7_000;

/// Which keys share a shard is chance, and differs from process to process: each test runs with so
/// many sets of keys.
const SETS: usize = 10;

/// For each set.
const RANDOM: usize = 100;

/// For each set: few threads have their way by turns, which finds what needs few but well placed
/// interruptions.
const BY_PRIORITY: usize = 40;

/// In random orders.
fn often(test: impl Fn(usize) + Copy + Send + Sync + 'static) {
    for set in 0..SETS {
        shuttle::check_random(move || test(set), RANDOM);
        shuttle::check_pct(move || test(set), BY_PRIORITY, 3);
    }
}

/// In all orders. One set suffices for one key.
fn always(sets: usize, test: impl Fn(usize) + Copy + Send + Sync + 'static) {
    for set in 0..sets {
        shuttle::check_dfs(move || test(set), None);
    }
}

/// The same by each algorithm.
fn often_by(
    algorithms: impl IntoIterator<Item = Algorithm>,
    test: impl Fn(usize, Algorithm) + Copy + Send + Sync + 'static,
) {
    for algorithm in algorithms {
        often(move |set| test(set, algorithm));
    }
}

fn always_by(
    algorithms: impl IntoIterator<Item = Algorithm>,
    test: impl Fn(usize, Algorithm) + Copy + Send + Sync + 'static,
) {
    for algorithm in algorithms {
        always(1, move |set| test(set, algorithm));
    }
}

/// A store, its clock, and a rule.
#[derive(Clone)]
struct Gate {
    store: Arc<MemoryStore>,
    clock: ManualClock,
    rule: Arc<Rule>,
    set: usize,
}

/// A take that was charged.
#[derive(Debug, Clone, PartialEq)]
struct Charge {
    key: &'static str,
    receipt: Receipt,
}

impl Gate {
    /// For so many keys, each with so many units a window.
    fn new(set: usize, algorithm: Algorithm, max: u64, max_keys: usize) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::with_max_keys(max_keys).clock(clock.clone());
        let quota = Quota::new(Duration::from_micros(WINDOW), max).expect("a valid quota");
        let rule = Rule::new("p", [quota]).expect("a valid rule");
        Self {
            store: Arc::new(store),
            clock,
            rule: Arc::new(rule.with_algorithm(algorithm)),
            set,
        }
    }

    fn of(&self, key: &str, cost: u64) -> Take {
        let key = format!("{key}{}", self.set);
        Take::new(self.rule.clone(), Key::from(&*key)).with_cost(cost)
    }

    fn ask(&self, key: &str, cost: u64) -> Result<Decision, StoreError> {
        let take = self.of(key, cost);
        let answer = self.store.take(&take).now_or_never();
        answer.expect("memory answers at once")
    }

    /// What is charged for these takes of one unit, one after the other; there need not be room for
    /// their keys.
    fn charge(&self, keys: &[&'static str]) -> Vec<Charge> {
        let charge = |key: &&'static str| match self.ask(key, 1) {
            Ok(decision) => decision.receipt().map(|receipt| Charge { key, receipt }),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Full);
                None
            }
        };
        keys.iter().filter_map(charge).collect()
    }

    /// The same in a thread of its own.
    fn charging(&self, keys: &'static [&'static str]) -> thread::JoinHandle<Vec<Charge>> {
        let gate = self.clone();
        thread::spawn(move || gate.charge(keys))
    }

    /// The units that come back.
    fn refund(&self, charge: Charge) -> u64 {
        let take = self.of(charge.key, charge.receipt.units());
        let refund = self.store.refund(&take, &charge.receipt).now_or_never();
        let units = refund.expect("memory answers at once");
        units.expect("memory does not fail")
    }

    fn refunding(&self, charge: Charge) -> thread::JoinHandle<u64> {
        let gate = self.clone();
        thread::spawn(move || gate.refund(charge))
    }

    /// Moves the clock on, and counts the keys each time.
    fn ageing(&self, steps: u64) -> thread::JoinHandle<Vec<usize>> {
        let gate = self.clone();
        thread::spawn(move || (0..steps).map(|_| gate.age()).collect())
    }

    fn age(&self) -> usize {
        self.clock.set(self.clock.now() + STEP);
        self.store.len()
    }

    /// At the end every key that counts is known to the store, and no other.
    fn expect_held(&self, charges: &[Charge]) {
        let now = self.clock.now();
        let counts = |charge: &&Charge| charge.receipt.stamp() + WINDOW > now;
        let keys: BTreeSet<_> = charges.iter().filter(counts).map(|it| it.key).collect();
        assert_eq!(self.store.len(), keys.len(), "{keys:?} of {charges:?}");
    }

    /// Nothing is left behind once all is over, and there is room for so many keys as at first.
    fn expect_whole(&self, max_keys: usize) {
        self.clock.set(self.clock.now() + 10 * WINDOW);
        assert_eq!(self.store.len(), 0, "keys are left behind");
        let charges = self.charge(&["v", "w", "x", "y", "z"]);
        assert_eq!(charges.len(), max_keys, "{charges:?}");
    }
}

fn join<T>(threads: impl IntoIterator<Item = thread::JoinHandle<Vec<T>>>) -> Vec<T> {
    let join = |thread: thread::JoinHandle<Vec<T>>| thread.join().expect("no panic");
    threads.into_iter().flat_map(join).collect()
}

/// Law 1: no window holds more than max takes of a key.
fn expect_law_1(charges: &[Charge], max: usize) {
    for last in charges {
        let in_window = charges.iter().filter(|it| {
            let stamps = it.receipt.stamp()..it.receipt.stamp() + WINDOW;
            it.key == last.key && stamps.contains(&last.receipt.stamp())
        });
        assert!(in_window.count() <= max, "{charges:?}");
    }
}

fn max_is_shared(set: usize, algorithm: Algorithm, max: usize, threads: usize) {
    let gate = Gate::new(set, algorithm, max as u64, 10);
    let threads: Vec<_> = (0..threads).map(|_| gate.charging(&["a", "a"])).collect();
    assert_eq!(join(threads).len(), max);
    assert!(gate.ask("a", 1).is_ok_and(|last| !last.is_allowed()));
    assert_eq!(gate.store.len(), 1);
}

/// Each unit is given to one thread.
#[test]
fn threads_share_the_max_of_a_key() {
    often_by(Algorithm::ALL, |set, algorithm| {
        max_is_shared(set, algorithm, 4, 3)
    });
}

#[test]
fn two_threads_share_the_max_in_every_order() {
    always_by(Algorithm::ALL, |set, algorithm| {
        max_is_shared(set, algorithm, 3, 2)
    });
}

/// Where nothing expires, the first keys stay, and all others are refused.
fn first_keys_stay(
    set: usize,
    algorithm: Algorithm,
    max_keys: usize,
    asked: &[&'static [&'static str]],
) {
    let gate = Gate::new(set, algorithm, 1, max_keys);
    let threads: Vec<_> = asked.iter().map(|keys| gate.charging(keys)).collect();
    let charges = join(threads);
    assert_eq!(charges.len(), max_keys, "{charges:?}");
    expect_law_1(&charges, 1);
    gate.expect_held(&charges);
    let held: BTreeSet<_> = charges.iter().map(|charge| charge.key).collect();
    for key in asked.iter().copied().flatten() {
        match gate.ask(key, 1) {
            Ok(decision) => assert!(held.contains(key) && !decision.is_allowed()),
            Err(_) => assert!(!held.contains(key), "a limited key was dropped"),
        }
    }
}

#[test]
fn more_keys_than_allowed_are_never_kept() {
    often_by(Algorithm::ALL, |set, algorithm| {
        first_keys_stay(set, algorithm, 2, &[&["a", "b"], &["b", "c"], &["d", "a"]])
    });
}

#[test]
fn two_threads_get_one_key_in_every_order() {
    always(3, |set| {
        first_keys_stay(set, Algorithm::SlidingLog, 1, &[&["a"], &["b"]])
    });
}

/// Keys come, expire and are dropped, by who takes, who needs room and who counts: the number stays
/// right.
fn keys_come_and_go(set: usize, algorithm: Algorithm) {
    let gate = Gate::new(set, algorithm, 1, 2);
    let mut charges = gate.charge(&["a", "b"]);
    let ageing = gate.ageing(3);
    let threads = [
        gate.charging(&["c", "a", "c"]),
        gate.charging(&["d", "b"]),
        gate.charging(&["a", "e"]),
    ];
    charges.extend(join(threads));
    for seen in join([ageing]) {
        assert!(seen <= 2, "{seen} keys are held");
    }
    expect_law_1(&charges, 1);
    gate.expect_held(&charges);
    gate.expect_whole(2);
}

#[test]
fn keys_are_counted_while_they_expire() {
    often_by(Algorithm::ALL, keys_come_and_go);
}

/// Two threads find the same key over: it is dropped once, and charged once.
#[test]
fn a_key_is_dropped_once_in_every_order() {
    always_by(Algorithm::ALL, |set, algorithm| {
        let gate = Gate::new(set, algorithm, 1, 1);
        gate.charge(&["a"]);
        gate.clock.set(2 * STEP);
        let other = gate.charging(&["a"]);
        let mut charges = gate.charge(&["a"]);
        charges.extend(join([other]));
        assert_eq!(charges.len(), 1, "{charges:?}");
        gate.expect_held(&charges);
        gate.expect_whole(1);
    });
}

/// Nobody waits for ever while several look through all shards at once.
#[test]
fn looking_for_room_stops_nobody() {
    often(|set| {
        let gate = Gate::new(set, Algorithm::SlidingLog, 1, 2);
        gate.charge(&["a", "b"]);
        let ageing = gate.ageing(2);
        let threads = [gate.charging(&["c", "d"]), gate.charging(&["e", "a"])];
        let charges = join(threads);
        join([ageing]);
        gate.expect_held(&charges);
        gate.expect_whole(2);
    });
}

/// Who has waited for the lock does not take with an instant that is past: law 1 holds while the
/// clock goes on.
fn clock_goes_on(set: usize, algorithm: Algorithm, max: usize) {
    let gate = Gate::new(set, algorithm, max as u64, 10);
    let ageing = gate.ageing(3);
    let threads: Vec<_> = (0..3).map(|_| gate.charging(&["a", "a", "a"])).collect();
    let charges = join(threads);
    join([ageing]);
    expect_law_1(&charges, max);
    gate.expect_held(&charges);
}

/// With a max of 1 it is law 1 for all of them.
#[test]
fn no_thread_takes_in_the_past() {
    often_by(Algorithm::ALL, |set, algorithm| {
        clock_goes_on(set, algorithm, 1)
    });
}

#[test]
fn no_thread_takes_in_the_past_of_several() {
    let sliding = [Algorithm::SlidingLog, Algorithm::SlidingWindow];
    often_by(sliding, |set, algorithm| clock_goes_on(set, algorithm, 2));
}

/// A refund that waited for a charge is not asked with an instant before it: that one would be
/// refused.
#[test]
fn no_thread_gives_back_in_the_past() {
    let exact = [Algorithm::SlidingLog, Algorithm::FixedWindow];
    always_by(exact, |set, algorithm| {
        let gate = Gate::new(set, algorithm, 2, 10);
        let refund = gate.refunding(gate.charge(&["a"])[0].clone());
        gate.clock.set(STEP);
        assert_eq!(gate.charge(&["a"]).len(), 1);
        assert_eq!(refund.join().expect("no panic"), 1);
    });
}

/// Units that come back are given to somebody once.
#[test]
fn refunds_and_takes_do_not_lose_each_other() {
    often_by(Algorithm::ALL, |set, algorithm| {
        let gate = Gate::new(set, algorithm, 2, 10);
        let charges = gate.charge(&["a", "a"]);
        let refunds = charges.iter().map(|it| gate.refunding(it.clone()));
        let refunds: Vec<_> = refunds.collect();
        let takes = [gate.charging(&["a", "a"]), gate.charging(&["a"])];
        let taken = join(takes).len() as u64;
        let given_back = refunds.into_iter().map(|it| it.join().expect("no panic"));
        let given_back: u64 = given_back.sum();
        assert_eq!(given_back, 2);
        let look = gate.ask("a", 0).expect("looking needs no room");
        assert_eq!(look.remaining() + taken, given_back);
    });
}

/// A refund whose key is dropped, and perhaps charged anew, takes nothing from the new charge.
fn refund_comes_late(set: usize, algorithm: Algorithm) {
    let gate = Gate::new(set, algorithm, 1, 1);
    let mut charges = gate.charge(&["a"]);
    let first = charges[0].clone();
    let ageing = gate.ageing(2);
    let refund = gate.refunding(first.clone());
    let takes = [gate.charging(&["a", "a"]), gate.charging(&["b"])];
    charges.extend(join(takes));
    join([ageing]);
    let given_back = refund.join().expect("no panic");
    assert!(given_back <= 1);
    charges.retain(|charge| given_back == 0 || *charge != first);
    expect_law_1(&charges, 1);
    gate.expect_whole(1);
}

#[test]
fn refunds_race_with_the_end_of_their_key() {
    often_by(Algorithm::ALL, refund_comes_late);
}

/// There is room for one more key, whoever else drops the one that is over: nobody is refused.
fn room_is_found(set: usize, asked_besides: impl FnOnce(&Gate) + Send + 'static) {
    let gate = Gate::new(set, Algorithm::SlidingLog, 1, 2);
    gate.charge(&["a", "b"]);
    gate.clock.set(2 * STEP);
    let other = gate.clone();
    let other = thread::spawn(move || asked_besides(&other));
    assert!(gate.ask("c", 1).is_ok(), "refused, though there is room");
    other.join().expect("no panic");
}

#[test]
fn a_new_key_finds_the_room_that_counting_made() {
    often(|set| room_is_found(set, |gate| _ = gate.store.len()));
}

#[test]
fn a_new_key_finds_the_room_that_another_made() {
    often(|set| room_is_found(set, |gate| _ = gate.charge(&["d"])));
}

/// Of one subject two keys, of the other two more. Threads take over both, in all pairs.
fn pairs_are_charged_whole(set: usize, algorithm: Algorithm, max_keys: usize) {
    const PAIRS: [[&str; 2]; 4] = [["a", "x"], ["b", "x"], ["a", "y"], ["b", "y"]];
    let quota = |max| Quota::new(Duration::from_micros(WINDOW), max).expect("a valid quota");
    let one = Subject::new("one", Everyone).limit(quota(2));
    let two = Subject::new("two", Everyone).limit(quota(3));
    let rule = Rule::joint("p", [one, two]).expect("a valid rule");
    let rule = Arc::new(rule.with_algorithm(algorithm));
    let store = MemoryStore::with_max_keys(max_keys).clock(ManualClock::default());
    let store = Arc::new(store);
    let ask = move |[one, two]: [&str; 2], cost| {
        let key = |key: &str| Key::from(format!("{key}{set}"));
        let keys = [("one", key(one)), ("two", key(two))];
        let take = Take::of_subjects(rule.clone(), keys).expect("both");
        let answer = store.take(&take.with_cost(cost)).now_or_never();
        answer.expect("memory answers at once")
    };
    let threads = [[0, 3, 1], [2, 1, 0], [3, 0, 2]].map(|pairs| {
        let ask = ask.clone();
        thread::spawn(move || {
            let pairs = pairs.into_iter().map(|pair| PAIRS[pair]);
            let allowed = pairs.filter(|pair| ask(*pair, 1).is_ok_and(|it| it.is_allowed()));
            allowed.collect::<Vec<_>>()
        })
    });
    let allowed = join(threads);
    let charged = |subject: usize, key: &str| {
        let takes = allowed.iter().filter(|pair| pair[subject] == key);
        takes.count() as u64
    };
    for pair in PAIRS {
        let state = ask(pair, 0).expect("it only looks");
        let remaining = state.quotas().iter().map(|state| state.remaining());
        let expected = [2 - charged(0, pair[0]), 3 - charged(1, pair[1])];
        assert!(remaining.eq(expected), "{pair:?} of {allowed:?}: {state:?}");
    }
    let held: BTreeSet<_> = allowed.iter().flatten().collect();
    assert!(held.len() <= max_keys, "{held:?}");
}

#[test]
fn takes_over_several_counts_are_charged_in_all_or_none() {
    often_by(Algorithm::ALL, |set, algorithm| {
        pairs_are_charged_whole(set, algorithm, 10)
    });
    often_by(Algorithm::ALL, |set, algorithm| {
        pairs_are_charged_whole(set, algorithm, 3)
    });
}
