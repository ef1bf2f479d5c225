//! Functions that a rule limits: what runs, what answers in its place, and what it costs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use tidegate::callback::FailureKind;
use tidegate::key::{Bearer, Everyone, KeyError};
use tidegate::layer::{CallError, Refused};
use tidegate::rule::{OnError, Quotas, Subject};
use tidegate::store::{Charges, StoreErrorKind, StoreFuture};
use tidegate::{
    Denied, ErrorCallbackChain, Failed, Key, Limits, MemoryStore, Quota, Recovery, Rule, StoreError,
};
use tokio::time::{advance, sleep};
use tower::ServiceExt;

use crate::text;
use kit::per_minute;
use kit::stub::Stub;

fn limits(max: u64) -> Limits {
    Limits::new([per_minute("export", max)])
}

/// Their store never decides.
fn broken(rule: Rule) -> Limits {
    let broken = Stub::answering(MemoryStore::new(), |_| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        Some(StoreFuture::ready(Err(error)))
    });
    Limits::new([rule]).store(broken)
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
    assert!(refused.retry_after().expect("a time") > Duration::from_secs(59));
    let failed = call().try_run(never::<io::Result<u8>>).await;
    assert!(matches!(failed, Err(CallError::Denied(refused)) if refused.decision().is_some()));

    let bob = limits.call("export").key("bob");
    let own = bob
        .try_run(async || Err::<(), _>(io::ErrorKind::NotFound))
        .await;
    assert!(matches!(
        own,
        Err(CallError::Inner(io::ErrorKind::NotFound))
    ));

    let broken = broken(per_minute("export", 1));
    let failed = broken.call("export").try_run(never::<io::Result<u8>>).await;
    let Err(CallError::Failed(refused)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(
        refused.error().map(StoreError::kind),
        Some(StoreErrorKind::Unavailable)
    );
}

/// What a path without a rule runs is not limited; everybody together is without a key.
#[tokio::test(start_paused = true)]
async fn paths_and_keys() {
    let limits = limits(1);
    for _ in 0..3 {
        assert_eq!(
            limits
                .call("other")
                .key("alice")
                .run(async || 7)
                .await
                .expect("no rule"),
            7
        );
    }
    let user = ("alice".to_owned(), 7_u64);
    assert!(
        limits
            .call("export")
            .key(&user.0)
            .run(async || ())
            .await
            .is_ok()
    );
    assert!(
        limits
            .call("export")
            .key("alice")
            .run(async || ())
            .await
            .is_err(),
        "the same"
    );
    assert!(
        limits
            .call("export")
            .key(user.1)
            .run(async || ())
            .await
            .is_ok()
    );
    assert!(
        limits
            .call("export")
            .key(Everyone)
            .run(async || ())
            .await
            .is_ok()
    );
    assert!(
        limits.call("export").run(async || ()).await.is_err(),
        "everybody again"
    );
    assert!(
        limits
            .call("export")
            .key(Key::default())
            .run(async || ())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn callbacks_answer_in_its_place() {
    let limits = limits(1);
    let name = String::from("alice");
    let call = async |limits: &Limits| {
        let call = limits.call("export").key(&name);
        // They borrow what is around them.
        let call = call.degrade(async |denied: Denied| {
            assert_eq!(
                (denied.rule.path(), denied.cost, denied.key),
                ("export", 1, Key::from(&name))
            );
            format!("the last report of {name}")
        });
        let call = call.on_error(async |failed: Failed| {
            assert_eq!(
                failed.kind(),
                FailureKind::Store(StoreErrorKind::Unavailable)
            );
            format!("nothing for {name}")
        });
        call.run(async || format!("the report of {name}")).await
    };
    assert_eq!(call(&limits).await, "the report of alice");
    assert_eq!(call(&limits).await, "the last report of alice");
    assert_eq!(
        call(&broken(per_minute("export", 1))).await,
        "nothing for alice"
    );
}

/// With a degrade callback alone, what is not decided is returned.
#[tokio::test(start_paused = true)]
async fn one_callback_alone() {
    let last = async |_: Denied| 1;
    let call = |limits: &Limits| limits.call("export").key("alice").degrade(last);
    let limits = limits(1);
    assert_eq!(call(&limits).run(async || 7).await.expect("room"), 7);
    assert_eq!(call(&limits).run(never::<u8>).await.expect("an answer"), 1);
    let refused = call(&broken(per_minute("export", 1)))
        .run(never::<u8>)
        .await;
    assert!(refused.expect_err("no decision").error().is_some());
}

/// A callback comes before what the rule says about failures; without one the function runs.
#[tokio::test(start_paused = true)]
async fn the_rule_says_what_a_failure_does() {
    let rule = per_minute("export", 0).with_on_error(OnError::Proceed);
    let broken = broken(rule);
    assert_eq!(
        broken
            .call("export")
            .run(async || 7)
            .await
            .expect("it proceeds"),
        7
    );
    let call = broken
        .call("export")
        .degrade(async |_| 1)
        .on_error(async |_| 2);
    assert_eq!(call.run(never::<u8>).await, 2);
    let snapshot = broken.snapshot();
    let counted = snapshot
        .rules
        .iter()
        .find(|it| it.path == "export")
        .expect("it is counted");
    assert_eq!(counted.proceeded, 1);
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
    let own = |kind: io::ErrorKind| {
        let chain = &chain;
        async move {
            let call = limits(9).call("export").on_error_chain(chain);
            call.try_run(async || Err(kind.into())).await
        }
    };
    assert_eq!(own(io::ErrorKind::BrokenPipe).await.expect("an answer"), 2);
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::NotFound] {
        let Err(CallError::Inner(error)) = own(kind).await else {
            panic!("not its own error")
        };
        assert_eq!(error.kind(), kind);
    }
    // `run` does not look at what the function returns.
    let call = limits(9).call("export").on_error_chain(&chain);
    assert!(
        call.run(async || Err(io::ErrorKind::BrokenPipe.into()))
            .await
            .expect("room")
            .is_err()
    );

    let export = broken(per_minute("export", 0));
    let call = export.call("export").on_error_chain(&chain);
    assert_eq!(call.try_run(never).await.expect("an answer"), 1);
    let proceeds = broken(per_minute("proceeds", 0));
    let call = proceeds.call("proceeds").on_error_chain(&chain);
    assert_eq!(call.try_run(async || Ok(7)).await.expect("it proceeds"), 7);

    // A denial is no error, and the chain is not asked.
    let limits = limits(0);
    let call = limits.call("export").on_error_chain(&chain);
    assert!(matches!(
        call.try_run(never).await,
        Err(CallError::Denied(_))
    ));
    let call = limits
        .call("export")
        .degrade(async |_| Ok(3))
        .on_error_chain(&chain);
    assert_eq!(call.try_run(never).await.expect("an answer"), 3);
    // What is not limited is not answered, either.
    let call = limits.call("other").on_error_chain(&chain);
    let unlimited = call
        .try_run(async || Err(io::ErrorKind::BrokenPipe.into()))
        .await;
    assert!(matches!(unlimited, Err(CallError::Inner(_))));
}

/// A key that lacks is a failure, which no callback may turn into an admission.
#[tokio::test(start_paused = true)]
async fn a_missing_key_never_proceeds() {
    let user = Subject::new("user", Bearer).limit(Quota::per_minute(1));
    let limits = Limits::new([Rule::joint(
        "api",
        [
            user.clone(),
            Subject::new("org", Bearer).limit(Quota::per_minute(9)),
        ],
    )
    .expect("valid")]);
    let chain =
        ErrorCallbackChain::<u8>::default().on::<KeyError>(async |_: Failed| Recovery::Proceed);
    let keys = || [("user", Key::from("alice"))];
    let refused = limits
        .call("api")
        .key(keys())
        .on_error_chain(&chain)
        .run(never)
        .await;
    assert!(refused.expect_err("a key lacks").key_error().is_some());
    let call = limits
        .call("api")
        .key(keys())
        .degrade(async |_| 1)
        .on_error(async |failed| {
            assert!(matches!(failed.kind(), FailureKind::Key(_)));
            2
        });
    assert_eq!(call.run(never).await, 2);
}

/// With `refund-on = ["error"]` an `Err` gives back, also through a layer; another outcome does not.
#[tokio::test(start_paused = true)]
async fn an_error_gives_back() {
    let rule = |outcome| {
        per_minute("export", 1)
            .with_refund_on([outcome])
            .expect("valid")
    };
    let fails = async || Err::<(), _>(io::ErrorKind::NotFound);
    let left = async |limits: &Limits| {
        assert!(limits.flush(Duration::from_secs(1)).await);
        let left = limits.peek("export", "alice").await.expect("an answer");
        left.expect("a rule").remaining()
    };
    for (outcome, expected) in [("error", 1), ("2xx", 0)] {
        let limits = Limits::new([rule(outcome)]);
        assert!(
            limits
                .call("export")
                .key("alice")
                .try_run(fails)
                .await
                .is_err()
        );
        assert_eq!(left(&limits).await, expected, "{outcome}");
        let answers = limits.call("export").key("alice").degrade(async |_| Ok(()));
        let answers = answers.on_error(async |_| Ok(()));
        assert_eq!(answers.try_run(fails).await.is_err(), expected == 1);
        assert_eq!(left(&limits).await, expected, "{outcome}");
    }

    let limits = Limits::new([rule("error")]);
    assert!(
        limits
            .call("export")
            .key("alice")
            .try_run(async || io::Result::Ok(()))
            .await
            .is_ok()
    );
    assert_eq!(left(&limits).await, 0, "no error");

    let limits = Limits::new([rule("error")]);
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
    let left = async |path: &str| {
        let left = limits.peek(path, "alice").await.expect("an answer");
        left.expect("a rule").remaining()
    };
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
        assert_eq!(call("mail").cost(0).run(charged).await.expect("it runs"), 0);
        assert_eq!(tokio::spawn(charged()).await.expect("no panic"), 0);
        let now = Charges::current();
        assert_eq!(now[0].take().rule().path(), "export");
        assert_eq!(now.settle(20).await.expect("an answer").given_back, 40);
        outer.refund().await.expect("an answer")
    });
    assert_eq!(settled.await.expect("room"), 0, "it was settled already");
    assert_eq!((left("export").await, left("mail").await), (80, 9));
    assert_eq!(charged().await, 0);

    // With both callbacks, and beyond what was reserved.
    let call = call("export").degrade(async |_| 0).on_error(async |_| 0);
    let owed = call.run(async || {
        let settled = Charges::current().settle(11).await;
        settled.expect("an answer").charged
    });
    assert_eq!((owed.await, left("export").await), (10, 69));
}

/// A call that waits hopes for the units of a function that has asked for its charge.
#[tokio::test(start_paused = true)]
async fn a_call_waits_for_what_a_function_gives_back() {
    let limits = limits(1);
    let call = |wait| limits.call("export").key("alice").wait(wait);
    let running = call(Duration::ZERO).run(async || {
        let charges = Charges::current();
        sleep(Duration::from_secs(1)).await;
        charges.refund().await
    });
    let waiting = call(Duration::from_secs(5)).run(async || 7);
    let (given_back, waited) = tokio::join!(running, waiting);
    assert_eq!(given_back.expect("room").expect("an answer"), 1);
    assert_eq!(waited.expect("what was given back"), 7);
}

/// The permit is held as long as the function runs, also where its future is dropped.
#[tokio::test(start_paused = true)]
async fn a_permit_is_held_while_it_runs() {
    let rule = per_minute("export", 60)
        .with_max_concurrent(1)
        .expect("valid");
    let limits = Limits::new([rule]);
    let call = || limits.call("export").key("alice");
    let inner = call()
        .run(async || call().run(async || ()).await.is_err())
        .await;
    assert!(inner.expect("room"), "the first one runs");
    assert!(call().run(async || ()).await.is_ok());

    let running = tokio::spawn({
        let call = call();
        async move {
            call.run(async || sleep(Duration::from_secs(600)).await)
                .await
        }
    });
    tokio::task::yield_now().await;
    assert!(call().run(async || ()).await.is_err());
    // It waits for the permit.
    let waiting = call().wait(Duration::from_secs(5)).run(async || 7);
    let (waited, ()) = tokio::join!(waiting, async {
        advance(Duration::from_millis(100)).await;
        running.abort();
    });
    assert_eq!(waited.expect("the permit came back"), 7);
}

/// Costs, plans and quotas from a table apply as in a layer, and layer, check and call share counts.
#[tokio::test(start_paused = true)]
async fn it_decides_as_a_layer_does() {
    let rule = per_minute("export", 10)
        .with_plan("pro", Quotas::new([Quota::per_minute(20)]).expect("valid"))
        .expect("valid");
    let limits = Limits::new([rule]);
    let left = async || {
        let left = limits
            .peek("export", "alice")
            .await
            .expect("an answer")
            .expect("a rule");
        left.remaining()
    };
    limits
        .call("export")
        .key("alice")
        .cost(4)
        .run(async || ())
        .await
        .expect("room");
    limits.check("export", "alice").await.expect("room");
    let app: Router = Router::new().route(
        "/",
        get("1").layer(limits.layer("export").key_by(|_| Ok("alice".into()))),
    );
    let answer = app.oneshot(crate::get("/")).await.expect("infallible");
    assert_eq!((answer.status(), left().await), (StatusCode::OK, 4));
    let pro = limits.call("export").key("alice").cost(14).plan("pro");
    pro.run(async || ()).await.expect("20 for pro");
    let table = Quota::per_minute(21);
    let quotas = Arc::new(Quotas::new([table]).expect("valid"));
    let call = || {
        limits
            .call("export")
            .key("alice")
            .quotas(Arc::clone(&quotas))
    };
    call().run(async || ()).await.expect("21 in the table");
    assert!(call().run(never::<()>).await.is_err());

    let shadow = Limits::new([per_minute("export", 0).into_shadow()]);
    assert_eq!(
        shadow
            .call("export")
            .run(async || 7)
            .await
            .expect("it denies nothing"),
        7
    );
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
    let app = Router::new().route(
        "/",
        get(async move || {
            let call = limits.call("export").key("alice");
            let done: Result<&str, CallError<Own>> = call.try_run(async || Err(Own)).await;
            done
        }),
    );
    let ask = async || {
        app.clone()
            .oneshot(crate::get("/"))
            .await
            .expect("infallible")
    };
    assert_eq!(ask().await.status(), StatusCode::IM_A_TEAPOT);
    let denied = ask().await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert!(text(denied).await.contains("quota-exceeded"));

    struct Mine(Refused);
    impl From<Refused> for Mine {
        fn from(refused: Refused) -> Self {
            Self(refused)
        }
    }
    let denied = Limits::new([per_minute("export", 0)]);
    let failed = denied
        .call("export")
        .try_run(never::<Result<(), Mine>>)
        .await;
    assert!(
        failed
            .map_err(CallError::flatten)
            .is_err_and(|it| it.0.decision().is_some())
    );
}

/// The future is `Send` where the function is, and needs to be neither `'static` nor boxed.
#[tokio::test(start_paused = true)]
async fn its_future_is_what_the_function_is() {
    let (limits, ran) = (limits(9), Arc::new(AtomicU32::new(0)));
    let task = tokio::spawn({
        let ran = Arc::clone(&ran);
        async move {
            let call = limits.call("export").key("alice");
            let call = call.degrade(async |_| ()).on_error(async |_| ());
            let count = async || {
                sleep(Duration::from_millis(1)).await;
                ran.fetch_add(1, Ordering::Relaxed);
            };
            call.run(count).await;
            limits
                .call("export")
                .key("bob")
                .run(async || ())
                .await
                .expect("room");
            let not_send = std::rc::Rc::new(7);
            drop(not_send);
        }
    });
    task.await.expect("no panic");
    assert_eq!(ran.load(Ordering::Relaxed), 1);

    let local = std::rc::Rc::new(7);
    let kept = std::rc::Rc::clone(&local);
    let function = async move || {
        tokio::task::yield_now().await;
        *kept
    };
    assert_eq!(
        Limits::new([])
            .call("export")
            .run(function)
            .await
            .expect("no rule"),
        *local
    );
}

/// Without limits the process limits nothing; the last ones that are installed apply.
#[tokio::test(start_paused = true)]
async fn limits_of_the_process() {
    let _installed = crate::INSTALLED.lock().await;
    let call = async || Limits::installed().call("installed").run(async || ()).await;
    assert!(call().await.is_ok());
    Limits::new([per_minute("installed", 0)]).install();
    assert!(call().await.is_err());
    assert!(
        Limits::new([per_minute("installed", 1)])
            .install()
            .is_some()
    );
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
