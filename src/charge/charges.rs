use std::ops::Deref;

use smallvec::SmallVec;

use super::charge::{Charge, Effect, Settled};
use super::meter::Meter;
use crate::error::StoreError;

/// What the layers around a handler charged its request, the outermost layer's charge first.
///
/// Each [`RateLimitLayer`](crate::RateLimitLayer) that allows a request adds its [`Charge`]. A
/// handler gets the charges of all layers as an axum extractor that never fails, also where there
/// is no layer; middleware finds them [in the extensions](Charges::from_extensions) of the request
/// and of the response. They are empty if no layer charged anything: no rule matched, it was
/// switched off or in shadow, the request was exempt, or it was admitted without a decision.
///
/// ```
/// use axum::http::StatusCode;
/// use tidegate::store::Charges;
///
/// async fn export(charges: Charges) -> Result<String, StatusCode> {
///     let Ok(report) = write_report().await else {
///         // Nobody pays for a report that was not written.
///         charges.refund().await.ok();
///         return Err(StatusCode::BAD_GATEWAY);
///     };
///     Ok(report)
/// }
/// # async fn write_report() -> Result<String, std::fmt::Error> { Ok(String::new()) }
/// # let _ = export;
/// ```
///
/// They are no extension of the request by themselves, since a request that no layer charged would
/// not have it. Because they are not `Clone`, a handler with axum's `Extension` does not compile:
///
/// ```compile_fail,E0277
/// use axum::{Extension, Router, routing::get};
/// use tidegate::store::Charges;
///
/// async fn export(_: Extension<Charges>) {}
/// let app: Router = Router::new().route("/export", get(export));
/// ```
#[derive(Debug, Default)]
pub struct Charges {
    charges: SmallVec<[Charge; 1]>,
    /// Whether they are of one rule: then units that were used beyond a reservation are charged.
    owes: bool,
}

tokio::task_local! {
    /// The charge of the call whose function runs in this task.
    static OF_CALL: Option<Charge>;
}

/// Runs the function of a call, which finds [the charge](Charges::current) in its task.
pub(crate) async fn in_call<T>(charge: Option<Charge>, function: impl Future<Output = T>) -> T {
    OF_CALL.scope(charge, function).await
}

impl Charges {
    /// The one charge of a rule.
    pub(super) fn single(charge: Charge) -> Self {
        Self {
            charges: SmallVec::from_buf([charge]),
            owes: true,
        }
    }

    /// What the innermost [call](crate::Limits::call) was charged whose function runs in this task.
    /// It is empty if nothing was charged, in a task that the function has spawned, and outside of
    /// such a function: a handler has an extractor for its charges.
    ///
    /// ```
    /// use tidegate::store::Charges;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn ask_the_model() -> (&'static str, u64) { ("an answer", 30) }
    /// let limits = Limits::new([Rule::new("tokens", [Quota::per_hour(1_000)])?]);
    /// let call = limits.call("tokens").key("alice").cost(400);
    /// let answer = call.run(async || {
    ///     let charges = Charges::current();
    ///     let (answer, tokens) = ask_the_model().await;
    ///     charges.settle(tokens).await.ok();
    ///     answer
    /// });
    /// assert_eq!(answer.await?, "an answer");
    /// let left = limits.peek("tokens", "alice").await?.expect("there is a rule");
    /// assert_eq!(left.remaining(), 970);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn current() -> Self {
        let charge = OF_CALL.try_with(|charge| charge.as_ref()?.for_settling());
        charge.ok().flatten().map(Self::single).unwrap_or_default()
    }

    /// Refunds every charge, the outermost layer's first, and returns the number of units.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`], after all charges were tried. There is no use in asking again.
    pub async fn refund(&self) -> Result<u64, StoreError> {
        let settled = self.settle_by(Effect::Refund).await?;
        Ok(settled.given_back)
    }

    /// [Settles](Charge::settle) every charge, the outermost layer's first: of each, `used` units
    /// were used. What was used beyond a reservation is charged only to the one charge of a rule
    /// that was [named](Self::of): rules of a request count units of their own.
    ///
    /// ```
    /// use tidegate::store::Charges;
    ///
    /// async fn chat(charges: Charges) -> String {
    ///     let (answer, tokens) = ask_the_model().await;
    ///     // The layer has reserved the most that an answer may use.
    ///     charges.of("tokens").settle(tokens).await.ok();
    ///     answer
    /// }
    /// # async fn ask_the_model() -> (String, u64) { (String::new(), 0) }
    /// # let _ = chat;
    /// ```
    ///
    /// # Errors
    ///
    /// As [`refund`](Self::refund).
    pub async fn settle(&self, used: u64) -> Result<Settled, StoreError> {
        self.settle_by(self.settlement(used)).await
    }

    async fn settle_by(&self, what: Effect) -> Result<Settled, StoreError> {
        let mut settled = Ok(Settled::default());
        for charge in &self.charges {
            match (charge.settle_by(what).await, &mut settled) {
                (Ok(one), Ok(all)) => all.add(one),
                (Err(error), Ok(_)) => settled = Err(error),
                (_, Err(_)) => {}
            }
        }
        settled
    }

    fn settlement(&self, used: u64) -> Effect {
        let owes = self.owes && self.charges.len() == 1;
        Effect::Settle { used, owes }
    }

    /// Settles in the background. If so, no less than what was reserved is charged.
    pub(super) fn settle_later(&self, used: u64, keeps_reserved: bool) {
        for charge in &self.charges {
            let least = charge.decision().units() * u64::from(keeps_reserved);
            self.settlement(used.max(least)).apply(charge);
        }
    }

    /// Counts what the request uses, and [settles](Self::settle) these charges when it is dropped:
    /// see [`Meter`]. If nothing was charged, that does nothing.
    #[must_use = "it settles when it is dropped"]
    pub fn meter(self) -> Meter {
        Meter::new(self)
    }

    /// The charges of the rule with this path: one for each of its layers that charged the request.
    /// A path that neither a rule nor a layer has is a
    /// [warning](crate::warning::WarningKind::NoCharges).
    ///
    /// ```
    /// use tidegate::store::Charges;
    ///
    /// async fn login(charges: Charges) {
    ///     if succeeds().await {
    ///         // Only failed logins count.
    ///         charges.of("login").refund().await.ok();
    ///     }
    /// }
    /// # async fn succeeds() -> bool { true }
    /// # let _ = login;
    /// ```
    #[must_use]
    pub fn of(&self, path: &str) -> Self {
        let of_rule = |charge: &&Charge| charge.take().rule().path() == path;
        let charges: SmallVec<_> = self.iter().filter(of_rule).cloned().collect();
        let mut owners = self
            .iter()
            .filter_map(|it| it.inner.path.as_ref()?.owner.get());
        if charges.is_empty() && !owners.clone().any(|it| it.knows(path)) {
            owners.next().iter().for_each(|it| it.warn_of_charges(path));
        }
        let owes = true;
        Self { charges, owes }
    }
}

impl FromIterator<Charge> for Charges {
    fn from_iter<I: IntoIterator<Item = Charge>>(charges: I) -> Self {
        let charges = charges.into_iter().collect();
        Self {
            charges,
            owes: false,
        }
    }
}

impl Deref for Charges {
    type Target = [Charge];

    fn deref(&self) -> &[Charge] {
        &self.charges
    }
}

impl<'a> IntoIterator for &'a Charges {
    type Item = &'a Charge;
    type IntoIter = std::slice::Iter<'a, Charge>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
