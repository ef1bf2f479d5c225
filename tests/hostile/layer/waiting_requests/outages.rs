//! Requests that wait while Redis hangs.

use super::*;

/// Redis hangs while requests wait, with and without a fallback, and comes back or not.
#[tokio::test]
async fn redis_hangs_meanwhile() {
    for (has_fallback, comes_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_server, proxy, store) = kit::proxied(PATIENT).await;
        let resilient = Resilient::new(store).timeout(millis(200));
        let store = match has_fallback {
            true => resilient.processes(1).build(),
            false => resilient.build(),
        };
        let (limits, app) = world(logins(5), store, 4 * SECOND);
        let held = start_all(5, &app, 0, "x-hold: 1500");
        let asked = start_all(20, &app, 300, "x-hold: 10");
        sleep(millis(700)).await;
        proxy.all(Mode::Hold);
        if comes_back {
            sleep(millis(400)).await;
            proxy.all(Mode::Pass);
        }
        let answers = done(asked).await;
        let seen: Vec<_> = answers.iter().map(|it| (it.millis(), it.status)).collect();
        // Patience, a time-out, and what a busy machine needs.
        let is_right = seen.iter().all(|(after, _)| *after < 4_000 + 200 + 2_000);
        assert!(is_right, "{seen:?}");
        join_all(held).await;
        let expected: &[u16] = if has_fallback { &[200] } else { &[200, 503] };
        let are_right = seen.iter().all(|(_, status)| expected.contains(status));
        assert!(
            are_right,
            "fallback {has_fallback}, back {comes_back}: {seen:?}"
        );
        assert_eq!(waiting(&limits), 0);
        proxy.all(Mode::Pass);
        let is_so = async || limits.check("p", "other").await.is_ok();
        kit::eventually("it decides again", is_so).await;
        assert_eq!(ask(&app, "x-key: third").await.status, OK);
    }
}
