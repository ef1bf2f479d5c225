//! Mistakes in the set-up.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

use super::limits::Limits;
use crate::callback::caught;
use crate::layer::Warnings;
use crate::rule::Rule;
#[cfg(doc)]
use crate::rule::Rules;
use crate::store::{Store, StoreError, StoreErrorKind, StoreFuture};
use crate::sync::lock;
use crate::warning::{VerifyError, WIDE_TRUST, Warning, WarningKind};

impl Limits {
    /// The paths that layers were made for and that have no rule now, in alphabetical order. To
    /// find misspelt names when a service starts, or after a reload.
    ///
    /// Clones share the list. It does not depend on whether limiting is
    /// [enabled](Rules::enabled), and remembers at most 10,000 paths.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let rule = Rule::new("getId", [Quota::per_second(5)])?;
    /// let limits = Limits::new([rule]);
    /// let _ = (limits.layer("getId"), limits.layer("getid"));
    /// assert_eq!(limits.paths_without_rule(), ["getid"]);
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn paths_without_rule(&self) -> Vec<String> {
        self.rules.paths_without_rule()
    }

    /// Mistakes in the set-up that show so far, each with its remedy: see
    /// [`warning`](crate::warning). Those of the rules and of the store are those of now. What
    /// requests show is remembered: the first 100 requests of a layer are looked at, and then one
    /// of 64 until there were 10,000. One for each text and path, in the order of their kinds, at
    /// most 1,000: 100 of them about paths without a rule, which clients may choose.
    ///
    /// Each is logged once, with the feature `tracing`.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        use WarningKind::SettlesInShadow;
        use WarningKind::{IdleCallback, IdleHold, LargeLog, NeverSeen, NoRule, UnusedRule};
        let mut all = self.warnings.found();
        all.retain(|it| !matches!(it.kind, NoRule | UnusedRule | IdleCallback | NeverSeen));
        all.retain(|it| !matches!(it.kind, IdleHold | LargeLog | SettlesInShadow));
        all.extend(self.defaults.idle_callbacks(&self.rules.guard()));
        let about = |kind| move |path: String| Warning::new(kind).about(&path);
        let without_rule = self.rules.paths_without_rule().into_iter();
        let without_rule = without_rule.take(Warnings::MAX_WITHOUT_RULE);
        all.extend(without_rule.map(about(NoRule)));
        all.extend(self.rules.guard().warnings());
        if self.warnings.has_started() {
            let unused = self.rules.paths_without_layer();
            all.extend(unused.into_iter().map(about(UnusedRule)));
        }
        let rules = self.rules.load();
        for rule in rules.iter().filter(|it| rules.get(it.path()).is_some()) {
            let key = rule.extractor().or(self.defaults.default_key.as_ref());
            let path = lock(&self.paths.states).get(rule.path()).cloned();
            let of_rule = Warnings::of_rule(rule, key.map(Arc::as_ref), path.as_deref());
            let of_keys = self.warnings_of_keys(rule);
            let of_keys = of_keys.into_iter().filter(|it| it.kind == NeverSeen);
            all.extend(of_rule.chain(of_keys).map(|it| it.about(rule.path())));
        }
        if let Some(store) = self.store.get() {
            all.extend(caught("store", "", || store.condition().warnings).unwrap_or_default());
        }
        all.sort();
        all.dedup_by(|it, told| it.repeats(told));
        all.truncate(Warnings::MAX);
        all
    }

    /// Waits until the store decides, for at most `bound`: a server awaits it before it listens, so
    /// that its first requests do not meet a connection that is still being made, or a Redis that
    /// decides nothing. A memory store is ready immediately, and a Redis when each server that
    /// questions go to has decided within the store's time-out, under names of its own behind the
    /// prefix (`shop:~ready..`), which are gone after two seconds: of a cluster, the masters of all
    /// slots. That is a round trip more than to connect.
    ///
    /// A server that is not there yet, a replica, one that is out of memory and one whose answers
    /// take too long are asked again until the bound; once they are asked, that may last for up to
    /// three time-outs more.
    ///
    /// Whether a server starts without its Redis is for it to decide. After an error the store goes
    /// on connecting in the background.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("login", [Quota::per_minute(5)])?]);
    /// if let Err(error) = limits.ready(Duration::from_secs(5)).await {
    ///     eprintln!("the limits begin without their store: {error}");
    /// }
    /// // axum::serve(listener, app).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) that says what is missing, once the bound is over. What
    /// will not pass by itself is an error immediately: a wrong password, an ACL without a command
    /// or the keys, a node of a cluster at a `redis://`, a server or proxy without RESP3 or without
    /// the Lua library `struct`. So is a key that [trusts](crate::ClientIp::behind) a network with
    /// clients.
    ///
    /// # Panics
    ///
    /// With a Redis outside of a tokio runtime with its timer enabled.
    pub fn ready(&self, bound: Duration) -> StoreFuture<()> {
        let wide = self.paths_with_wide_trust();
        if wide.is_empty() {
            return self.shared_store().ready(bound);
        }
        let message = format!("{wide:?} {WIDE_TRUST}");
        StoreFuture::ready(Err(StoreError::new(StoreErrorKind::Configuration, message)))
    }

    /// The paths with a key by which clients choose their address.
    fn paths_with_wide_trust(&self) -> Vec<String> {
        let rules = self.rules.load();
        let is_wide = |it: &Warning| it.kind == WarningKind::WideTrust;
        let wide = rules
            .iter()
            .filter(|rule| self.warnings_of_keys(rule).iter().any(is_wide));
        wide.map(|it| it.path().to_owned()).collect()
    }

    /// What the keys of a rule show to a request.
    fn warnings_of_keys(&self, rule: &Rule) -> Vec<Warning> {
        thread_local!(static IS_LOOKING: Cell<bool> = const { Cell::new(false) });
        // An extractor of the application may call `verify` while it is asked.
        if IS_LOOKING.replace(true) {
            return Vec::new();
        }
        // An alternative tells another mistake of a request without any field.
        let fields = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(""))]);
        let subjects = rule.subjects().iter().map(Some).chain([None]);
        let keys = subjects.flat_map(|it| self.extractors_of(rule.path(), Some(rule), it));
        let found = || keys.filter_map(|it| it.warning(&fields)).collect();
        let found = caught("key extractor", rule.path(), found).unwrap_or_default();
        IS_LOOKING.set(false);
        found
    }

    /// Checks that layers and rules fit together, once all layers are made.
    ///
    /// A rule that the file loses later stays in force, so what was verified stays so.
    ///
    /// ```
    /// use tidegate::Limits;
    ///
    /// let limits = Limits::from_toml("[rules.login]\nmax-count = 5\nwindow = \"1m\"")?;
    /// let layer = limits.layer("login");
    /// limits.verify()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`VerifyError`] with all paths that have a layer and no rule, all that have a rule and no
    /// layer, and all that [`usage`](Self::usage) shows while a layer of the path has a key, a plan
    /// or an exemption of its own, and all with a key that [trusts](crate::ClientIp::behind) a
    /// network with clients. Rules that are switched off need no layer. A `fair-by` of whose layers
    /// none lets requests [wait](crate::RateLimitLayer::wait) is a
    /// [warning](WarningKind::NoTurns).
    pub fn verify(&self) -> Result<(), VerifyError> {
        let rules = self.rules.load();
        let is_on = |path| rules.get(path).is_some();
        for rule in rules
            .iter()
            .filter(|it| is_on(it.path()) && !it.is_shadow())
        {
            let admits_some = rule.quotas().iter().all(|it| it.max() > 0);
            if admits_some && self.paths.lacks_turns(rule) {
                let warning = Warning::named(WarningKind::NoTurns, "wait");
                self.warnings.add(warning.about(rule.path()));
            }
        }
        let found = VerifyError {
            paths_without_rule: self.rules.paths_without_rule(),
            paths_without_layer: self.rules.paths_without_layer(),
            paths_shown_otherwise: self.rules.paths_shown_otherwise(),
            paths_with_wide_trust: self.paths_with_wide_trust(),
        };
        let is_right = found.lists().iter().all(|(_, paths)| paths.is_empty());
        if is_right { Ok(()) } else { Err(found) }
    }
}
