//! `Store::reset`: it forgets one key, all of it, and nothing else, whatever goes on meanwhile.

use crate::charges::in_the_order_of_arrival;
use crate::prelude::*;

const MICROSECOND: Duration = Duration::from_micros(1);

async fn give_nothing_back(charges: &[Charge], case: &str) {
    for charge in charges {
        assert_eq!(give_back(charge).await, 0, "{case}: {charge:?}");
    }
}

/// A receipt from before a reset gives back nothing of what is charged in the same instant: by any
/// algorithm, for any cost, after a second reset, and under another rule, whose charges count for
/// longer than the earlier ones did.
#[tokio::test]
async fn the_same_instant() {
    let stores = Stores::start().await;
    let day = HOUR * 24;
    let ways = [
        (1, false, HOUR),
        (2, false, HOUR),
        (1, true, HOUR),
        (1, false, day),
    ];
    let ways = [1, 2, 4].map(|cost| ways.map(|way| (cost, way))).concat();
    for (case, clocked, algorithm) in stores.cases() {
        for &(cost, (resets, given_back_before, window)) in &ways {
            let case = format!("{case} {cost} {resets} {given_back_before}");
            let key = Key::from("instant").with(case.as_str());
            let key = key.with(format!("{window:?}"));
            let take = take_of(&by(algorithm, "instant", 20, HOUR), &key, cost);
            let later = take_of(&by(algorithm, "instant", 20, window), &key, cost);
            let early = [clocked.charge(&take).await, clocked.charge(&take).await];
            if given_back_before {
                assert_eq!(give_back(&early[1]).await, cost, "{case}");
            }
            for _ in 0..resets {
                reset(&clocked.store, &take).await;
            }
            for wait in [Duration::ZERO, MICROSECOND, millis(1), HOUR / 2] {
                clocked.advance(wait);
                let before = clocked.remaining(&later).await;
                let late = clocked.charge(&later).await;
                give_nothing_back(&early, &format!("{case}, {wait:?} later")).await;
                assert_eq!(clocked.remaining(&later).await, before - cost, "{case}");
                if wait > Duration::ZERO {
                    assert_eq!(give_back(&late).await, cost, "{case}");
                }
            }
        }
    }
}

/// A receipt from before gives nothing back long after the reset either: what was charged in the
/// same instant outlives all that the reset has left.
#[tokio::test]
async fn long_after_the_reset() {
    let stores = Stores::start().await;
    let mut early = Vec::new();
    for (_, clocked, algorithm) in stores.cases() {
        let brief = take_of(&by(algorithm, "long", 5, millis(1)), &Key::default(), 1);
        let lasting = hourly(algorithm, "long", 5, 1);
        early.push((clocked, clocked.charge(&brief).await, lasting.clone()));
        reset(&clocked.store, &brief).await;
        clocked.charge(&lasting).await;
    }
    sleep(millis(2_500)).await;
    for (clocked, charge, lasting) in &early {
        clocked.advance(millis(100));
        assert_eq!(give_back(charge).await, 0, "{charge:?}");
        assert_eq!(clocked.remaining(lasting).await, 4, "{charge:?}");
    }
}

/// Names that may break a key, a hash tag or a protocol.
fn odd_keys() -> Vec<Key> {
    let texts = [
        "", ":", "a:b", "{a}", "}{", "{}", "a b", "\r\n", "\0", "%3A", "*", "?", "[a-z]", "ä€",
        ":back", "}:back", "~gcra",
    ];
    let mut keys = texts.map(Key::from).to_vec();
    keys.extend([
        Key::default(),
        Key::default().with_nothing(),
        Key::default().with_secret("secret"),
        Key::default().with("a").with("b"),
        Key::default().with([0xFF, 0xFE, 0]),
        Key::default().with(vec![b'x'; 1_000_000]),
        Key::default().with(vec![b'{'; 1_000]),
    ]);
    keys
}

/// A rule with a prefix of its own, if there is one.
fn with_prefix(algorithm: Algorithm, path: &str, prefix: Option<&str>) -> Arc<Rule> {
    let rule = by(algorithm, path, 5, HOUR);
    match prefix {
        Some(prefix) => Arc::new(Rule::clone(&rule).with_prefix(prefix)),
        None => rule,
    }
}

/// So many resets at a time forget what they are asked to, and nothing else.
async fn each_is_forgotten(store: &Arc<dyn Store>, takes: &[Take], together: usize) {
    let mut early = Vec::new();
    for take in takes {
        early.push(charge(store, take).await);
        assert_eq!(give_back(&charge(store, take).await).await, 2, "{take:?}");
    }
    let mut rest = takes;
    while let Some((some, others)) = rest.split_at_checked(together) {
        for reset in join_all(some.iter().map(|take| store.reset(take))).await {
            reset.unwrap_or_else(|error| panic!("{some:?}: {error}"));
        }
        for take in some {
            assert_eq!(remaining(store, take).await, 5, "{take:?}");
        }
        for next in others.iter().take(together) {
            assert_eq!(remaining(store, next).await, 3, "{next:?} behind {some:?}");
        }
        rest = others;
    }
    give_nothing_back(&early, &store.name()).await;
}

/// Every odd key, and every odd path and prefix, is forgotten alone, and leaves nothing in Redis.
#[tokio::test]
async fn odd_names() {
    let stores = Stores::start().await;
    let paths = ["p", "{p}", "p:q", "p q", "\r\n", "p~gcra", "ü", "p}:back"];
    let prefixes = ["app:", "{eu}:", "{", "*", "a b\n:"].map(Some);
    for clocked in &stores.all {
        let mut takes = Vec::new();
        for (at, prefix) in [None].into_iter().chain(prefixes).enumerate() {
            for (path_at, path) in paths.into_iter().enumerate() {
                let algorithm = Algorithm::ALL[(at + path_at) % Algorithm::ALL.len()];
                let rule = with_prefix(algorithm, path, prefix);
                takes.extend(odd_keys().iter().map(|key| take_of(&rule, key, 2)));
            }
        }
        each_is_forgotten(&clocked.store, &takes, 1).await;
    }
    // Empty counts that resets leave expire soon.
    let is_empty = async || stores.server.names().is_empty();
    within(5 * SECOND, "nothing is left", is_empty).await;
}

/// Resets while many tasks take: each admits at most one more quota, and the last forgets all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_while_takes_are_in_flight() {
    const MAX: u64 = 25;
    const RESETS: u64 = 50;
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let look = hourly(algorithm, "in flight", MAX, 1);
        let ends = Arc::new(AtomicBool::new(false));
        let each = (Arc::clone(&clocked.store), Arc::clone(&ends), look.clone());
        let tasks = spawn_each(0..6, each, |at, (store, ends, look)| async move {
            let (take, mut kept) = (look.with_cost(1 + at % 2), 0);
            while !ends.load(Ordering::Relaxed) {
                if let Some(receipt) = decide(&store, &take).await.receipt() {
                    kept += receipt.units();
                    if at == 5 {
                        let back = refund(&store, &take, &receipt).await;
                        assert!(back <= receipt.units());
                        kept -= back;
                    }
                }
                yield_now().await;
            }
            kept
        });
        for _ in 0..RESETS {
            reset(&clocked.store, &look).await;
            clocked.advance(MICROSECOND);
            sleep(millis(1)).await;
        }
        ends.store(true, Ordering::Relaxed);
        let kept: u64 = done(tasks).await.iter().sum();
        assert!(kept <= MAX * (RESETS + 1), "{case}: {kept}");
        assert!(kept >= MAX * 2, "{case}: {kept}");
        reset(&clocked.store, &look).await;
        assert_eq!(clocked.remaining(&look).await, MAX, "{case}");
    }
}

/// Resets in the order of arrival, from the first reset on: a take that was asked before a reset of
/// its key is denied, one that was asked after it is allowed, however many travel together.
#[tokio::test]
async fn resets_in_the_order_of_arrival() {
    let steps = [Some(true), Some(false), None, Some(true), Some(false)];
    in_the_order_of_arrival(&steps, true).await;
}

/// A user that may not write under this name: the reset is refused, nothing is forgotten, and
/// neighbours of the same flight are decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission() {
    let (server, admin) = near().await;
    let user = "ACL SETUSER gate on >secret resetkeys ~*free* ~*first* %R~*closed* +@all";
    run(&server, user);
    let store = connect(&server.url.replace("//", "//gate:secret@"), PATIENT).await;
    for algorithm in Algorithm::ALL {
        let closed = hourly(algorithm, "closed", 5, 2);
        let free = hourly(algorithm, "free", 1_000_000, 1);
        decide(&admin, &closed).await;
        let resets = (0..50).map(|_| store.reset(&closed));
        let takes = (0..50).map(|_| store.take(&free));
        let own = (0..20).map(|_| store.reset(&free));
        let (resets, takes, own) = tokio::join!(join_all(resets), join_all(takes), join_all(own));
        for reset in resets {
            assert_eq!(kind(&reset), Some(StoreErrorKind::Refused), "{algorithm:?}");
        }
        assert!(takes.iter().all(is_allowed), "{algorithm:?}: law 13");
        assert!(own.iter().all(Result::is_ok), "{algorithm:?}: law 13");
        assert_eq!(remaining(&admin, &closed).await, 3, "{algorithm:?}");
    }
    // The line of the page is enough for a reset.
    let page = include_str!("../../../docs/security.md");
    let at = page.find("ACL SETUSER shop on ").expect("such a line");
    let (line, _) = page[at..].split_once("```").expect("the block ends");
    run(&server, &line.replace("shop:", "CurrentLimiter:"));
    let url = server.url.replace("//", "//shop:PASSWORD@");
    let store: Arc<dyn Store> = Arc::new(connect(&url, PATIENT).await);
    for algorithm in Algorithm::ALL {
        let take = take(&by(algorithm, "permitted", 5, HOUR), "a").with_cost(2);
        let mine = charge(&store, &take).await;
        assert_units(algorithm, give_back(&mine).await, 2);
        charge(&store, &take).await;
        reset(&store, &take).await;
        assert_eq!(remaining(&store, &take).await, 5, "{algorithm:?}");
    }
}

/// Law 4: what a reset leaves expires after two seconds; of a key that nobody used it is nothing.
#[tokio::test]
async fn nothing_is_left_behind() {
    let stores = Stores::start().await;
    let (clocked, server) = (&stores.all[1], &stores.server);
    let memory = Arc::new(MemoryStore::with_max_keys(1));
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "left", 5, HOUR);
        for (used, given_back) in [(0, 0), (1, 0), (3, 1), (3, 3)] {
            let case = format!("{algorithm:?}: {used} {given_back}");
            let take = take(&rule, "key");
            for at in 0..used {
                let charge = clocked.charge(&take).await;
                if at < given_back {
                    give_back(&charge).await;
                }
            }
            reset(&clocked.store, &take).await;
            let name = take.name(RedisStore::DEFAULT_PREFIX);
            let life = server.life(&name);
            let expected = if used == 0 { -2..=-2 } else { 1..=2_000 };
            assert!(expected.contains(&life), "{case}: {life}");
            clocked.remaining(&take).await;
            assert_eq!(server.names().len(), usize::from(used > 0), "{case}");
            run(server, &format!("DEL {name}"));
            assert_eq!(server.names().len(), 0, "{case}");
        }
        // A full memory store has room again.
        let other = take(&rule, "other");
        for key in ["a", "b", "c"] {
            let take = take(&rule, key);
            assert!(decide(&memory, &take).await.is_allowed());
            assert_eq!(memory.len(), 1);
            let full = memory.take(&other).await;
            assert_eq!(kind(&full), Some(StoreErrorKind::Full));
            reset(&memory, &other).await;
            assert_eq!(memory.len(), 1, "that key was not there");
            reset(&memory, &take).await;
            std::thread::sleep(millis(1));
            assert!(memory.is_empty());
        }
    }
}

/// In a cluster each key is forgotten on its own node, with its refunds, whatever the prefix says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let store = RedisStore::connect(&*cluster.url()).await.expect("it runs");
    let clock = clock_at(1_800_000_000_000_000);
    let store: Arc<dyn Store> = Arc::new(store.timeout(PATIENT).clock(clock));
    let mut takes = Vec::new();
    for algorithm in Algorithm::ALL {
        for prefix in [None, Some("{eu}:"), Some("app:")] {
            let rule = with_prefix(algorithm, "cluster {x}", prefix);
            takes.extend((0..10).map(|key| take(&rule, format!("{{{key}}}")).with_cost(2)));
        }
    }
    each_is_forgotten(&store, &takes, takes.len() / 2).await;
    let is_empty = async || {
        let mut nodes = cluster.nodes.iter();
        nodes.all(|it| it.run::<Vec<String>>("KEYS *").is_empty())
    };
    within(5 * SECOND, "nothing is left", is_empty).await;
}
