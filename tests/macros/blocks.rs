//! An impl block limits its async methods, also where another macro makes them boxed.

use async_trait::async_trait;
use tidegate::key::Everyone;
use tidegate::{Denied, Failed, Limits, limited};

use crate::{Error, once};

struct Reports {
    limits: Limits,
    user: String,
}

fn reports() -> Reports {
    let (limits, user) = (once(), "alice".into());
    Reports { limits, user }
}

#[limited("export", key = self.user, limits = self.limits)]
impl Reports {
    const NAME: &str = "reports";

    async fn export(&self) -> Result<&str, Error> {
        Ok(self.name())
    }

    /// It shares the count of the other one.
    async fn again(&mut self, name: impl Into<String>) -> Result<(), Error> {
        self.user = name.into();
        Ok(())
    }

    #[limited("report", key = Everyone, limits = self.limits)]
    async fn report(&self) -> Result<u8, Error> {
        Ok(1)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

#[tokio::test]
async fn a_block_limits_all_its_async_methods() {
    let mut reports = reports();
    assert_eq!(reports.export().await, Ok("reports"));
    assert_eq!(reports.again("bob").await, Err(Error::Refused));
    reports.user = "carol".into();
    assert_eq!(reports.again("bob").await, Ok(()));
    assert_eq!(reports.user, "bob");
    assert_eq!(reports.name(), "reports");
    assert_eq!(reports.report().await, Ok(1), "by its own attribute");
}

/// As that of a framework: no `From<Refused>` can be written for it here.
#[derive(Debug, PartialEq)]
struct Status(&'static str);

async fn exhausted<T>(_: Denied) -> Result<T, Status> {
    Err(Status("exhausted"))
}

async fn unavailable<T>(_: Failed) -> Result<T, Status> {
    Err(Status("unavailable"))
}

#[async_trait]
trait Service: Sync {
    async fn get(&self, id: String) -> Result<String, Status>;
    async fn lengths(&self, texts: &[&str]) -> Result<Vec<usize>, Status>;
    fn name(&self) -> &str;
}

#[limited(
    "export",
    key = self.user,
    limits = self.limits,
    degrade = exhausted,
    on_error = unavailable,
)]
#[async_trait]
impl Service for Reports {
    async fn get(&self, id: String) -> Result<String, Status> {
        tokio::task::yield_now().await;
        Ok(format!("{}: {id}", self.user))
    }

    #[limited(
        "report",
        key = texts[0],
        limits = self.limits,
        degrade = async |_| Ok(Vec::new()),
        on_error = unavailable,
    )]
    async fn lengths(&self, texts: &[&str]) -> Result<Vec<usize>, Status> {
        Ok(texts.iter().map(|text| text.len()).collect())
    }

    fn name(&self) -> &str {
        &self.user
    }
}

#[tokio::test]
async fn a_block_under_async_trait_is_limited() {
    let service: Box<dyn Service + Send> = Box::new(reports());
    let get = async || service.get("7".into()).await;
    assert_eq!(get().await, Ok("alice: 7".into()));
    assert_eq!(get().await, Err(Status("exhausted")));
    assert_eq!(service.lengths(&["a", "bc"]).await, Ok(vec![1, 2]));
    assert_eq!(service.lengths(&["a", "bc"]).await, Ok(vec![]));
    assert_eq!(service.name(), "alice");
}
