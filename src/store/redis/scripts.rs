//! The scripts that stores call.

use std::sync::LazyLock;

use crate::connection::{Library, Script, includes, scripts};

/// The files of `lua/include/` that these scripts have. A new file has to be listed here.
const LIBRARY: Library = Library {
    includes: includes![
        "take_begin",
        "page_begin",
        "page_write",
        "page_end",
        "holds",
        "core_begin",
        "core",
        "counters",
        "counters_take",
        "gcra",
        "gcra_take",
        "fixed_window",
        "fixed_window_take",
        "sliding_window",
        "sliding_window_take",
        "permits",
        "calendar",
        "calendar_read",
        "calendar_charge",
        "sliding_log",
        "sliding_log_take",
        "pace",
        "refunded_ranges",
        "refunded_ranges_add",
        "refund_begin",
        "counters_refund",
        "refund_end",
        "fleet",
    ],
    constants: include_str!("../../../lua/constants.txt"),
};

scripts! {
    OF_STORES of LIBRARY =>
    /// Decides by a sliding log. A script of takes repeats the number of its call itself.
    TAKE_SLIDING_LOG = as_it_is("sliding_log.lua");
    /// Decides by a sliding window.
    TAKE_SLIDING_WINDOW = as_it_is("sliding_window.lua");
    /// Decides by GCRA.
    TAKE_GCRA = as_it_is("gcra.lua");
    /// Decides by a fixed window.
    TAKE_FIXED_WINDOW = as_it_is("fixed_window.lua");
    /// Gives back what a sliding log has charged. Scripts of refunds are loaded ahead: with its
    /// text, a refund costs the server almost twice as much, and one that is sent again because the
    /// server does not know the script would lose its place among the takes.
    REFUND_SLIDING_LOG = new("refund/sliding_log.lua");
    /// Gives back what a sliding window has charged.
    REFUND_SLIDING_WINDOW = new("refund/sliding_window.lua");
    /// Gives back what GCRA has charged.
    REFUND_GCRA = new("refund/gcra.lua");
    /// Gives back what a fixed window has charged.
    REFUND_FIXED_WINDOW = new("refund/fixed_window.lua");
    /// Gives back what was charged in a period of the calendar.
    REFUND_CALENDAR = new("refund/calendar.lua");
    /// Gives permits of requests in progress back.
    RELEASE_PERMITS = new("permits/release.lua");
    /// Keeps them for another lease.
    RENEW_PERMITS = new("permits/renew.lua");
    /// Counts a failure of a take.
    LOCKOUT = new("lockout.lua");
}

/// Forgets what counts under one key of a store. It is called rarely, so it is not loaded ahead:
/// each call carries its text.
pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/reset.lua")));

/// Holds a key. It is called rarely, too.
pub(crate) static HOLD: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/hold.lua")));

/// Keeps what a process says of itself, and tells it what its service shares: once a second.
pub(crate) static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/fleet/report.lua")));

/// Lets a key through or blocks it for a while.
pub(crate) static SET_KEY: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/fleet/set_key.lua")));
