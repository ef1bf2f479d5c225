//! A page that shows who is limited now, and lets an operator help a customer.
//!
//! [`Limits::page`] makes it; the application mounts it behind its own authentication. It is
//! read-only without [`allow_changes`](Page::allow_changes), and shows no keys without
//! [`show_keys`](Page::show_keys).
//!
//! ```
//! use axum::{Router, routing::post};
//! use tidegate::{Limits, PeerIp, Quota, Rule};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::new([Rule::new("login", [Quota::per_minute(5)])?]).key(PeerIp);
//! let page = limits.page().allow_changes().show_keys();
//! let app: Router = Router::new()
//!     .route("/login", post("welcome").layer(limits.layer("login")))
//!     // Everybody who may open this may block a customer: put your authentication around it.
//!     .nest_service("/limits", page.router());
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! With a store on Redis, the page shows all processes of the service that have a page or that
//! [joined the fleet](Limits::join_fleet), and a key that is let through, blocked or raised is so
//! in all of them. Without Redis it is about this process.
//!
//! `docs/page.md` says what each view shows, and what an operator can do.
//!
//! # In Redis
//!
//! Under `{shop:CurrentLimiter:~fleet}:`, for the service `shop`, stand `processes`, those of them
//! that are `deciding`, the report `process:<id>` of each, `secret` (with which hashes of keys are
//! made), the lists `let-through`, `blocked` and `raised`, and their `version`. All of them expire.
//!
//! # The JSON
//!
//! Views have an `ETag`. Times are seconds: `.._ago_s` are ages, `.._in_s` are still to come.
//! `tick` is how many seconds ago the `process` that answers began to watch. `complete` is false
//! until the other processes have been asked (ask again after a second), and where more than 200
//! run. Requests at a time have `concurrent` true, `window_s` null, and `in_flight` in place of
//! `reset_in_s`. Quotas of the calendar have `per`, such as `month`, and a `zone`. `on_hold_s` is
//! how long the partner of an `outgoing` rule still wants no calls, `locked_out_s` how long the key
//! is still locked out after failures, and `locked_out_times` how many times in a row it was, or
//! null where a fallback answers. `failures` counts those of a rule with a lock-out since the start,
//! in this process. `waiting` lists, of each rule with `fair-by`, the five values
//! whose requests wait longest, and how many wait; `key` is empty for those without a value.
//! `waiting_unknown_in` processes of an older version do not say it. A key that is `everyone` is
//! that of all requests together.
//!
//! | | |
//! |---|---|
//! | `GET api/now?after=TICK`; `GET api/hour` | the rates by second, all or later ones; by minute |
//! | `GET api/limited`; `GET api/fleet` | the lists, of the `fleet` or this `process`; the processes (`redis_answers` is false while only this process is known) |
//! | `POST api/key` | `{"rule":"login","key":"203.0.113.7"}`, with a `subject` if the rule has some, or with the `row` of a view, and perhaps a `plan`: whether a request would pass (`allowed`), what is left, the `plan`, and a `hint` if the key looks wrong |
//! | `POST api/reset` | the same: `{"found":true}` if there was a count |
//! | `POST api/let-through`, `api/block`, `api/raise` | the same with `"seconds":3600`, 0 ends it, perhaps a `note`, and to raise `"factor":2.5`, perhaps of some quotas alone, `"only":["monthly"]`: `{"ends_in_s":3600.0}`, or 428 unless `"replace":true` where a larger or longer raise stands, with a `hint` if no request had the key lately |
//!
//! ```json
//! {"process":"a3f19c0012ab34cd","process_name":"web-1","tick":532,"first":531,"step_s":1,
//!  "store":"redis","enabled":true,"keys_shown":false,"changes_allowed":true,
//!  "version":1,"content_hash":"87862520c60d58a8",
//!  "reload_failing":false,"more_rules":0,"rules":[{"rule":"login","enabled":true,"is_shadow":false,
//!    "quotas":[{"name":"login","subject":null,"cost":null,"hidden":false,"max":5,"window_s":60.0,
//!      "concurrent":false}],
//!    "subjects":[],"plans":["pro"],
//!    "total":{"allowed":9,"denied":4,"shadow":0,"errors":0,"near":1,"let_through":0,"units":9,
//!      "refunded":0,"proceeded":0,"waiting":0,"longest_wait_ms":0,"waited":0,"blocked":0},
//!    "denied_by":[{"name":"login","denials":4}],"failures":null,
//!    "quotas_of_plans":[[]],"allowed":[2,0],"denied":[1,3],"shadow":[0,0],
//!    "errors":[0,0],"near":[0,0],"let_through":[0,0],"mean_us":[310,0],"p99_us":[500,0]}]}
//! ```
//!
//! ```json
//! {"process":"a3f19c0012ab34cd","tick":532,"of":"fleet","redis_answers":true,"complete":true,
//!  "too_many_by_at_most":0,"too_few_by_at_most":0,
//!  "rows":[{"row":"9f31c2aa…","rule":"login","subject":null,"key":null,"everyone":false,
//!    "since_ago_s":12.0,
//!    "until_in_s":4.1,"never":false,"busy":false,"on_hold":false,"locked_out":false,
//!    "denials":5312,"denials_per_s":2.4,"plan":"pro",
//!    "let_through_in_s":null,"blocked_in_s":null,"raised_in_s":null,"factor":null}],
//!  "waiting":[{"row":"40be77d1…","rule":"model","key":null,"waiting":41,"since_ago_s":26.9}],
//!  "waiting_unknown_in":0,
//!  "let_through":[{"row":"…","rule":"login","subject":null,"key":null,"ends_in_s":3541.0,
//!    "by":null,"note":null,"factor":null}],
//!  "blocked":[],"raised":[]}
//! ```
//!
//! ```json
//! {"process":"a3f19c0012ab34cd","tick":532,"shared":true,"complete":true,"redis_answers":true,
//!  "processes":[{"process":"a3f19c0012ab34cd","name":"web-1","this":true,"seen_ago_s":0.0,
//!    "started_ago_s":532.0,"version":1,"content_hash":null,"reload_failing":false,
//!    "rules":5,"breaker":"closed",
//!    "fallback":false,"allowed_per_s":12,"denied_per_s":3,
//!    "last_error":{"kind":"timeout","ago_s":3.0},"warnings":[]}]}
//! ```

// Here stand the routes, what a browser may do, and the JSON. The rows and their bound come from
// elsewhere: keys that are limited and rates from `src/activity/`, through `src/limits/reports.rs`
// and `src/fleet/` (`MAX_LIMITED_KEYS`), operators' keys from `src/fleet/operator_keys.rs`. An
// operator's change is made by `src/limits/operators.rs`.

mod assets;
mod cache;
mod guard;
mod keys;
mod masked;
mod router;
mod views;

use std::sync::Arc;

use axum::Router;
use http::request::Parts;

use self::masked::masked;
use crate::limits::Limits;

/// The page of some [`Limits`]: see the [module](crate::page).
#[derive(Clone)]
#[must_use = "it is shown by its router"]
pub struct Page {
    pub(super) limits: Limits,
    pub(super) may_change: bool,
    pub(super) shows_keys: bool,
    pub(super) hosts: Vec<String>,
    pub(super) actor: Option<Arc<Actor>>,
}

/// Who sent a request with this head.
type Actor = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl Limits {
    /// A page that shows what these limits do: see [`page`](crate::page).
    pub fn page(&self) -> Page {
        Page {
            limits: self.clone(),
            may_change: false,
            shows_keys: false,
            hosts: Vec::new(),
            actor: None,
        }
    }
}

impl Page {
    /// Lets everybody who opens the page reset a key, and let it through or block it for at most a
    /// day. Default: the page is read-only.
    ///
    /// A change has to come from the page itself: from a browser that says so, and at an address
    /// that no other site can take. That is an IP address, `localhost`, or one of the
    /// [hosts](Self::hosts).
    pub fn allow_changes(mut self) -> Self {
        self.may_change = true;
        self
    }

    /// Shows keys, addresses, messages of errors, the names of files and of those who let a key
    /// through or block it, and their notes. The events that log a change or a lock-out name the
    /// key, too, as the first page of these limits does. Of a
    /// part that looks like a token the first four characters are shown. Default: a key is shown as
    /// a hash of it, made with a secret of the service, and an error by its kind.
    pub fn show_keys(mut self) -> Self {
        self.shows_keys = true;
        self
    }

    /// The names under which browsers may reach the page to change something, such as
    /// `admin.example.com`, with or without a port. Default: none. IP addresses and `localhost`
    /// need no mention.
    ///
    /// Behind a proxy that changes the field `Host`, the name that browsers use is enough.
    pub fn hosts<Name: Into<String>>(mut self, hosts: impl IntoIterator<Item = Name>) -> Self {
        let hosts = hosts.into_iter().map(Into::into);
        self.hosts.extend(hosts.map(|it| it.to_ascii_lowercase()));
        self
    }

    /// Says who sent a request, as the application's authentication knows it: for the log, and with
    /// [`show_keys`](Self::show_keys) for the lists of keys that are let through or blocked. At
    /// most 100 characters are kept. Default: nobody. After a panic nothing is changed: a 500.
    ///
    /// ```
    /// use tidegate::{Limits, Rules};
    ///
    /// #[derive(Clone)]
    /// struct Operator(String);
    ///
    /// let page = Limits::new(Rules::default())
    ///     .page()
    ///     .allow_changes()
    ///     .actor(|head| Some(head.extensions.get::<Operator>()?.0.clone()));
    /// # let _ = page;
    /// ```
    pub fn actor(
        mut self,
        actor: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.actor = Some(Arc::new(actor));
        self
    }

    /// A key, where keys are shown. What looks like a token is masked.
    pub(super) fn shown(&self, key: &str) -> Option<String> {
        self.shows_keys.then(|| masked(key))
    }

    /// The routes of the page, to be mounted by `nest_service`, at any path: the page is there with
    /// and without a slash at its end, also behind a proxy that cuts off the beginning of the path.
    ///
    /// From now on, or from the first request on where there is no tokio runtime now, a task notes
    /// once a second what the layers count, and they note whose requests they deny.
    pub fn router(self) -> Router {
        self.limits.watch_for_page();
        let shown = self.shows_keys.then_some(masked as fn(&str) -> String);
        let _ = self.limits.member.shown.set(shown);
        router::router(self)
    }
}

crate::named::debug_fields!(Page: may_change, shows_keys, hosts);
