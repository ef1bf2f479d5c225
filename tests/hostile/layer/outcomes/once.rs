//! Law 15: whoever comes first gives a charge back, once, and only the units that are its own.

use super::*;

/// `refund`, `settle` and the outcome, of 64 requests at once, on a key that others are charged,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_and_outcomes_race() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let rule = of("a", 1_000, &["2xx"]).with_algorithm(algorithm);
        let (limits, service) = world(rule.with_cost(5), Arc::clone(&clocked.store));
        let tasks = (0..64).map(|at| {
            let service = service.clone();
            async move {
                // Of 8: 2 stay charged, 2 handlers refund (and one fails), 2 settle at 3 (one
                // fails), 2 are given back.
                let how = ["none", "refund", "settle", "none"][at % 4];
                let status = if at % 8 < 4 { "200" } else { "500" };
                let fields = format!("x-how: {how}, x-status: {status}, x-used: 3");
                let answer = service.oneshot(request(&fields)).await.expect("an answer");
                // Somebody asks again, by the response.
                if at % 4 == 1 {
                    let charges = Charges::from_extensions(answer.extensions());
                    let units = charges.refund().await.expect("an answer");
                    assert_eq!(units, 0, "they were claimed before");
                }
            }
        });
        in_tasks(tasks).await;
        flushed(&limits).await;
        // Of 8: 4 x 5 units back, 2 x 2, and 2 stay.
        let left = left(&limits, "a").await;
        let (refunds, units, lost) = counted(&limits, "a");
        if algorithm == Algorithm::Gcra {
            // In another order than the takes it may give back less.
            assert!(left <= 1_000 - 8 * (2 * 5 + 2 * 3), "{case}: {left}");
            assert!(units <= 8 * 24 && lost == 0, "{case}: {units}");
        } else {
            assert_eq!(left, 1_000 - 8 * (2 * 5 + 2 * 3), "{case}");
            assert_eq!((refunds, units, lost), (48, 8 * 24, 0), "{case}");
        }
        clocked.advance(3 * HOUR);
    }
}
