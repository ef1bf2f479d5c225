//! Functions that a rule limits: what runs, what answers in its place, and what it costs.

use std::io;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use axum::response::Response;
use axum::routing::get;
use tidegate::callback::FailureKind;

use crate::*;

fn limits(max: u64) -> Limits {
    Limits::new([per_minute("export", max)])
}

/// Their store never decides.
fn broken(rule: Rule) -> Limits {
    Limits::new([rule]).store(Stub::down())
}

/// A function that never runs.
async fn never<T>() -> T {
    panic!("it ran")
}

#[tokio::test(start_paused = true)]
async fn without_callbacks_a_refusal_is_returned() {
    let limits = limits(1);
    let call = || limits.call("export").key("alice");
    assert_eq!(call().run(async || 7).await.expect("room"), 7);

    let refused = call().run(never::<u8>).await.expect_err("used up");
    assert_eq!(refused.rule().path(), "export");
    assert!(refused.retry_after().expect("a time") > 59 * SECOND);
    let failed = call().try_run(never::<io::Result<u8>>).await;
    assert!(matches!(failed, Err(CallError::Denied(refused)) if refused.decision().is_some()));

    let bob = limits.call("export").key("bob");
    let fails = async || Err::<(), _>(io::ErrorKind::NotFound);
    let own = bob.try_run(fails).await;
    assert!(matches!(
        own,
        Err(CallError::Inner(io::ErrorKind::NotFound))
    ));

    let broken = broken(per_minute("export", 1));
    let failed = broken.call("export").try_run(never::<io::Result<u8>>).await;
    let Err(CallError::Failed(refused)) = failed else {
        panic!("{failed:?}")
    };
    let kind = refused.error().map(StoreError::kind);
    assert_eq!(kind, Some(StoreErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn callbacks_answer_in_its_place() {
    let limits = limits(1);
    let name = String::from("alice");
    let call = async |limits: &Limits| {
        let call = limits.call("export").key(&name);
        let report = call.run(async || format!("the report of {name}")).await;
        let refused = match report {
            Ok(report) => return report,
            Err(refused) => refused,
        };
        // They borrow what is around them.
        let degrade = async |denied: Denied| {
            let of = (denied.rule.path(), denied.cost, denied.key);
            assert_eq!(of, ("export", 1, Key::from(&name)));
            format!("the last report of {name}")
        };
        let on_error = async |failed: Failed| {
            let expected = FailureKind::Store(StoreErrorKind::Unavailable);
            assert_eq!(failed.kind(), expected);
            format!("nothing for {name}")
        };
        refused.answer_by(degrade, on_error).await
    };
    assert_eq!(call(&limits).await, "the report of alice");
    assert_eq!(call(&limits).await, "the last report of alice");
    let broken = broken(per_minute("export", 1));
    assert_eq!(call(&broken).await, "nothing for alice");
}

/// A degrade callback gets what was denied; what is not decided stays a refusal.
#[tokio::test(start_paused = true)]
async fn one_callback_alone() {
    let call = |limits: &Limits| limits.call("export").key("alice");
    let limits = limits(1);
    assert_eq!(call(&limits).run(async || 7).await.expect("room"), 7);
    let refused = call(&limits).run(never::<u8>).await.expect_err("used up");
    let denied = refused.into_denied().expect("it was denied");
    assert_eq!(denied.decision.remaining(), 0);
    let broken = broken(per_minute("export", 1));
    let refused = call(&broken).run(never::<u8>).await;
    let refused = refused.expect_err("no decision").into_denied();
    assert!(refused.expect_err("not denied").error().is_some());
}

/// A caller that wants to know of failures comes before what the rule says about them; otherwise the
/// function runs.
#[tokio::test(start_paused = true)]
async fn the_rule_says_what_a_failure_does() {
    let broken = broken(per_minute("export", 0).with_on_error(OnError::Proceed));
    let call = || broken.call("export");
    assert_eq!(call().run(async || 7).await.expect("it proceeds"), 7);
    let refused = call().refuse_on_error().run(never::<u8>).await;
    let answer = refused.expect_err("no decision");
    let answer = answer.answer_by(async |_| 1, async |_| 2);
    assert_eq!(answer.await, 2);
    assert!(call().refuse_on_error().await.is_err());
    assert_eq!(counted(&broken, "export").proceeded, 1);
}

/// The chain answers by the type of the error, also that of the function.
#[tokio::test(start_paused = true)]
async fn a_chain_of_error_callbacks() {
    let chain = ErrorCallbackChain::<io::Result<u8>>::default()
        .on::<StoreError>(async |failed: Failed| match failed.rule.path() {
            "proceeds" => Recovery::Proceed,
            _ => Recovery::Respond(Ok(1)),
        })
        .on::<io::Error>(async |failed: Failed| {
            let error = failed.downcast_ref::<io::Error>().expect("its type");
            match error.kind() {
                io::ErrorKind::BrokenPipe => Recovery::Respond(Ok(2)),
                io::ErrorKind::NotFound => panic!("in a callback"),
                _ => Recovery::Propagate,
            }
        });
    let call = |limits: &Limits, path: &str| limits.call(path);
    let broken_pipe = async || Err(io::ErrorKind::BrokenPipe.into());
    let own = |kind: io::ErrorKind| {
        let call = call(&limits(9), "export");
        let chain = &chain;
        async move { call.try_run_with(chain, async || Err(kind.into())).await }
    };
    assert_eq!(own(io::ErrorKind::BrokenPipe).await.expect("an answer"), 2);
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::NotFound] {
        let Err(CallError::Inner(error)) = own(kind).await else {
            panic!("not its own error")
        };
        assert_eq!(error.kind(), kind);
    }
    // `run` does not look at what the function returns.
    let ran = call(&limits(9), "export").run_with(&chain, broken_pipe);
    let ran = ran.await;
    assert!(ran.expect("room").is_err());

    let export = call(&broken(per_minute("export", 0)), "export");
    assert_eq!(
        export.try_run_with(&chain, never).await.expect("an answer"),
        1
    );
    let proceeds = call(&broken(per_minute("proceeds", 0)), "proceeds");
    let proceeded = proceeds.try_run_with(&chain, async || Ok(7)).await;
    assert_eq!(proceeded.expect("it proceeds"), 7);

    // A denial is no error, and the chain is not asked.
    let denied = call(&limits(0), "export").try_run_with(&chain, never).await;
    assert!(matches!(denied, Err(CallError::Denied(_))));
    // What is not limited is not answered, either.
    let unlimited = call(&limits(0), "other").try_run_with(&chain, broken_pipe);
    let unlimited = unlimited.await;
    assert!(matches!(unlimited, Err(CallError::Inner(_))));
}

/// A key that lacks is a failure, which no callback may turn into an admission.
#[tokio::test(start_paused = true)]
async fn a_missing_key_never_proceeds() {
    let of = |name, max| Subject::new(name, Bearer).limit(Quota::per_minute(max));
    let rule = Rule::joint("api", [of("user", 1), of("org", 9)]).expect("valid");
    let limits = Limits::new([rule]);
    let chain =
        ErrorCallbackChain::<u8>::default().on::<KeyError>(async |_: Failed| Recovery::Proceed);
    let call = || limits.call("api").key([("user", Key::from("alice"))]);
    let refused = call().run_with(&chain, never).await;
    assert!(refused.expect_err("a key lacks").key_error().is_some());
    let refused = call().run(never::<u8>).await.expect_err("a key lacks");
    let on_error = async |failed: Failed| {
        assert!(matches!(failed.kind(), FailureKind::Key(_)));
        2
    };
    assert_eq!(refused.answer_by(async |_| 1, on_error).await, 2);
}

/// With `refund-on = ["error"]` an `Err` gives back, also through a layer; another outcome does not.
#[tokio::test(start_paused = true)]
async fn an_error_gives_back() {
    let of = |outcome| Limits::new([refunding("export", 1, &[outcome])]);
    let fails = async || Err::<(), _>(io::ErrorKind::NotFound);
    let left = async |limits: &Limits| {
        assert!(limits.flush(SECOND).await);
        left(limits, "export", "alice").await
    };
    for (outcome, expected) in [("error", 1), ("2xx", 0)] {
        let limits = of(outcome);
        let call = || limits.call("export").key("alice");
        assert!(call().try_run(fails).await.is_err());
        assert_eq!(left(&limits).await, expected, "{outcome}");
        let chain = ErrorCallbackChain::default();
        let failed = call().try_run_with(&chain, fails).await;
        let is_own = matches!(failed, Err(CallError::Inner(_)));
        assert_eq!(is_own, expected == 1);
        assert_eq!(left(&limits).await, expected, "{outcome}");
    }

    let limits = of("error");
    let call = limits.call("export").key("alice");
    assert!(call.try_run(async || io::Result::Ok(())).await.is_ok());
    assert_eq!(left(&limits).await, 0, "no error");

    let limits = of("error");
    let service = tower::ServiceBuilder::new()
        .layer(limits.layer("export").key_by(|_| Ok("alice".into())))
        .service_fn(async |_| Err::<Response, _>(io::Error::other("broken")));
    let failed = service.oneshot(crate::get("/")).await;
    assert_eq!(failed.expect_err("its own").to_string(), "broken");
    assert_eq!(left(&limits).await, 1);
}

/// The function finds its own charge, and no other call's.
#[tokio::test(start_paused = true)]
async fn a_function_settles_its_charge() {
    let owing = per_minute("export", 100).with_owe_at_most(50);
    let quiet = per_minute("quiet", 100).into_shadow();
    let limits = Limits::new([owing, per_minute("mail", 10), quiet]);
    let left = async |path: &str| left(&limits, path, "alice").await;
    let call = |path: &str| limits.call(path).key("alice");
    let charged = async || Charges::current().len();
    assert_eq!(charged().await, 0);

    let settled = call("export").cost(60).run(async || {
        let outer = Charges::current();
        assert_eq!(call("mail").run(charged).await.expect("room"), 1);
        let mailed = call("mail").try_run(async || Charges::current().refund().await);
        assert_eq!(mailed.await.expect("room"), 1);
        for path in ["no rule", "quiet"] {
            assert_eq!(call(path).run(charged).await.expect("it runs"), 0, "{path}");
        }
        assert_eq!(call("mail").cost(0).run(charged).await.expect("room"), 1);
        assert_eq!(tokio::spawn(charged()).await.expect("no panic"), 0);
        let now = Charges::current();
        assert_eq!(now[0].take().rule().path(), "export");
        assert_eq!(now.settle(20).await.expect("an answer").given_back, 40);
        outer.refund().await.expect("an answer")
    });
    assert_eq!(settled.await.expect("room"), 0, "it was settled already");
    assert_eq!((left("export").await, left("mail").await), (80, 9));
    assert_eq!(charged().await, 0);

    // With a chain, and beyond what was reserved.
    let chain = ErrorCallbackChain::default();
    let owed = call("export").run_with(&chain, async || {
        let settled = Charges::current().settle(11).await;
        settled.expect("an answer").charged
    });
    assert_eq!(owed.await.expect("room"), 10);
    assert_eq!(left("export").await, 69);
}

/// A call that waits hopes for the units of a function that has asked for its charge.
#[tokio::test(start_paused = true)]
async fn a_call_waits_for_what_a_function_gives_back() {
    let limits = Limits::new([per_minute("export", 1).with_settling(true)]);
    let call = |wait| limits.call("export").key("alice").wait(wait);
    let running = call(Duration::ZERO).run(async || {
        let charges = Charges::current();
        sleep(SECOND).await;
        charges.refund().await
    });
    let waiting = call(5 * SECOND).run(async || 7);
    let (given_back, waited) = tokio::join!(running, waiting);
    assert_eq!(given_back.expect("room").expect("an answer"), 1);
    assert_eq!(waited.expect("what was given back"), 7);
}

/// The permit is held as long as the function runs, also where its future is dropped.
#[tokio::test(start_paused = true)]
async fn a_permit_is_held_while_it_runs() {
    let rule = per_minute("export", 60).with_max_concurrent(1);
    let limits = Limits::new([rule.expect("valid")]);
    let call = || limits.call("export").key("alice");
    let nested = async || call().run(async || ()).await.is_err();
    let inner = call().run(nested).await;
    assert!(inner.expect("room"), "the first one runs");
    assert!(call().run(async || ()).await.is_ok());

    let long = call();
    let running = tokio::spawn(async move { long.run(async || sleep(600 * SECOND).await).await });
    tokio::task::yield_now().await;
    assert!(call().run(async || ()).await.is_err());
    // It waits for the permit.
    let waiting = call().wait(5 * SECOND).run(async || 7);
    let (waited, ()) = tokio::join!(waiting, async {
        advance(SECOND / 10).await;
        running.abort();
    });
    assert_eq!(waited.expect("the permit came back"), 7);
}

/// Costs, plans and quotas from a table apply as in a layer, and layer, check and call share counts.
#[tokio::test(start_paused = true)]
async fn it_decides_as_a_layer_does() {
    let pro = Quotas::new([Quota::per_minute(20)]).expect("valid");
    let rule = per_minute("export", 10).with_plan("pro", pro);
    let world = World::paused([rule.expect("valid")]);
    let call = || world.limits.call("export").key("alice");
    call().cost(4).run(async || ()).await.expect("room");
    world.limits.check("export", "alice").await.expect("room");
    assert_eq!(world.ask("export", "x-key: alice").await.status, 200);
    assert_eq!(world.left("export", "alice").await, 4);
    let pro = call().cost(14).plan("pro");
    pro.run(async || ()).await.expect("20 for pro");
    let quotas = crate::plan_value([Quota::per_minute(21)]);
    let call = || call().plan_value(quotas.clone());
    call().run(async || ()).await.expect("21 in the table");
    assert!(call().run(never::<()>).await.is_err());

    let shadow = Limits::new([per_minute("export", 0).into_shadow()]);
    let ran = shadow.call("export").run(async || 7).await;
    assert_eq!(ran.expect("it denies nothing"), 7);
}

/// In a handler `?` answers with the refusal, or with the function's own error.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_response() {
    struct Own;
    impl IntoResponse for Own {
        fn into_response(self) -> Response {
            StatusCode::IM_A_TEAPOT.into_response()
        }
    }
    let limits = limits(1);
    let handler = get(async move || {
        let call = limits.call("export").key("alice");
        let done: Result<&str, CallError<Own>> = call.try_run(async || Err(Own)).await;
        done
    });
    let app = Router::new().route("/", handler);
    assert_eq!(status(&app, "/").await, StatusCode::IM_A_TEAPOT);
    let denied = send(&app, "/").await;
    assert_eq!(denied.status(), DENIED);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert!(text(denied).await.contains("quota-exceeded"));

    struct Mine(Refused);
    impl From<Refused> for Mine {
        fn from(refused: Refused) -> Self {
            Self(refused)
        }
    }
    let denied = Limits::new([per_minute("export", 0)]);
    let call = denied.call("export");
    let failed = call.try_run(never::<Result<(), Mine>>).await;
    let failed = failed.map_err(CallError::flatten);
    assert!(failed.is_err_and(|it| it.0.decision().is_some()));
}

/// The future is `Send` where the function is, and needs to be neither `'static` nor boxed.
#[tokio::test(start_paused = true)]
async fn its_future_is_what_the_function_is() {
    let (limits, ran) = (limits(9), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&ran);
    let task = tokio::spawn(async move {
        let call = limits.call("export").key("alice");
        let chain = ErrorCallbackChain::default();
        let count = async || {
            sleep(millis(1)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        };
        if let Err(refused) = call.run_with(&chain, count).await {
            refused.answer_by(async |_| (), async |_| ()).await;
        }
        let bob = limits.call("export").key("bob");
        bob.run(async || ()).await.expect("room");
        drop(Rc::new(7));
    });
    task.await.expect("no panic");
    assert_eq!(ran.load(Ordering::Relaxed), 1);

    let local = Rc::new(7);
    let kept = Rc::clone(&local);
    let function = async move || {
        tokio::task::yield_now().await;
        *kept
    };
    let ran = Limits::new([]).call("export").run(function).await;
    assert_eq!(ran.expect("no rule"), *local);
}

/// Without limits the process limits nothing; the last ones that are installed apply.
#[tokio::test(start_paused = true)]
async fn limits_of_the_process() {
    let _installed = crate::INSTALLED.lock().await;
    let call = async || Limits::installed().call("installed").run(async || ()).await;
    assert!(call().await.is_ok());
    Limits::new([per_minute("installed", 0)]).install();
    assert!(call().await.is_err());
    let replaced = Limits::new([per_minute("installed", 1)]).install();
    assert!(replaced.is_some());
    assert!(call().await.is_ok());
    assert!(call().await.is_err(), "they keep their counts");
}

/// What tonic makes a status of.
#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_fields_of_a_grpc_answer() {
    let refused = limits(0).call("export").run(never::<()>).await;
    let fields = refused.expect_err("used up").into_grpc_fields();
    assert_eq!(fields["grpc-status"], "8");
    assert_eq!(fields["grpc-message"], "quota exceeded: export");
    assert!(!fields.contains_key("content-type"));
    let failed = broken(per_minute("export", 1));
    let failed = failed.call("export").run(never::<()>).await;
    let fields = failed.expect_err("no decision").into_grpc_fields();
    assert_eq!(fields["grpc-status"], "14");
}
