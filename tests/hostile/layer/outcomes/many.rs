//! Very many refunds: bounded, counted, and no burden to whoever asks about something else (law
//! 13).

use super::*;

/// Rules share the queue of a store: a rule whose refunds fill it takes the refunds of others with
/// it, which are counted as lost under their own rule, and stay charged.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_told_by_the_rule_that_lost() {
    let distant = Distant::new(MemoryStore::new());
    distant.refunds_are(Fate::Silence);
    let limits = Limits::new([of("flood", 1_000_000, &["2xx"]), of("login", 50, &["2xx"])]);
    let limits = limits.store(distant.clone());
    let (flood, login) = (wrap(&limits.layer("flood")), wrap(&limits.layer("login")));
    pass(&flood, 200, 5_000).await;
    pass(&login, 200, 10).await;
    assert_eq!(counted(&limits, "flood"), (0, 0, 5_000 - 4_096));
    assert_eq!(counted(&limits, "login"), (0, 0, 10));
    // When the store answers again, all is as before.
    distant.refunds_are(Fate::Answered);
    sleep(11 * SECOND).await;
    pass(&login, 200, 1).await;
    flushed(&limits).await;
    assert_eq!(counted(&limits, "login"), (1, 1, 10));
    assert_eq!(left(&limits, "login").await, 40);
}

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
