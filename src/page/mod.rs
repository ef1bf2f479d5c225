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
//! [joined the fleet](Limits::join_fleet), and a key that is let through or blocked is so in all of
//! them. Without Redis it is about this process.
//!
//! `docs/page.md` says what each view shows, has its JSON, and says what an attacker can do.

mod assets;
mod cache;
mod guard;
mod keys;
mod monitor;
mod operators;
mod process;
mod rates;
mod router;
mod views;
mod watch;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use http::request::Parts;

pub use self::operators::OperatorError;
use crate::key::masked;
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
    /// through or block it. The events that log a change name the key, too. Of a part that looks like
    /// a token the first four characters are shown. Default: a key is shown as a hash of it, made
    /// with a secret of the service, and an error by its kind.
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
    /// [`show_keys`](Self::show_keys) for the lists of keys that are let through or blocked. At most
    /// 100 characters are kept. Default: nobody. After a panic nothing is changed: a 500.
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
        router::router(self)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("may_change", &self.may_change)
            .field("shows_keys", &self.shows_keys)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
