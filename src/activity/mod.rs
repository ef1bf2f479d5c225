//! Recent activity for the page and the fleet: the keys that were denied, the quotas that decided
//! about a key last, and what the busiest rules have counted in each second and minute.
//! `src/metrics/` counts from the start.

#[cfg_attr(not(feature = "page"), path = "no_key_notes.rs")]
pub(crate) mod key_notes;
#[cfg(feature = "page")]
pub(crate) mod rates;
