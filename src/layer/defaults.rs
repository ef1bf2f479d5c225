use std::fmt;
use std::sync::Arc;

use super::headers::Headers;
use super::settings::{ChoosePlan, Exempt};
use crate::callback::{DegradeCallback, ErrorCallback};
use crate::key::KeyExtractor;
use crate::key::ip::PeerHook;

/// What the layers of an application begin with: see the setters of [`Limits`](crate::Limits).
#[derive(Clone, Default)]
pub(crate) struct Defaults {
    /// For rules and layers without a key of their own.
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(crate) on_error: Option<Arc<dyn ErrorCallback>>,
    pub(crate) headers: Headers,
    pub(crate) exempt: Vec<Arc<Exempt>>,
    pub(crate) plan: Option<Arc<ChoosePlan>>,
    pub(crate) peer: Option<PeerHook>,
    /// Keys that an operator lets through, the same for all layers.
    #[cfg(feature = "page")]
    pub(crate) let_through: Arc<super::KeysLetThrough>,
}

impl fmt::Debug for Defaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defaults").finish_non_exhaustive()
    }
}
