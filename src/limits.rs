use std::sync::Arc;

use crate::layer::RateLimitLayer;
use crate::rule::{Rules, SharedRules};
use crate::store::{MemoryStore, Store};

/// Rules by path and the store that they count in: makes the layers of an application.
///
/// Clones share the rules and the store.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate::Limits;
///
/// # #[cfg(feature = "config")] {
/// let limits = Limits::from_toml(
///     r#"
///     [rules.getId]
///     max-count = 5
///     window = "10s"
///     "#,
/// )?;
/// let app: Router = Router::new()
///     .route("/getId", get(|| async { "1" }).layer(limits.layer("getId")))
///     // There is no rule for this path, so it passes straight through.
///     .route("/about", get(|| async { "tidegate" }).layer(limits.layer("about")));
/// # let _ = app;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Limits {
    rules: SharedRules,
    store: Arc<dyn Store>,
}

impl Limits {
    /// These rules, counted in a [`MemoryStore`] until [told otherwise](Limits::store).
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules: SharedRules::new(rules),
            store: Arc::new(MemoryStore::new()),
        }
    }

    /// The rules of a TOML file; see [`config`](crate::config) for what may stand in it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](crate::ConfigError) if the file cannot be read, or with the file, the line,
    /// the key and what was expected, if something in it is wrong.
    #[cfg(feature = "config")]
    pub fn from_file(path: impl AsRef<std::path::Path>) -> Result<Self, crate::ConfigError> {
        Ok(Self::new(Rules::from_file(path)?))
    }

    /// The rules of a TOML text.
    ///
    /// # Errors
    ///
    /// As [`Limits::from_file`].
    #[cfg(feature = "config")]
    pub fn from_toml(text: &str) -> Result<Self, crate::ConfigError> {
        Ok(Self::new(Rules::from_toml(text)?))
    }

    /// Replaces all rules by those of a file, also in the layers that were made already. If something
    /// is wrong with it, the rules stay as they are.
    ///
    /// # Errors
    ///
    /// As [`Limits::from_file`].
    #[cfg(feature = "config")]
    pub fn reload(&self, path: impl AsRef<std::path::Path>) -> Result<(), crate::ConfigError> {
        self.rules.replace(Rules::from_file(path)?);
        Ok(())
    }

    /// Where the counts are kept: for layers made from now on. Default: a [`MemoryStore`].
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// A layer for a path. While there is no rule for it, requests pass straight through.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn layer(&self, path: &str) -> RateLimitLayer {
        RateLimitLayer::from_rules(&self.rules, path, Arc::clone(&self.store))
    }

    /// The rules, to look at or to replace while requests run.
    #[must_use]
    pub const fn rules(&self) -> &SharedRules {
        &self.rules
    }
}
