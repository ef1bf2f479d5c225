//! Rules that change, are switched off or go away while calls wait and run: law 16, and no permit
//! or charge is lost.

use super::*;

/// Changes after which whoever waits for the only unit of `hourly(1)` is admitted.
fn changes() -> [(&'static str, Rules); 6] {
    let mut disabled = Rules::from([hourly(1)]);
    disabled.disable("p");
    [
        ("removed", Rules::default()),
        ("another path", Rules::from([kit::per_minute("other", 0)])),
        ("shadow", Rules::from([hourly(1).into_shadow()])),
        ("raised", Rules::from([hourly(2)])),
        ("disabled", disabled),
        ("all switched off", Rules::from([hourly(1)]).enabled(false)),
    ]
}

/// Of a call, or a request, that waits while another one holds the only unit: whether it ran, and
/// after how many tenths of seconds.
async fn wait_through(change: Rules, by_layer: bool, rule: Rule) -> (bool, u128) {
    let limits = paused(rule);
    let ask = async |holds: Duration, waits: Duration| {
        if by_layer {
            let work = any(async move || sleep(holds).await);
            let app = Router::new().route("/", work.layer(limits.layer("p").wait(waits)));
            kit::http::ask(&app, "/", "").await.status == 200
        } else {
            let call = call(&limits).wait(waits);
            call.try_run(async || works(holds).await).await.is_ok()
        }
    };
    let began = Instant::now();
    let waits = async {
        sleep(millis(1)).await;
        let change = async {
            sleep(2 * SECOND).await;
            limits.rules().replace(change);
        };
        let (ran, ()) = join(ask(Duration::ZERO, PATIENT), change).await;
        let snapshot = limits.snapshot();
        assert_eq!(snapshot.rule("p").map_or(0, |it| it.waiting), 0);
        (ran, began.elapsed().as_millis() / 100)
    };
    let (held, waited) = join(ask(30 * SECOND, Duration::ZERO), waits).await;
    assert!(held);
    waited
}

/// Permits and units alike: a call notices a change of rules as a request does.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_notices_a_change_as_a_request_does() {
    for (name, change) in changes() {
        for rule in [refunding(hourly(1)), hourly(1), at_a_time(1)] {
            let called = wait_through(change.clone(), false, rule.clone()).await;
            let layered = wait_through(change.clone(), true, rule).await;
            assert_eq!(called, layered, "{name}");
        }
    }
}

/// What runs goes on, gives its permit back, and what it failed at is given back as its rule said.
#[tokio::test(start_paused = true)]
async fn a_call_that_runs_ends_by_its_own_rule() {
    let more = [
        ("zero", Rules::from([hourly(0)])),
        ("without refunds", Rules::from([hourly(1)])),
    ];
    for (name, change) in changes().into_iter().chain(more) {
        let rule = refunding(hourly(9).with_max_concurrent(1).expect("valid"));
        let limits = paused(rule.clone());
        let ran = call(&limits).try_run(async || {
            limits.rules().replace(change.clone());
            sleep(SECOND).await;
            Err::<(), _>(7)
        });
        assert_eq!(ran.await.expect_err("its own").to_string(), "7", "{name}");
        assert!(limits.flush(PATIENT).await);
        replace(&limits, [rule]);
        assert_eq!(left(&limits).await, 1, "{name}: the permit");
        let admitted = limits.check("p", "k").await.expect("room");
        let decision = admitted.decision.expect("a decision");
        let of_quota = decision.quotas()[0].remaining();
        assert_eq!(of_quota, 8, "{name}: the charge came back");
    }
}
