//! The middleware that asks a store before the inner service runs.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tidegate::{PeerIp, RateLimitLayer};
//!
//! // Each client address: at most 5 requests in any 10 seconds, in all routes of the router.
//! let limited = RateLimitLayer::new("api", Duration::from_secs(10), 5)
//!     .key(PeerIp)
//!     .degrade_fn(async |denied| {
//!         format!("come back in {:?}", denied.decision.retry_after())
//!     });
//! let app: Router = Router::new()
//!     .route("/a", get(|| async { "a" }))
//!     .route("/b", get(|| async { "b" }))
//!     .layer(limited);
//! # let _ = app;
//! ```
//!
//! For each request, [`RateLimit`], the service that a [`RateLimitLayer`] makes,
//!
//! 1. finds the rule of its path; without a rule it calls the inner service,
//! 2. extracts the key and computes the cost from the request's head,
//! 3. asks the store, exactly once unless the request [waits](RateLimitLayer::wait),
//! 4. calls the inner service, or answers by the degrade callback if the store denied the request,
//!    or by the error callback if there is no decision.
//!
//! What this crate answers by itself suits the request: HTTP requests get a problem document, gRPC
//! requests a [gRPC status](crate::callback::Problem).
//!
//! Handlers get the [`Decision`](crate::Decision) and the [`Charges`](crate::store::Charges) as
//! extractors, middleware finds both in the extensions of the request and of the response, and
//! clients read the decision from the [`Headers`]. Nothing is kept in the service itself: all
//! services that a layer makes share its settings and its store, and answers do not depend on which
//! connection asks.
//!
//! # Several layers
//!
//! A request passes the layers from the outside in: the one that was added last to a router comes
//! first. The first denial ends it, and what the layers outside of it have charged stays charged
//! ([`Charges`](crate::store::Charges) on the response can give it back). So put the limit for each
//! client outside of the limit for all clients together: a client that is denied uses up nothing of
//! the others. Authentication goes outside of a layer whose key is the user, a layer with
//! [`lockout`](crate::Rule::with_lockout) outside of authentication, CORS outside of everything, or browsers show an error of CORS in place of the 429.
//!
//! [`Headers::Draft11`] has an item for each layer's quotas; the other fields show the tightest
//! limit of all layers. A store that gives no answer costs a request one time-out, not one for each
//! layer: for that long, later layers over the same store do not ask it. Its fallback decides, or
//! they get the same error.

// Here stands what one request or one call of a function needs between its rule and its response.
// Rules, charges, turns, numbers and reports concern several requests: each has its own room.
//
// The way of a request:
//
//     RateLimit::call             rate_limit.rs        the service
//       Gate::begin               gate.rs              the rule; none: the inner service is called
//         Gate::read_head         gate.rs              exemption, plan, key and cost, from the head
//         Gate::inspect           inspector.rs         looks for mistakes in the set-up
//         Gate::decide            gate.rs              with what outer layers know of the request
//           Decider::decide       decisions/decide.rs  operators' keys; asks: a `Deciding`
//             Store::take         on through wrappers, store, flight and script: see below
//     ResponseFuture::poll        response_future.rs   awaits the answer, unless it is there already
//       Deciding::decided         decisions/decide.rs  waits in its turn and asks again: a `Decided`
//       Gate::act                 responder.rs         has it counted, and what it means: an `Action`
//       the action                response_future.rs   the inner service, a callback, a response
//       Admission::finish         action.rs            the response: gives back by it, and fields
//
// From `Store::take` on, an `Ask` travels, which has the counts but not the rule. Its way in
// src/store/, where the store is `Resilient` around a `RedisStore`:
//
//     Guarded::take               guarded.rs           cached denial, breaker, bound, time-out
//       LocalFallback::answer     fallback.rs          decides where the store gives no answer
//         RedisStore::take        redis/mod.rs         a question: names, specs and costs
//           Connection::ask       crates/base/src/connection/: in a flight of its own, or with others
//           LoneTake              redis/lone_take.rs: most takes: of one count, in a call of its own
//           flight, TakeCall      redis/calls.rs, take_call.rs: which questions share a call
//             lua/                one script for each algorithm: usual case, then core
//
// A `Gate` reads the heads of a path's requests; the `Decider` that it has owns what decisions share,
// and knows nothing of HTTP: `Call` decides by it, too. What the application says about its requests
// are the gate's `Options` (options.rs). Beside these steps:
//
//     inspector.rs              looks for mistakes in the set-up
//     outer_layers.rs           a store that failed an outer layer is not asked again
//     subject_keys.rs           the keys that code gives a joint rule
//     upload.rs                 reads on what the client of an answered request still sends
//     outcome.rs                what is given back by the response
//     headers.rs                the fields of responses
//     look.rs                   what a request has left, to show it
//     call.rs                   functions that a rule limits, and checks: they enter at `decide`, and
//                               get what admitted.rs or refused.rs says
//     peek.rs                   what a key has left, for code
//     decisions/                what becomes of a take
//       decider.rs              what that needs of a path
//       waiting.rs              which takes may wait: the waiters are in src/waiting/
//       shadow_take.rs          takes whose answers deny nothing
//       counting.rs             what is counted and logged of takes; store_log.rs: of stores
//       listeners.rs            code that is told: of shares of calendar quotas that are used
//                               (crossing.rs), of keys that failures lock out (locked_out.rs)
//     ../fleet/operator_keys.rs keys that an operator lets through, blocks or raises
//
// The inner service is called only after the take is decided, and only the instance that was
// polled ready.
mod action;
mod admitted;
mod call;
mod decisions;
mod gate;
pub(crate) mod headers;
mod inspector;
mod look;
mod options;
mod outcome;
mod outer_layers;
mod peek;
mod rate_limit;
pub(crate) mod rate_limit_layer;
mod refused;
mod responder;
mod response_future;
mod subject_keys;
mod upload;

pub use crate::rule::headers::Headers;
pub use admitted::Admitted;
pub use call::Call;
pub use decisions::{Crossing, LockedOut};
pub(crate) use decisions::{Crossings, StoreLog, Warnings, on_lockout};
pub(crate) use gate::Gate;
pub(crate) use look::Look;
pub use look::RuleUsage;
pub(crate) use options::Options;
pub use peek::Peek;
pub use rate_limit::RateLimit;
pub use rate_limit_layer::RateLimitLayer;
pub use refused::{CallError, FromRefused, Refused};
pub use response_future::ResponseFuture;
pub use subject_keys::SubjectKeys;
