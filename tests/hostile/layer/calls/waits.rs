//! Calls that wait for nothing, or for no time.

use super::*;

/// A rule gives nothing back: whoever waits behind a request, or a call, that waited, too, is
/// denied at once. Nothing can settle the charge of a call, either.
#[tokio::test(start_paused = true)]
async fn behind_what_runs_nothing_comes_back() {
    for holder_waits in [Duration::ZERO, PATIENT] {
        for holder in ["request", "run", "try_run"] {
            let limits = paused(hourly(1));
            let work = async || works(30 * SECOND).await;
            let holds = async {
                let call = call(&limits).wait(holder_waits);
                match holder {
                    "request" => {
                        let layer = limits.layer("p").wait(holder_waits);
                        let app = Router::new()
                            .route("/", any(async || sleep(30 * SECOND).await).layer(layer));
                        kit::http::ask(&app, "/", "").await.status == 200
                    }
                    "run" => call.run(work).await.is_ok(),
                    _ => call.try_run(work).await.is_ok(),
                }
            };
            let began = Instant::now();
            let waits = async {
                sleep(millis(1)).await;
                let call = call(&limits).wait(20 * SECOND);
                let refused = call.run(async || ()).await.expect_err("used up");
                assert!(refused.retry_after().expect("a time") > 20 * SECOND);
                began.elapsed()
            };
            let (held, after) = join(holds, waits).await;
            assert!(held);
            let case = format!("{holder} waits {holder_waits:?}");
            assert!(after < SECOND, "{case}: {after:?}");
        }
    }
}
