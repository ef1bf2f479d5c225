//! Very many refunds: counted exactly.

use super::*;

/// Failures are counted exactly in the midst of it all, by every algorithm that promises that: of a
/// server at a distance, and of the default store, whose refunds need no queue, under many threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failures_are_counted_exactly() {
    let (_server, _proxy, redis) = kit::far(millis(2)).await;
    let redis: Arc<dyn Store> = Arc::new(redis);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for (store, tasks, of_each) in [(redis, 32, 25), (memory, 16, 300)] {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", store.name());
            let rule = of("exact", 1_000_000, &["2xx"]).with_algorithm(algorithm);
            let (limits, service) = world(rule, Arc::clone(&store));
            let fails = |at: usize| at.is_multiple_of(10) || at % 3 == 1;
            in_tasks((0..tasks).map(|task| {
                let service = service.clone();
                async move {
                    for at in task..task + of_each {
                        pass(&service, if fails(at) { 500 } else { 200 }, 1).await;
                    }
                }
            }))
            .await;
            flushed(&limits).await;
            let all = (tasks * of_each) as u64;
            let failed = (0..tasks).flat_map(|task| task..task + of_each);
            let failed = failed.filter(|at| fails(*at)).count() as u64;
            let (refunds, units, lost) = counted(&limits, "exact");
            assert_eq!(lost, 0, "{case}");
            let used = 1_000_000 - left(&limits, "exact").await;
            let good = all - failed;
            match algorithm {
                // It drains meanwhile, and gives back what has not begun to.
                Algorithm::Gcra => assert!(units <= good && used <= all, "{case}"),
                _ => assert_eq!((refunds, units, used), (good, good, failed), "{case}"),
            }
            reset(&limits, "exact").await;
        }
    }
}
