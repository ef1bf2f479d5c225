//! One bare `EVALSHA "return 1"` per request, written by hand: what the round trip alone costs.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, cmd};
use tower::{Layer, Service};

use crate::Result;
use crate::contenders::{EVALSHA, routes};

pub async fn router(redis: &str) -> Result<Router> {
    let client = redis::Client::open(redis)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let script = Script::new("return 1");
    script.prepare_invoke().load_async(&mut connection).await?;
    let layer = Evalsha {
        hash: script.get_hash().into(),
        connection,
        inner: (),
    };
    Ok(routes(EVALSHA, |_| layer.clone()))
}

/// The layer, and around an inner service the service.
#[derive(Clone)]
struct Evalsha<S> {
    hash: std::sync::Arc<str>,
    connection: MultiplexedConnection,
    inner: S,
}

impl<S> Layer<S> for Evalsha<()> {
    type Service = Evalsha<S>;

    fn layer(&self, inner: S) -> Evalsha<S> {
        Evalsha {
            hash: self.hash.clone(),
            connection: self.connection.clone(),
            inner,
        }
    }
}

impl<S> Service<Request> for Evalsha<S>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let mut connection = self.connection.clone();
        let mut command = cmd("EVALSHA");
        command.arg(&*self.hash).arg(0);
        Box::pin(async move {
            let answer: RedisResult<i64> = command.query_async(&mut connection).await;
            // A panic closes the connection, and the load generator reports that as an error.
            assert_eq!(answer, Ok(1), "the script answers 1");
            inner.call(request).await
        })
    }
}
