//! Attacks on what the layer and `Limits` promise, only through the public API. Each test names the
//! law or the promise it attacks.

mod calls;
mod counters;
mod events;
mod first_steps;
mod joint;
mod keys;
mod limits;
mod many_plans;
mod outcomes;
mod outgoing;
mod owed;
mod page;
mod permits;
mod plans;
mod published;
mod reload;
mod shadow;
mod waiting;
mod waiting_requests;

use kit::prelude::*;

/// Held by a test that installs limits for the process.
static INSTALLED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
