use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;

use super::limits::Limits;
use crate::trace;

/// The limits of the process.
static INSTALLED: ArcSwapOption<Limits> = ArcSwapOption::const_empty();

/// Limits without rules, for code that runs before any are installed.
static NONE: LazyLock<Arc<Limits>> = LazyLock::new(|| {
    trace::event!(
        warn: "Limits::installed was asked and no limits are installed, so nothing is limited: \
               call limits.install() at the start, or say `limits = ..` in the attribute"
    );
    Arc::new(Limits::new([]))
});

impl Limits {
    /// Makes these the limits of the process: those of functions with the attribute
    /// `#[limited(..)]` that names no others (feature `macros`), and of
    /// [`installed`](Self::installed). Returns those that were installed before.
    ///
    /// A server calls it at its start, and a library never does. Clones that are made later, with
    /// other settings, are not installed by that.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// Limits::new([Rule::new("export", [Quota::per_hour(1)])?]).install();
    ///
    /// let call = Limits::installed().call("export").key("alice");
    /// assert_eq!(call.run(async || 7).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn install(&self) -> Option<Arc<Self>> {
        INSTALLED.swap(Some(Arc::new(self.clone())))
    }

    /// The limits of the process. Before any are [installed](Self::install) they have no rules, so
    /// that nothing is limited: the log says so once (a warning, with the feature `tracing`).
    #[must_use]
    pub fn installed() -> Arc<Self> {
        INSTALLED.load_full().unwrap_or_else(|| Arc::clone(&NONE))
    }
}
