//! A callback answers in the function's place, and what it returns is what the function returns.

use std::sync::{Arc, LazyLock};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate::key::{Everyone, KeyError};
use tidegate::layer::{Refused, SubjectKeys};
use tidegate::rule::OnError;
use tidegate::{
    Denied, ErrorCallbackChain, Failed, Limits, MemoryStore, Quota, Recovery, Rule, limited,
};

use crate::{Error, once};

/// A key that the rule "export" has, or one that gets no decision.
fn key(is_known: bool) -> SubjectKeys {
    match is_known {
        true => "alice".into(),
        false => [("user", "alice")].into(),
    }
}

async fn last_report(_: Denied) -> Result<u32, Error> {
    Ok(0)
}

async fn busy(_: Failed) -> Result<u32, Error> {
    Err(Error::Own)
}

/// A rule that proceeds where the store fails comes before the callbacks.
#[tokio::test]
async fn what_the_rule_says_comes_first() {
    #[limited("export", key = Everyone, limits = limits, degrade = last_report, on_error = busy)]
    async fn export(limits: &Limits) -> Result<u32, Error> {
        Ok(7)
    }
    for (on_error, expected) in [
        (OnError::Proceed, Ok(7)),
        (OnError::Respond, Err(Error::Own)),
    ] {
        let rule = Rule::new("export", [Quota::per_hour(1)]).expect("a rule");
        let limits = Limits::new([rule.with_on_error(on_error)]);
        let limits = limits.store(MemoryStore::with_max_keys(0));
        assert_eq!(export(&limits).await, expected);
    }
}

#[tokio::test]
async fn with_both_the_type_needs_no_conversion() {
    #[limited(
        "export",
        key = key(known),
        limits = limits,
        degrade = async |_: Denied| 1,
        on_error = async |_: Failed| 2,
    )]
    async fn number(limits: &Limits, known: bool) -> u32 {
        0
    }
    #[limited("report", key = Everyone, limits = limits, degrade = skip, on_error = log)]
    async fn job(limits: &Limits, runs: &mut u32) {
        *runs += 1;
    }
    async fn skip(_: Denied) {}
    async fn log(_: Failed) {}
    let limits = once();
    assert_eq!(number(&limits, true).await, 0);
    assert_eq!(number(&limits, true).await, 1);
    assert_eq!(number(&limits, false).await, 2);
    let mut runs = 0;
    job(&limits, &mut runs).await;
    job(&limits, &mut runs).await;
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn degrade_alone_leaves_failures_to_the_type() {
    #[limited("export", key = key(known), limits = limits, degrade = last_report)]
    async fn export(limits: &Limits, known: bool) -> Result<u32, Error> {
        Ok(7)
    }
    let limits = once();
    assert_eq!(export(&limits, true).await, Ok(7));
    assert_eq!(export(&limits, true).await, Ok(0));
    assert_eq!(export(&limits, false).await, Err(Error::Refused));
}

#[tokio::test]
async fn a_chain_answers_failures_by_their_type() {
    type Chain<T> = ErrorCallbackChain<T>;
    static ERRORS: LazyLock<Chain<Result<u32, Error>>> = LazyLock::new(|| {
        Chain::default()
            .on::<KeyError>(async |_: Failed| Recovery::Respond(Ok(8)))
            .on::<Error>(async |_: Failed| Recovery::Respond(Ok(9)))
    });
    struct Reports {
        limits: Limits,
        errors: Arc<Chain<Number>>,
    }
    impl Reports {
        #[limited(
            "report",
            key = key(known),
            limits = self.limits,
            degrade = async |_| Number(1),
            on_error_chain = self.errors,
        )]
        async fn report(&self, known: bool) -> Number {
            Number(0)
        }
    }
    #[limited("export", key = key(known), limits = limits, on_error_chain = ERRORS)]
    async fn export(limits: &Limits, known: bool) -> Result<u32, Error> {
        Err(Error::Own)
    }
    let limits = once();
    assert_eq!(export(&limits, true).await, Ok(9), "its own error");
    assert_eq!(export(&limits, false).await, Ok(8));
    assert_eq!(export(&limits, true).await, Err(Error::Refused), "denied");

    let errors = Chain::default().on::<KeyError>(async |_: Failed| Recovery::Respond(Number(2)));
    let errors = Arc::new(errors);
    let reports = Reports { limits, errors };
    assert_eq!(reports.report(true).await, Number(0));
    assert_eq!(reports.report(true).await, Number(1));
    assert_eq!(reports.report(false).await, Number(2));
}

#[tokio::test]
async fn a_chain_leaves_the_rest_to_the_callbacks() {
    #[limited(
        "export",
        key = key(known),
        limits = limits,
        degrade = async |_| 1,
        on_error = async |_| 2,
        on_error_chain = errors,
    )]
    async fn export(limits: &Limits, known: bool, errors: &ErrorCallbackChain<u32>) -> u32 {
        0
    }
    let limits = once();
    let none = ErrorCallbackChain::default();
    let some = ErrorCallbackChain::default().any(async |_: Failed| Recovery::Respond(3));
    assert_eq!(export(&limits, true, &none).await, 0);
    assert_eq!(export(&limits, true, &some).await, 1);
    assert_eq!(export(&limits, false, &none).await, 2);
    assert_eq!(export(&limits, false, &some).await, 3);
}

/// It says by itself what a failure without an answer becomes.
#[derive(Debug, PartialEq)]
struct Number(u32);

impl From<Refused> for Number {
    fn from(_: Refused) -> Self {
        Self(u32::MAX)
    }
}

#[tokio::test]
async fn callbacks_are_methods_and_closures_over_the_arguments() {
    struct Reports {
        limits: Limits,
    }
    impl Reports {
        #[limited("export", key = name, limits = self.limits, degrade = Self::none, on_error = fail)]
        async fn export(&self, name: &str) -> Result<u32, Error> {
            Ok(7)
        }
        #[limited(
            "report",
            key = name,
            limits = self.limits,
            degrade = async move |_| Ok(length),
            on_error = fail,
        )]
        async fn report(&self, name: String, length: usize) -> Result<usize, Error> {
            drop(name);
            Err(Error::Own)
        }
        async fn none(denied: Denied) -> Result<u32, Error> {
            Ok(denied.decision.remaining() as u32)
        }
    }
    async fn fail<T>(_: Failed) -> Result<T, Error> {
        Err(Error::Own)
    }
    let limits = once();
    let reports = Reports { limits };
    assert_eq!(reports.export("alice").await, Ok(7));
    assert_eq!(reports.export("alice").await, Ok(0));
    assert_eq!(reports.report("alice".into(), 5).await, Err(Error::Own));
    assert_eq!(reports.report("alice".into(), 5).await, Ok(5));
}

#[tokio::test]
async fn hidden_responses_have_callbacks_that_return_responses() {
    #[limited("export", key = Everyone, limits = limits, degrade = slow_down, on_error = fail)]
    async fn export(limits: &Limits) -> impl IntoResponse {
        "done"
    }
    #[limited("report", key = Everyone, limits = limits, degrade = slow_down)]
    async fn report(limits: &Limits) -> impl IntoResponse {
        (StatusCode::CREATED, "done")
    }
    async fn slow_down(_: Denied) -> Response {
        StatusCode::IM_A_TEAPOT.into_response()
    }
    async fn fail(_: Failed) -> Response {
        StatusCode::BAD_GATEWAY.into_response()
    }
    let limits = once();
    let status = export(&limits).await.into_response().status();
    assert_eq!(status, StatusCode::OK);
    let status = export(&limits).await.into_response().status();
    assert_eq!(status, StatusCode::IM_A_TEAPOT);
    let status = report(&limits).await.into_response().status();
    assert_eq!(status, StatusCode::CREATED);
    let status = report(&limits).await.into_response().status();
    assert_eq!(status, StatusCode::IM_A_TEAPOT);
}
