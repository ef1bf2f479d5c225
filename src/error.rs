pub use tidegate_base::error::{KeyError, KeyErrorKind, KindError, StoreError, StoreErrorKind};

/// What a `main` that returns such an error prints: its message.
macro_rules! debug_as_message {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use debug_as_message;
