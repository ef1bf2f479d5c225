//! A Redis for an example: the one at `REDIS_URL`, or a server of its own on a free port, which ends with it.

use tidegate::{Redis, StoreError};

/// Kept for as long as the server has to run.
pub(crate) struct Server {
    pub(crate) url: String,
    _own: Option<test_support::Redis>,
}

impl Server {
    pub(crate) fn from_env() -> Self {
        let own = std::env::var("REDIS_URL")
            .is_err()
            .then(test_support::Redis::start);
        let url = match &own {
            Some(own) => own.url.clone(),
            None => std::env::var("REDIS_URL").unwrap_or_default(),
        };
        Self { url, _own: own }
    }

    pub(crate) async fn connect(&self) -> Result<Redis, StoreError> {
        Redis::connect(&self.url).await
    }
}
