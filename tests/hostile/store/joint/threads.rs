//! Threads that ask one memory store about tuples in all orders: no deadlock, and no count that
//! disagrees with what was admitted.

use super::*;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn tuples_in_all_orders_never_lock_each_other_out() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        let store = Arc::new(MemoryStore::with_max_keys(150));
        let subjects = NAMES.map(|name| Subject::new(name, Everyone).limit(quota(1_000_000, HOUR)));
        let rule = joint(algorithm, "p", subjects);
        let charged: Arc<[AtomicU64; 8]> = Arc::default();
        let (done, ended) = std::sync::mpsc::channel();
        for thread in 0..4 {
            let (store, rule) = (Arc::clone(&store), Arc::clone(&rule));
            let (charged, done) = (Arc::clone(&charged), done.clone());
            std::thread::spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..4_000 {
                    let mut named = Vec::new();
                    for (at, name) in NAMES.iter().enumerate() {
                        if random.is(60) {
                            named.push((at, *name, Key::from(&*random.below(30).to_string())));
                        }
                    }
                    let Some(_) = named.first() else { continue };
                    let places: Vec<_> = named.iter().map(|(at, ..)| *at).collect();
                    let keys = named.into_iter().map(|(_, name, key)| (name, key));
                    let take = Take::of_subjects(Arc::clone(&rule), keys).expect("subjects");
                    let answer = store.take(&take).now_or_never().expect("memory is ready");
                    let Ok(decision) = answer else { continue };
                    let receipt = decision.receipt().expect("there is room");
                    if random.is(50) {
                        let refund = store.refund(&take, &receipt).now_or_never();
                        let units = refund.expect("memory is ready").expect("an answer");
                        assert_eq!(units, 1);
                    } else {
                        for at in places {
                            charged[at].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if random.is(2) {
                        assert!(store.len() <= 150);
                    }
                }
                done.send(()).expect("somebody listens");
            });
        }
        for _ in 0..4 {
            let end = ended.recv_timeout(Duration::from_secs(60));
            end.expect("a deadlock, or a thread panicked");
        }
        for (at, name) in NAMES.iter().enumerate() {
            let mut used = 0;
            for key in 0..30 {
                let keys = [(*name, Key::from(&*key.to_string()))];
                let take = Take::of_subjects(Arc::clone(&rule), keys).expect("subjects");
                used += 1_000_000 - left(&store, &take).await[at];
            }
            let charged = charged[at].load(Ordering::Relaxed);
            assert_eq!(used, charged, "{algorithm:?}, {name}");
            assert!(charged > 0);
        }
    }
}
