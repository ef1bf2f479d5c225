/// Why [`Limits::watch`](crate::Limits::watch) cannot watch a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no tokio runtime that the watching task could run on.
    #[error("no tokio runtime here, expected one: call watch inside of an async fn")]
    NoRuntime,
    /// The tokio runtime has no timer.
    #[error(
        "the tokio runtime has no timer, expected one: build it with enable_time or enable_all"
    )]
    NoTimer,
}
