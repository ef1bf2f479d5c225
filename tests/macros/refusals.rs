//! Without callbacks a refusal becomes what the function returns.

use std::fmt;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate::key::Everyone;
use tidegate::layer::Refused;
use tidegate::{Limits, limited};

use crate::{Error, once};

#[tokio::test]
async fn results_take_it_as_their_error() {
    type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
    type Result<T> = std::result::Result<T, Error>;
    #[limited("export", key = Everyone, limits = limits)]
    async fn export(limits: &Limits) -> Result<()> {
        Ok(())
    }
    #[limited("report", key = Everyone, limits = limits)]
    async fn boxed(limits: &Limits) -> std::result::Result<(), Refused> {
        Ok(())
    }
    let limits = once();
    assert_eq!(export(&limits).await, Ok(()));
    assert_eq!(export(&limits).await, Err(Error::Refused));
    assert!(boxed(&limits).await.is_ok());
    assert!(
        boxed(&limits)
            .await
            .is_err_and(|it| it.decision().is_some())
    );

    // An alias with another name is a type like any other: it converts as a whole.
    #[limited("report", key = 7, limits = limits)]
    async fn aliased(limits: &Limits) -> Outcome<()> {
        Ok(())
    }
    assert!(aliased(&limits).await.is_ok());
    assert!(aliased(&limits).await.is_err());
}

#[tokio::test]
async fn responses_and_types_of_ones_own_are_made_of_it() {
    #[derive(Debug, PartialEq)]
    enum Report {
        Whole,
        Refused,
    }
    impl From<Refused> for Report {
        fn from(_: Refused) -> Self {
            Self::Refused
        }
    }
    #[limited("export", key = Everyone, limits = limits)]
    async fn export(limits: &Limits) -> Report {
        Report::Whole
    }
    #[limited("report", key = Everyone, limits = limits)]
    async fn report(limits: &Limits) -> Response {
        "done".into_response()
    }
    let limits = once();
    assert_eq!(export(&limits).await, Report::Whole);
    assert_eq!(export(&limits).await, Report::Refused);
    assert_eq!(report(&limits).await.status(), StatusCode::OK);
    assert_eq!(
        report(&limits).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn hidden_types_stay_hidden() {
    #[limited("export", key = Everyone, limits = limits)]
    async fn letters(limits: &Limits, text: &str) -> Result<impl Iterator<Item = char>, Error> {
        if text.is_empty() {
            return Err(Error::Own);
        }
        Ok(text.chars().rev())
    }
    #[limited("report", key = Everyone, limits = limits)]
    async fn nested(limits: &Limits) -> Result<(u8, Vec<impl fmt::Display>), Error> {
        Ok((1, vec!["a"]))
    }
    #[limited("report", key = text, limits = limits)]
    async fn response(limits: &Limits, text: &str) -> impl IntoResponse + use<> {
        if text == "none" {
            return Err(StatusCode::NOT_FOUND);
        }
        Ok([("x-text", text.to_owned())])
    }
    let limits = once();
    let letters = async || {
        letters(&limits, "abc")
            .await
            .map(|it| it.collect::<String>())
    };
    assert_eq!(letters().await, Ok("cba".into()));
    assert_eq!(letters().await, Err(Error::Refused));
    assert_eq!(
        nested(&limits).await.map(|it| it.1[0].to_string()),
        Ok("a".into())
    );
    let status = async |text| response(&limits, text).await.into_response().status();
    assert_eq!(status("some").await, StatusCode::OK);
    assert_eq!(status("some").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status("none").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_the_body_returns_is_coerced_to_the_type() {
    #[limited("export", key = Everyone, limits = limits)]
    async fn export<'a>(limits: &Limits, texts: &'a [String]) -> Result<&'a str, Error> {
        if texts.len() > 1 {
            return Ok(&texts[1]);
        }
        Ok(&texts[0])
    }
    #[limited("report", key = Everyone, limits = limits)]
    async fn boxed(limits: &Limits) -> Result<Box<dyn Fn() -> u8 + Send>, Error> {
        Ok(Box::new(|| 1))
    }
    let limits = once();
    assert_eq!(export(&limits, &["a".into()]).await, Ok("a"));
    assert_eq!(boxed(&limits).await.map(|it| it()).ok(), Some(1));
}
