//! Calls within calls, keys of all kinds, and what a call allocates.

use tidegate::layer::SubjectKeys;

use super::*;

/// Each level is a call of its own: charged, and with a permit of its own.
#[tokio::test]
async fn calls_within_calls() {
    fn nested(limits: &Limits, levels: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(async move {
            if levels == 0 {
                return 0;
            }
            let call = call(limits).degrade(async |_| 0);
            let call = call.on_error(async |_| u64::MAX / 2);
            let inner = async move || 1 + nested(limits, levels - 1).await;
            call.run(inner).await
        })
    }
    let (_server, _proxy, stores) = stores().await;
    for store in stores {
        let limits = limits(hourly(100), store);
        assert_eq!(nested(&limits, 60).await, 60);
        assert_eq!(nested(&limits, 60).await, 40, "the others are denied");
        assert_eq!(left(&limits).await, 0);
        replace(&limits, [at_a_time(20)]);
        for _ in 0..2 {
            assert_eq!(nested(&limits, 60).await, 20);
            until_left(&limits, 20).await;
        }
        // A call that waits for its own caller's permit gives up in time.
        replace(&limits, [at_a_time(1)]);
        let call = || call(&limits).wait(millis(300));
        let inner = call().run(async || call().run(async || ()).await).await;
        assert!(inner.expect("free").is_err());
        until_left(&limits, 1).await;
    }
}

/// All that was said about a call that may not run.
fn told(refused: &Refused) -> String {
    let quotas = refused.decision().map(Decision::quotas).map(<[_]>::len);
    let (key_error, error) = (refused.key_error(), refused.error());
    format!("{refused} {key_error:?} {error:?} {quotas:?}")
}

#[tokio::test(start_paused = true)]
async fn keys_of_all_kinds_are_those_of_a_check() {
    fn keys() -> Vec<(&'static str, SubjectKeys)> {
        let owned = String::from("k");
        let long = "k".repeat(5_000);
        let both = [("user", Key::from("k")), ("org", Key::from("o"))];
        vec![
            ("text", "k".into()),
            ("borrowed", (&owned).into()),
            ("owned", owned.clone().into()),
            ("number", 7_u64.into()),
            ("everyone", Everyone.into()),
            ("nothing", Key::default().into()),
            ("empty", "".into()),
            ("long", (&long).into()),
            ("of an extractor", Header::new("x-user").key("k").into()),
            ("joined", Key::from("k").with("a").with("7").into()),
            ("odd", "k:\0\n{x}".into()),
            ("both", both.into()),
            ("user", [("user", "k")].into()),
            ("unknown", [("user", "k"), ("who", "k")].into()),
            ("twice", [("user", "k"), ("user", "k")].into()),
            ("twice, other", [("user", "k"), ("user", "j")].into()),
        ]
    }
    let subject = |name, max| Subject::new(name, Everyone).limit(quota(max, HOUR));
    let joint = || Rule::joint("p", [subject("user", 1), subject("org", 2)]).expect("valid");
    let absent = Rule::joint("p", [subject("user", 1), subject("org", 2).skip_absent()]);
    let plain = hourly(1).with_key(Everyone);
    for rule in [
        plain,
        joint(),
        joint().into_shadow(),
        absent.expect("valid"),
    ] {
        let [called, checked] = [0, 1].map(|_| paused(rule.clone()));
        for ((name, of_call), (_, of_check)) in keys().into_iter().zip(keys()) {
            for round in 0..2 {
                let call = called.call("p").key(of_call.clone());
                let by_call = call.run(async || ()).await.map_err(|it| told(&it));
                let check = checked.check("p", of_check.clone());
                let by_check = check.await.map(|_| ()).map_err(|it| told(&it));
                assert_eq!(by_call, by_check, "{name}, {round}");
            }
        }
        let [of_call, of_check] = [&called, &checked].map(counted);
        assert_eq!(of_call.denials, of_check.denials);
        assert_eq!(of_call.units, of_check.units);
    }
}

/// The future of a call is made of the function's, and not boxed: a big one costs no allocation.
#[test]
fn a_call_allocates_no_future() {
    let runtime = kit::still_runtime();
    let limits = Limits::new([hourly(1_000)]);
    let measure = |is_big: bool| {
        let first = call(&limits).run(async || ());
        runtime.block_on(first).expect("room");
        let calls = allocation_counter::measure(|| {
            runtime.block_on(async {
                let call = call(&limits);
                if is_big {
                    let run = async || {
                        let kept = [7_u8; 8_192];
                        tokio::task::yield_now().await;
                        std::hint::black_box(&kept).len()
                    };
                    call.run(run).await.expect("room");
                } else {
                    call.run(async || ()).await.expect("room");
                }
            });
        });
        calls.bytes_total
    };
    measure(false);
    let [small, big] = [measure(false), measure(true)];
    let is_boxed = big >= small + 4_096;
    assert!(!is_boxed, "{small} bytes, and with a big future {big}");
}
