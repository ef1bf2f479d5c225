use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::paths::MAX_PATHS;
use crate::layer::Gate;

/// What [`Limits::check`](crate::Limits::check) asks with, by path: a gate like that of a layer.
#[derive(Debug, Default)]
pub(super) struct Checks(RwLock<HashMap<Box<str>, Arc<Gate>>>);

impl Checks {
    /// The gate of a path. One that is asked about for the first time is made, if it may be: that
    /// may depend on the number of known paths. A path too many is not remembered.
    pub(super) fn gate(
        &self,
        path: &str,
        make: impl FnOnce(usize) -> Option<Gate>,
    ) -> Option<Arc<Gate>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = known.get(path) {
            return Some(Arc::clone(gate));
        }
        let number = known.len();
        drop(known);
        let made = Arc::new(make(number)?);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PATHS {
            return Some(made);
        }
        Some(Arc::clone(all.entry(path.into()).or_insert(made)))
    }
}
