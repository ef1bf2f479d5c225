//! Rules by path from a TOML file.
//!
//! ```toml
//! enabled = true                    # false: nothing is limited. Default: true
//! prefix = "CurrentLimiter:"        # of all keys in the store. Default: the store's own
//!
//! [client-ip]                       # whom the key "client-ip" trusts; it needs this table
//! trusted = ["10.0.0.0/8"]          # networks of proxies, [] for none; or: hops = 1, their number
//! field = "x-forwarded-for"         # or "forwarded", or any other field. Default: x-forwarded-for
//! ipv6-prefix = 64                  # bits of an IPv6 address that count. Default: 64
//!
//! [rules.getId]                     # a path; with other characters in quotes: [rules."/api/v1.2"]
//! max-count = 5
//! window = "10s"                    # ms, s, m, h, d and sums such as "1h 30m"
//!
//! [rules.export]                    # the same in the words of a properties file
//! max-count = 1
//! window-time = 1
//! window-time-unit = "MINUTES"      # MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS
//!
//! [rules.search]
//! max-count = 100
//! window = "1s"
//! algorithm = "gcra"                # sliding-log, sliding-window, gcra or fixed-window. Default: sliding-log
//! burst = 20                        # of gcra: so many at once, at least 1. Default: max-count
//!
//! [rules.feed]
//! max-count = 1000000
//! window = "1h"
//! algorithm = "sliding-window"
//! sub-windows = 64                  # of sliding-window: 1 to 1024. Default: 64
//!
//! [rules.login]
//! quotas = [                        # all of these have to have room
//!   { max-count = 5, window = "1m" },
//!   { max-count = 50, window = "1d", name = "daily" },
//! ]
//! key = ["client-ip", "header:x-tenant"]  # path, peer-ip, client-ip, matched-path, header:<name>
//! cost = 1                          # units for a request. Default: 1
//! on-error = "respond"              # or "proceed", or "fallback": where the store cannot decide. Default:
//!                                   # fallback where the store has one, and respond where it has none
//! ```
//!
//! A mistake is one [`ConfigError`] that names the file, the line, the key and what was expected, and
//! then nothing of the file is used.

mod cut;
mod duration;
mod error;
mod key;
mod locate;
mod model;
mod nested;
mod number;
mod text;

use std::fs;
use std::path::Path;

pub use error::ConfigError;
use model::{File, Wrong};
use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use crate::rule::Rules;

impl Rules {
    /// The rules of a TOML file; see [`config`](crate::config) for what may stand in it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read, or with the file, the line, the key and what was
    /// expected, if something in it is wrong.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text =
            fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, error))?;
        Self::from_toml(&text).map_err(|error| error.in_file(path))
    }

    /// The rules of a TOML text.
    ///
    /// # Errors
    ///
    /// As [`Rules::from_file`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table = DeTable::parse(text).map_err(|error| ConfigError::syntax(text, &error))?;
        let wrong = |wrong: Wrong| ConfigError::at(text, Some(wrong.span), &wrong.message);
        nested::check(table.get_ref()).map_err(wrong)?;
        let file = File::deserialize(Deserializer::from(table))
            .map_err(|error| ConfigError::at(text, error.span(), error.message()))?;
        file.into_rules().map_err(wrong)
    }
}
