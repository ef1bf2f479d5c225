use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::paths::MAX_PATHS;
use crate::layer::Settings;

/// What [`Limits::check`](crate::Limits::check) asks with, by path: the settings of a layer.
#[derive(Debug, Default)]
pub(super) struct Checks(RwLock<HashMap<Box<str>, Arc<Settings>>>);

impl Checks {
    /// The settings of a path, if it was asked about before.
    pub(super) fn get(&self, path: &str) -> Option<Arc<Settings>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(path).map(Arc::clone)
    }

    /// How many paths were asked about.
    pub(super) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The settings of a path that is asked about for the first time. A path too many is not
    /// remembered.
    pub(super) fn add(&self, path: &str, made: Arc<Settings>) -> Arc<Settings> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match all.get(path) {
            Some(known) => Arc::clone(known),
            None => {
                if all.len() < MAX_PATHS {
                    all.insert(path.into(), Arc::clone(&made));
                }
                made
            }
        }
    }
}
