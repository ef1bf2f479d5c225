//! Very many refunds: bounded, counted, and no burden to whoever asks about something else (law
//! 13).

use super::*;

/// After this time without an answer, a refund counts as lost.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// 10,000 requests end at once, on a key each, behind a server that is far away: at most 4,096
/// wait, the rest is lost and stays charged, and takes of a route beside them are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_once() {
    let (_server, proxy, store) = kit::far(millis(20)).await;
    let limits = Limits::new([of("good", 100_000, &["2xx"]), of("other", 100_000, &[])]);
    let limits = limits.store(store);
    let (service, other) = (wrap(&limits.layer("good")), wrap(&limits.layer("other")));
    let stalls = Stalls::watch(&[&proxy.url], millis(500)).await;
    let began = Instant::now();
    let fields = |at| format!("x-key: k{}, x-sleep: 400", at % 500);
    let tasks: Vec<_> = (0..10_000).map(|at| start(&service, &fields(at))).collect();
    let bystander = async {
        for _ in 0..40 {
            let began = Instant::now();
            let status = send(&other, 200).await;
            let lost = Lost::since(began, status);
            let is_excused = status == 200 || stalls.excuse(&lost, SECOND);
            assert!(is_excused, "law 13: {lost:?}");
        }
    };
    let (answers, ()) = tokio::join!(done(tasks), bystander);
    // A machine that stands still loses its connection, and with it takes that may be charged.
    let failed = answers.iter().filter(|it| **it != 200).count() as u64;
    assert!(failed == 0 || stalls.longest().is_some(), "{failed} failed");
    flushed(&limits).await;
    let took = began.elapsed();
    let (refunds, units, lost) = counted(&limits, "good");
    assert_eq!(refunds, units);
    assert_eq!(refunds + lost + failed, 10_000);
    let names: Vec<_> = (0..500).map(|at| key(&format!("k{at}"))).collect();
    let left = names
        .iter()
        .map(|key| kit::left(&limits, "good", key.clone()));
    let used = 500 * 100_000 - join_all(left).await.iter().sum::<u64>();
    assert!(used <= lost + failed, "nothing else stays charged: {used}");
    // On a busy machine, refunds may be given back after they were counted as lost.
    if took < MAX_WAIT && failed == 0 {
        assert_eq!(used, lost, "what is lost stays charged");
    }
    assert_eq!(counted(&limits, "other").2, 0);
}

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
