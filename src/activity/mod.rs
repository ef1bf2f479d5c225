//! What has happened lately, for the page and the fleet: whose requests were denied, by which
//! quotas keys were decided last, and how much the busiest rules have counted in each second and
//! minute. `src/metrics/` counts from the start.

#[cfg_attr(not(feature = "page"), path = "no_key_notes.rs")]
pub(crate) mod key_notes;
#[cfg(feature = "page")]
pub(crate) mod rates;
