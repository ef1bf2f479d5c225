use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The empty key: all requests of a path are counted together. The default of every rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathOnly;

impl KeyExtractor for PathOnly {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::default())
    }
}
