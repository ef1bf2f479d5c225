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

use kit::page::{
    Answer, App, GET_VIEWS, HOST, ORIGIN, about, count, empty, hourly, posted, search, send, shop,
    store, user,
};
use kit::page_steps::play;
use tidegate::Page;
use tidegate::store::{Fleet, FleetState, OperatorKey, PeerReport, ProcessReport};
use tokio::time::Instant;

use crate::*;

/// What a busy machine may add to a bound of seconds.
const SLACK: Duration = Duration::from_secs(3);
