//! Law 10: the states of usual and of general keys, damaged at each place. Whatever the bytes say,
//! a take is answered or fails with a typed error, no more is admitted than by a key that begins
//! afresh, and the damage is over once the key has expired.

use redis::{Commands, Connection};

use super::*;

const MAX: u64 = 3;
/// In milliseconds.
const WINDOW: u64 = 60_000;

/// What stands under a key: the members of a set with their scores, or a string alone.
type State = Vec<(Vec<u8>, f64)>;

fn read(connection: &mut Connection, algorithm: Algorithm, name: &str) -> State {
    match algorithm {
        Algorithm::SlidingLog => connection.zrange_withscores(name, 0, -1).expect("a set"),
        _ => vec![(connection.get(name).expect("a string"), 0.0)],
    }
}

fn write(pipe: &mut redis::Pipeline, algorithm: Algorithm, name: &str, state: &State) {
    for (bytes, score) in state {
        match algorithm {
            Algorithm::SlidingLog => pipe.zadd(name, bytes, score).ignore(),
            _ => pipe.set(name, bytes).ignore(),
        };
    }
    pipe.pexpire(name, 70_000).ignore();
}

/// The same bytes with another one, or another number of 7 bytes, at each place, and cut off there.
fn damaged(bytes: &[u8], now: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for at in 0..bytes.len() {
        for mask in [0x01, 0xff] {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= mask;
            all.push(flipped);
        }
        all.push(bytes[..at].to_vec());
        if at + 7 <= bytes.len() {
            let units = [0, 1 << 51, (1 << 52) - 1, 1 << 53, (1 << 56) - 1];
            let instants = [now + 1_000_000, now + 700_000_000_000_000];
            for number in units.into_iter().chain(instants) {
                let mut absurd = bytes.to_vec();
                absurd[at..at + 7].copy_from_slice(&number.to_be_bytes()[1..]);
                all.push(absurd);
            }
        }
    }
    all.push([bytes, &[0][..]].concat());
    all.push([bytes, bytes].concat());
    all
}

fn damaged_states(algorithm: Algorithm, state: &State, now: u64) -> Vec<State> {
    let mut all = Vec::new();
    for (at, (bytes, score)) in state.iter().enumerate() {
        let mut with = |other: &[(Vec<u8>, f64)]| {
            all.push([&state[..at], other, &state[at + 1..]].concat());
        };
        for bytes in damaged(bytes, now) {
            with(&[(bytes, *score)]);
        }
        if algorithm == Algorithm::SlidingLog {
            for score in [0.0, -1.0, f64::NEG_INFINITY, 0.5] {
                with(&[(bytes.clone(), score)]);
            }
            with(&[]);
        }
    }
    all
}

/// The states of a key: usual, of several quotas, given back, reloaded and reset.
async fn states(
    server: &Redis,
    store: &RedisStore,
    clock: &ManualClock,
    algorithm: Algorithm,
) -> Vec<(&'static str, State)> {
    let one = rule(algorithm, "states", &[(MAX, WINDOW)]);
    let two = rule(algorithm, "states", &[(MAX, WINDOW), (5, 2 * WINDOW)]);
    let longer = rule(algorithm, "states", &[(4, 2 * WINDOW)]);
    let mut states = Vec::new();
    for (name, rules) in [
        ("one", [&one, &one]),
        ("two", [&two, &two]),
        ("back", [&one, &one]),
        ("reloaded", [&longer, &one]),
        ("reset", [&one, &one]),
    ] {
        for (at, rule) in rules.into_iter().enumerate() {
            clock.set(START + 9_001 * at as u64);
            let take = take(rule, name);
            let decision = decide(store, &take).await;
            let receipt = decision.receipt().expect("charged");
            if name == "back" && at == 0 {
                refund(store, &take, &receipt).await;
            }
            if name == "reset" && at == 1 {
                reset(store, &take).await;
            }
        }
        let own = &names(&take(&one, name))[0];
        states.push((name, read(&mut server.connection(), algorithm, own)));
    }
    states
}

/// How many of these takes were allowed; errors are of a type.
async fn allowed(store: &RedisStore, takes: &[Take], states: &[State], story: &str) -> Vec<u64> {
    let mut allowed = vec![0; takes.len()];
    for cost in [1, 2, 1, 1, 1, 0, 1, MAX] {
        let asked = takes.iter();
        let asked = asked.map(|take| store.take(&take.clone().with_cost(cost)));
        for (at, answer) in join_all(asked).await.into_iter().enumerate() {
            let kind = kind(&answer);
            let is_typed = kind.is_none_or(|it| it == StoreErrorKind::WrongType);
            assert!(is_typed, "{story}, {cost} of {:?}: {answer:?}", states[at]);
            if let Ok(decision) = answer {
                assert!(decision.remaining() <= MAX, "{story}, {at}: {decision:?}");
                allowed[at] += if decision.is_allowed() { cost } else { 0 };
            }
        }
    }
    allowed
}

async fn each_place(algorithm: Algorithm) {
    let (server, store) = near().await;
    let clock = ManualClock::default();
    let store = store.clock(clock.clone());
    let now = START + 20_000;
    let quotas = [(MAX, WINDOW), (2 * MAX, 2 * WINDOW)];
    let rules = [&quotas[..1], &quotas].map(|of| rule(algorithm, "damaged", of));
    let mut connection = server.connection();
    for (name, state) in states(&server, &store, &clock, algorithm).await {
        let all = damaged_states(algorithm, &state, now);
        for (number, states) in all.chunks(300).enumerate() {
            for rule in &rules {
                clock.set(now);
                let quotas = rule.quotas().len();
                let story = format!("{algorithm:?}, {name}, {number}, {quotas} quotas");
                let keys = (0..states.len()).map(|key| take(rule, &key.to_string()));
                let takes: Vec<_> = keys.collect();
                let mut pipe = redis::pipe();
                pipe.cmd("FLUSHALL").ignore();
                for (take, state) in takes.iter().zip(states) {
                    write(&mut pipe, algorithm, &names(take)[0], state);
                }
                pipe.exec(&mut connection).expect("is written");
                let now_allowed = allowed(&store, &takes, states, &story).await;
                clock.set(now + WINDOW * 1_000 - 1);
                let then_allowed = allowed(&store, &takes, states, &story).await;
                for (at, take) in takes.iter().enumerate() {
                    let what = format!("{story}: {:?}", states[at]);
                    assert!(now_allowed[at] <= MAX, "{what}: {now_allowed:?}");
                    let both = now_allowed[at] + then_allowed[at];
                    // A bucket drains meanwhile, and a fixed window ends when its bytes say. A log
                    // may find out only then that its totals cannot be.
                    let most = match algorithm {
                        Algorithm::SlidingWindow => MAX,
                        _ => 2 * MAX,
                    };
                    assert!(both <= most, "{what}: {both} in a window");
                    let left: i64 = connection.pttl(&names(take)[0]).expect("a time");
                    assert_ne!(left, -1, "{what}: lives for ever");
                }
                clock.set(now + 4 * WINDOW * 1_000);
                let later_allowed = allowed(&store, &takes, states, &story).await;
                for (at, take) in takes.iter().enumerate() {
                    let what = format!("{story}: {:?}", states[at]);
                    let left: i64 = connection.pttl(&names(take)[0]).expect("a time");
                    let is_healed = later_allowed[at] == MAX || left <= 400_000;
                    assert!(is_healed, "{what}: {} for {left} ms", later_allowed[at]);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_each_algorithm() {
    done(Algorithm::ALL.map(|algorithm| tokio::spawn(each_place(algorithm)))).await;
}
