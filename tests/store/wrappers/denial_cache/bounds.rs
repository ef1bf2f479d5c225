//! What the cache costs: bytes, allocations, and what a flood of keys does to others.

use allocation_counter::measure;

use super::*;

/// A cache around a store whose time stands still, and a rule that never admits a second take.
fn cached(max_keys: usize) -> (Resilient<MemoryStore>, Arc<Rule>) {
    let clock = clock_at(1_800_000_000_000_777);
    let memory = MemoryStore::with_max_keys(1_000_000).clock(clock.clone());
    let store = Resilient::bare(memory).denial_cache(millis(100));
    let store = store.denial_cache_keys(max_keys).clock(clock);
    (store, Arc::new(rule(quota(0, 600 * SECOND))))
}

fn key(number: u32) -> Key {
    Key::from(&*format!("2001:db8:{number:08x}::/64"))
}

fn source(store: &dyn Store, take: &Take) -> Source {
    let decision = at_once(store, take).expect("memory").expect("room");
    assert!(!decision.is_allowed());
    decision.source()
}

#[test]
fn a_cached_denial_allocates_nothing() {
    for quotas in [
        vec![quota(1, 600 * SECOND)],
        vec![quota(1, 600 * SECOND), quota(5, SECOND)],
    ] {
        for algorithm in Algorithm::ALL {
            let rule = Rule::new("p", quotas.iter().copied()).expect("valid");
            let rule = Arc::new(rule.with_algorithm(algorithm));
            let store = Resilient::bare(MemoryStore::new()).denial_cache(millis(100));
            let take = Take::new(rule, key(7));
            let ask = || at_once(&store, &take).expect("memory").expect("room");
            (0..3).for_each(|_| drop(ask()));
            let mut told = None;
            let allocated = measure(|| told = Some(ask().source()));
            assert_eq!(told, Some(Source::Cache));
            assert_eq!(allocated.count_total, 0, "{algorithm:?} {quotas:?}");
        }
    }
}

/// No more bytes than said, however many keys come, and a key that is asked for stays.
#[test]
fn a_flood_of_keys_is_bounded_and_leaves_the_others() {
    const KEYS: u32 = 20_000;
    for max_keys in [100, 2_000] {
        let (mut questions, mut asked) = (0, 0);
        let allocated = measure(|| {
            let (store, rule) = cached(max_keys);
            let of = |number| Take::new(Arc::clone(&rule), key(number));
            let loyal = of(u32::MAX);
            for number in 0..KEYS {
                assert_eq!(source(&store, &of(number)), Source::Local);
                questions += 1;
                if source(&store, &loyal) == Source::Local {
                    asked += 1;
                }
            }
            let kept = (0..KEYS).filter(|&number| source(&store, &of(number)) == Source::Cache);
            let kept = kept.count();
            assert!(kept <= max_keys, "{kept}");
        });
        assert_eq!((questions, asked), (KEYS, 1));
        // The store inside keeps nothing of what it never charged.
        let most = max_keys as u64 * 300 + 64 * 1_024;
        let bytes = allocated.bytes_max;
        assert!(bytes <= most, "{bytes} > {most}");
        println!("{max_keys} denials: {bytes} bytes at most");
    }
}

/// Keys share their place with few others.
#[test]
fn most_of_the_room_is_used() {
    let (store, rule) = cached(1_000);
    let of = |number| Take::new(Arc::clone(&rule), key(number));
    for number in 0..1_000 {
        source(&store, &of(number));
    }
    // From the last one on: a look at a denial that was dropped drops another one.
    let kept = (0..1_000).rev();
    let kept = kept.filter(|&number| source(&store, &of(number)) == Source::Cache);
    assert!(kept.count() > 700);
}

/// None of the callers asks, on whatever thread.
#[test]
fn threads_share_a_denial() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(Duration::MAX);
    let take = scarce();
    let told = at_once(&store, &take).expect("memory").expect("room");
    assert_ne!(told.source(), Source::Cache);
    source(&store, &take);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    assert_eq!(source(&store, &take), Source::Cache);
                }
            });
        }
    });
}
