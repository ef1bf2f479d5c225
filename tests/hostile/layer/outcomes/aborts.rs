//! Clients that leave: before the head a request counts as failed; afterwards its outcome holds.

use super::*;

/// Clients that leave at any instant, behind a server that takes its time: failures and those that
/// left are charged, whoever had a good head is not, and nothing is over what was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_instant() {
    let (_server, _proxy, store) = kit::far(millis(6)).await;
    let (limits, service) = world(of("a", 100_000, &["2xx"]), store);
    let clients = (0..400).map(|at| {
        let (service, mut random) = (service.clone(), Random::new(at));
        async move {
            let status = if random.is(30) { "500" } else { "200" };
            let fields = format!("x-sleep: 8, x-status: {status}");
            timeout(millis(random.below(40)), ask(&service, &fields))
                .await
                .ok()
        }
    });
    let answers = in_tasks(clients).await;
    flushed(&limits).await;
    sleep(millis(50)).await;
    let used = 100_000 - left(&limits, "a").await;
    let number = |good: bool| {
        answers
            .iter()
            .flatten()
            .filter(|it| (**it == 200) == good)
            .count()
    };
    let (heads, failures) = (number(true) as u64, number(false) as u64);
    let (refunds, units, lost) = counted(&limits, "a");
    assert_eq!((refunds, lost), (units, 0));
    // A head that was there as its client left may have been given back as well.
    assert!(refunds >= heads, "{refunds} of {heads}");
    assert!(used >= failures && used <= 400 - heads, "{used}");
}
