//! The page under attack: other sites, readers who may not change anything, text that an attacker
//! chose, broken requests, broken stores, floods. By the page's contract, from outside.

mod acl;
mod addresses;
mod blocked;
mod bodies;
mod fleet;
mod guard;
mod let_through;
mod limited;
mod pollers;
mod script;
mod secrets;
mod shared;
mod slow;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request, StatusCode};
use kit::page::{
    Answer, App, GET_VIEWS, HOST, ORIGIN, about, count, empty, hourly, posted, search, send, shop,
    store, user,
};
use kit::stub::Stub;
use kit::{PATIENT, Redis, calls, keys, millis, query, words};
use serde_json::{Value, json};
use tidegate::store::{Fleet, FleetState, OperatorKey, PeerReport, Report, StoreFuture};
use tidegate::{Header, Limits, Page, Quota, Rule};
use tokio::time::{Instant, sleep};

/// What a busy machine may add to a bound of seconds.
const SLACK: Duration = Duration::from_secs(3);
