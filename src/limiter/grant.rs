use std::fmt;

/// Permits that were granted; given back if it is dropped before they are kept.
pub(super) struct Grant {
    give_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Grant {
    pub(super) fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            give_back: Some(Box::new(give_back)),
        }
    }

    /// From now on they are the caller's.
    pub(super) fn keep(mut self) {
        self.give_back = None;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grant")
    }
}
