//! Callbacks: what answers a request instead of the handler.
//!
//! A [`DegradeCallback`] answers a request that was denied. An [`ErrorCallback`] answers a request
//! for which no decision could be made, or whose handler failed. An
//! [`ErrorCallbackChain`] has an error callback for each type of error.
//!
//! ```
//! use std::time::Duration;
//! use http::StatusCode;
//! use tidegate::key::KeyError;
//! use tidegate::{ErrorCallbackChain, Failed, RateLimitLayer, Recovery, StoreError};
//!
//! let errors = ErrorCallbackChain::new()
//!     .on::<StoreError>(async |_: Failed| Recovery::Proceed)
//!     .on::<KeyError>(async |_: Failed| (StatusCode::UNAUTHORIZED, "log in first"));
//! let layer = RateLimitLayer::new("export", Duration::from_secs(60), 1)
//!     .degrade_fn(async |denied| {
//!         let wait = denied.decision.retry_after().unwrap_or_default();
//!         format!("the last report is still fresh, come back in {} s", wait.as_secs())
//!     })
//!     .on_error(errors);
//! # let _ = layer;
//! ```
//!
//! A closure that uses what it has captured clones it, and returns an `async move` block:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidegate::RateLimitLayer;
//!
//! let last_report = Arc::<str>::from("the report of yesterday");
//! let layer = RateLimitLayer::new("export", Duration::from_secs(60), 1).degrade_fn(move |_| {
//!     let report = Arc::clone(&last_report);
//!     async move { report.to_string() }
//! });
//! # let _ = layer;
//! ```
//!
//! Without callbacks, [`Problem`] answers: HTTP requests with a problem document, gRPC requests
//! with a gRPC status. [`is_grpc`] tells a custom callback what the request expects. What it
//! returns gets the fields of a denial, and the details if it is a gRPC status 8. Callbacks may be
//! shared by many routes as an `Arc`. A panic in a callback is logged and answered with a 500, or
//! for gRPC with the status 13.

// The default answers stand here, too: `form.rs` finds the form that a request expects, and
// `problem_document.rs`, `grpc.rs`, `connect.rs` and `json_rpc.rs` write one each;
// `grpc_details.rs` has what a gRPC status 8 says besides. `problem_document.rs` also catches the
// panics of user code. Which callback is asked, and the `RateLimit` fields of an answer, are known
// to `src/layer/`.

mod connect;
mod degrade_callback;
mod error_callback;
mod form;
pub(crate) mod grpc;
pub(crate) mod grpc_details;
mod json_rpc;
mod problem_document;

pub use degrade_callback::{BoxFuture, DegradeCallback, Denied};
pub use error_callback::{
    AlsoWithFallback, ErrorCallback, ErrorCallbackChain, FailOpen, Failed, FailureKind, Recovery,
};
pub(crate) use error_callback::{Cause, Instead, recover, recover_inner, recover_own};
pub use form::Form;
pub(crate) use form::{AnswerForm, AnswerReason};
pub(crate) use grpc::GrpcCall;
pub use grpc::is_grpc;
pub use problem_document::Problem;
pub(crate) use problem_document::{
    Panicked, RetryAfter, caught, guarded, internal_error, key_refused, push_json,
};
