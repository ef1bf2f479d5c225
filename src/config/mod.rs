//! Configuration: the rules of a service from a TOML file.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let rules = Rules::from_toml(
//!     r#"
//!     [rules.getId]
//!     max-count = 5
//!     window = "10s"
//!     "#,
//! )?;
//! let quota = rules.get("getId").expect("it stands above").quotas()[0];
//! assert_eq!((quota.max(), quota.window()), (5, Duration::from_secs(10)));
//!
//! let error = Rules::from_toml("[rules.getId]\nmax-count = -5").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "line 2: rules.getId.max-count: found -5, expected a whole number, 0 or more"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! [`Rules::from_file`](crate::Rules::from_file) reads a file;
//! [`Limits::from_file`](crate::Limits::from_file) also makes the layers of a service from it.
//!
//! # The file
//!
//! ```toml
//! enabled = true                    # false: nothing is limited. Default: true
//! shadow = false                    # true: all rules only count. Default: false
//! prefix = "CurrentLimiter:"        # of the names of all keys. Default: the store's own
//!
//! exempt = { paths = ["/healthz"] } # from all rules; see "Exemptions". Default: nothing
//!
//! [client-ip]                       # the proxies that the key "client-ip" trusts
//! trusted = ["10.0.0.0/8"]          # their networks, [] for none; or their number: hops = 1
//! field = "x-forwarded-for"         # or any other field. Default: x-forwarded-for
//! ipv6-prefix = 64                  # leading bits of an IPv6 address that count. Default: 64
//!
//! [rules.getId]                     # the path; quoted if it has other characters: [rules."/v1.2"]
//! max-count = 5
//! window = "10s"                    # ms, s, m, h, d and sums such as "1h 30m"
//! enabled = true                    # false: this path is not limited. Default: true
//!
//! [rules.export]                    # the window as a number and a unit
//! max-count = 1
//! window-time = 1
//! window-time-unit = "MINUTES"      # MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS
//!
//! [rules.search]
//! max-count = 100
//! window = "1s"
//! algorithm = "gcra"                # or leaky-bucket, the same; sliding-window, fixed-window.
//!                                   # Default: sliding-log
//! burst = 20                        # of gcra: requests at once, at least 1. Default: max-count
//!
//! [rules.feed]
//! max-count = 1000000
//! window = "1h"
//! algorithm = "sliding-window"
//! sub-windows = 64                  # of sliding-window: 1 to 1024. Default: 64
//!
//! [rules.login]
//! quotas = [                        # every one of these must have room
//!   { max-count = 5, window = "1m" },
//!   { max-count = 50, window = "1d", name = "daily" },
//! ]
//! key = ["client-ip", "header:x-tenant"]  # both together; see "The key". Default: everyone
//! exempt = { methods = ["OPTIONS"], networks = ["10.0.0.0/8"] }  # from this rule. Default: nothing
//! client-ip = { hops = 2 }          # of this rule. Default: that of the file
//! cost = 1                          # units of a request, at least 1. Default: 1
//! on-error = "respond"              # when the store cannot decide: also "proceed" or "fallback".
//!                                   # Default: fallback if the store has one, otherwise respond
//! refund-on = ["2xx", "304"]        # outcomes that give a charge back. Default: none
//! lease = "50ms"                    # units may be taken ahead for this long. Default: none
//! shadow = false                    # true: the rule counts and never denies. Default: false
//!
//! [rules.getId.plans.pro]           # the quotas of a plan: see below
//! max-count = 600
//! window = "1m"
//!
//! [rules.getId.shadow]              # a candidate that is tried beside the rule getId, with
//! max-count = 3                     # quotas of its own, and algorithm, burst, sub-windows
//! window = "10s"
//! ```
//!
//! Every key but `max-count` and the window has a default. A key that is not listed here is a
//! mistake.
//!
//! | key | values |
//! |---|---|
//! | `enabled` | `true` or `false`, for the file or for a rule |
//! | `max-count` | 0 to 999,999,999,999,999; 0 denies every request |
//! | `window`, or `window-time` in `window-time-unit` | 1 ms to ten years, in whole milliseconds |
//! | `burst` | 1 or more, if refilling it takes at most ten years |
//! | `cost` | 1 or more, and at most `max-count` (or `burst`) |
//! | `key` | names with `\|` between them, or a list of such; see [`key`](crate::key) for what they read |
//! | `exempt` | a table of lists, for the file or for a rule: `paths`, `methods`, `networks` |
//! | `client-ip` | a table, for the file or for a rule: `trusted` or `hops`, `field`, `ipv6-prefix` |
//! | `lease` | see [`Rule::with_lease`](crate::Rule::with_lease); none under `gcra` |
//! | `refund-on` | a list of classes `"1xx"` to `"5xx"`, statuses such as `"304"`, and `"grpc-0"` to `"grpc-16"` |
//! | `on-error` | see [`OnError`](crate::rule::OnError) |
//!
//! # The window
//!
//! `window` is a duration as people write it: a sum of numbers with units, such as `"10s"`,
//! `"500ms"`, `"1h 30m"` or `"1d"`. Fractions such as `"1.5s"` are allowed. A service whose limits
//! come from a properties file may instead write the number and the unit apart:
//!
//! ```
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let one = "[rules.export]\nmax-count = 1\nwindow = \"2m\"";
//! let other = "[rules.export]\nmax-count = 1\nwindow-time = 2\nwindow-time-unit = \"MINUTES\"";
//! let window = |text| Ok::<_, tidegate::config::ConfigError>(
//!     Rules::from_toml(text)?.get("export").expect("a rule").quotas()[0].window(),
//! );
//! assert_eq!(window(one)?, window(other)?);
//! # Ok(())
//! # }
//! ```
//!
//! # The key
//!
//! | name | requests are counted by | extractor |
//! |---|---|---|
//! | `everyone` | nothing: all requests of the path together, the default | [`Everyone`](crate::key::Everyone) |
//! | `peer-ip` | the address of the socket's peer | [`PeerIp`](crate::PeerIp) |
//! | `client-ip` | the client's address behind proxies | [`ClientIp`](crate::ClientIp) |
//! | `bearer` | the bearer token | [`Bearer`](crate::key::Bearer) |
//! | `header:<name>` | the value of a header field | [`Header`](crate::Header) |
//! | `cookie:<name>` | the value of a cookie | [`Cookie`](crate::key::Cookie) |
//! | `method` | the method | [`Method`](crate::key::Method) |
//! | `matched-path` | the route that axum matched (feature `axum`) | `MatchedPath` |
//!
//! Names with `|` between them, at most 16, are alternatives: the first counts whose part is in the
//! request. What is there and malformed is a 400, and so is a request that has none of them. A list
//! counts requests by all of its elements together, and each may have alternatives.
//!
//! ```
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let rules = Rules::from_toml(
//!     r#"
//!     [client-ip]
//!     hops = 1
//!
//!     [rules.api]
//!     max-count = 100
//!     window = "1s"
//!     key = "bearer | header:x-api-key | client-ip"
//!
//!     [rules.search]
//!     max-count = 10
//!     window = "1s"
//!     key = ["header:x-tenant | everyone", "client-ip"]
//!     "#,
//! )?;
//! # let _ = rules;
//! # Ok(())
//! # }
//! ```
//!
//! The key `client-ip` needs a table `[client-ip]`, of the file or of the rule, which says which
//! proxies are trusted: a file with that key and without the table is a mistake, because behind a
//! proxy all clients would silently share one limit.
//!
//! On a server that is not axum's, [`Limits::peer`](crate::Limits::peer) says where the address of
//! the socket's peer is.
//!
//! # Exemptions
//!
//! The table `exempt` of a rule, and that of the file for all its rules, names requests that pass
//! without being limited. Any one of the lists exempts a request, and so does
//! [`exempt`](crate::RateLimitLayer::exempt) of a layer in code.
//!
//! - `paths` are compared whole, with the path that the client sent, also where a router is nested
//!   in another one (with axum's routers).
//! - `methods` are written in capitals.
//! - `networks` are compared with the client's address, as the table `client-ip` of the rule finds
//!   it, or else that of the file. Without such a table it is the address of the socket's peer. A
//!   request that has no address is not exempt. Nor is, without such a table, one that has a field
//!   by which proxies tell the client's address; that is a [warning](crate::warning).
//!
//! ```
//! use tidegate::Limits;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let limits = Limits::from_toml(
//!     r#"
//!     exempt = { paths = ["/healthz", "/metrics"], methods = ["OPTIONS"] }
//!
//!     [rules.api]
//!     max-count = 100
//!     window = "1s"
//!     key = "peer-ip"
//!     exempt = { networks = ["10.0.0.0/8", "2001:db8::7"] }
//!     "#,
//! )?;
//! # let _ = limits;
//! # Ok(())
//! # }
//! ```
//!
//! # Several quotas
//!
//! A rule has either `max-count` and a window of its own, or a list `quotas`. A request needs room
//! in every quota of the list, and is charged to all of them at once. Clients see a quota by its
//! `name`; without one it is named like the path and the window, as in `login-1m`.
//!
//! ```
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let rules = Rules::from_toml(
//!     r#"
//!     [rules.login]
//!     quotas = [
//!       { max-count = 5, window = "1m" },
//!       { max-count = 50, window = "1d", name = "daily" },
//!     ]
//!     "#,
//! )?;
//! let login = rules.get("login").expect("a rule");
//! let names: Vec<_> = login.policies().iter().map(|policy| policy.name()).collect();
//! assert_eq!(names, ["login-1m", "daily"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Plans
//!
//! A table `[rules.<path>.plans.<name>]` has the quotas of a plan: `max-count`, a window and
//! perhaps `burst`, or a list `quotas`. A request says its plan by
//! [`RateLimitLayer::plan`](crate::RateLimitLayer::plan), that of
//! [`Limits`](crate::Limits::plan), or a [`Plan`](crate::rule::Plan) among its extensions. Without
//! a plan, or with one that the rule does not have, the rule's own quotas apply. All else is the
//! rule's. [`Rule::with_plan`](crate::Rule::with_plan) says how plans count together.
//!
//! ```
//! use tidegate::Limits;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::from_toml(
//!     r#"
//!     [rules.api]
//!     max-count = 2
//!     window = "1m"
//!
//!     [rules.api.plans.pro]
//!     quotas = [{ max-count = 20, window = "1m" }, { max-count = 1000, window = "1d" }]
//!     "#,
//! )?;
//! limits.check("api", "acme").await?;
//! limits.check("api", "acme").await?;
//! assert!(limits.check("api", "acme").await.is_err());
//! // After an upgrade, what was used counts.
//! let admitted = limits.check("api", "acme").plan("pro").await?;
//! assert_eq!(admitted.decision.map(|decision| decision.remaining()), Some(17));
//! # Ok(())
//! # }
//! ```
//!
//! # Charging by outcome
//!
//! With `refund-on`, a request is charged first and given back when its response has one of these
//! statuses: what a limit for logins counts are failures. While five logins of five allowed ones
//! are in progress, a sixth is denied, also if all five are good.
//! [`Rule::with_refund_on`](crate::Rule::with_refund_on) says what else there is to know, and what
//! becomes of gRPC requests.
//!
//! ```
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! Rules::from_toml(
//!     r#"
//!     [rules.login]
//!     max-count = 5
//!     window = "1m"
//!     key = "peer-ip"
//!     refund-on = ["2xx", "3xx"]
//!     "#,
//! )?;
//! # Ok(())
//! # }
//! ```
//!
//! # Trying a rule
//!
//! A shadow rule decides about every request and is [counted](crate::metrics) with what it would
//! have denied, but it denies, delays and charges nothing that the client notices. `shadow = true`
//! makes one of a rule, or at the top of the file of all rules. A table `[rules.<path>.shadow]`
//! tries other quotas beside those that are enforced: stricter ones, or another algorithm. Both
//! count in keys of their own, whose names end with `~shadow`.
//!
//! ```
//! use tidegate::Rules;
//!
//! # fn main() -> Result<(), tidegate::config::ConfigError> {
//! let rules = Rules::from_toml(
//!     r#"
//!     [rules.login]
//!     max-count = 50
//!     window = "1m"
//!
//!     [rules.login.shadow]
//!     max-count = 5
//!     window = "1m"
//!     "#,
//! )?;
//! let login = rules.get("login").expect("a rule");
//! let candidate = login.shadow().expect("a candidate");
//! assert_eq!((login.quotas()[0].max(), candidate.quotas()[0].max()), (50, 5));
//! # Ok(())
//! # }
//! ```
//!
//! # Names in the store
//!
//! The name of a key in the store is the prefix, the path of the rule and the parts of the key.
//! Nothing is put between the prefix and the path, so the prefix should end with a separator, as in
//! `"CurrentLimiter:"`. Services that use the same Redis and must not share counts need different
//! prefixes. With `enabled = false` no request is counted, and the counts in the store expire.
//!
//! # Switching limits off
//!
//! `enabled = false` at the top of the file switches off all limits, in the table of a rule that
//! rule alone: requests pass as if there were no layer. A rule that is switched off is checked like
//! any other, so that it can be switched on again.
//!
//! # Reloading
//!
//! [`Limits::watch`](crate::Limits::watch) reads the file every two seconds, and replaces the rules
//! when it has changed. [`Limits::reload`](crate::Limits::reload) does so once. The new rules apply
//! from the next request on; counts are kept. After a mistake, and while the file is missing or has
//! no rules, the old rules stay, and [`Limits::status`](crate::Limits::status) says why. A rule
//! that a layer uses stays as it was when it is gone from the file: switch it off instead. More in
//! [`live`](crate::live).
//!
//! ```no_run
//! use tidegate::Limits;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::from_file("limits.toml")?;
//! let layer = limits.layer("getId");
//! limits.watch("limits.toml")?;
//! // Or at a moment of your own:
//! if let Err(error) = limits.reload("limits.toml") {
//!     eprintln!("the old rules stay: {error}");
//! }
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # Mistakes
//!
//! The whole file is checked before any of it is used, into types that cannot be wrong. A path with
//! dots needs quotes: `[rules.api.v1]` is a table inside of the rule `api`, and the error says so.
//!
//! A mistake anywhere in the file is a [`ConfigError`]. It names the file, the line, the key and
//! what was expected. Nothing of such a file is used.

mod config_error;
mod exempt;
mod key_names;
mod load;
mod rule_table;
mod table;

pub use config_error::ConfigError;
