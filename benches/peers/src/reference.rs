//! What the parts of a decision cost, written by hand: one bare `EVALSHA "return 1"` per request,
//! which is the round trip alone, and routes without a limit that send the bytes of tidegate's
//! answers, which no limiter with these answers can be faster than.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{HeaderName, HeaderValue, StatusCode};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult, Script, cmd};
use tidegate::Algorithm;
use tower::{Layer, Service};

use crate::Result;
use crate::contenders::{EVALSHA, PLAIN_ANSWERS, Traffic, path, routes};
use crate::same_script;

pub async fn router(redis: &str) -> Result<Router> {
    let bare = Evalsha::connect(redis).await?;
    let mut connection = bare.connection.clone();
    let mut router = routes(EVALSHA, |_| bare.clone());
    for (name, algorithm) in [
        (SAME_LOG, Algorithm::SlidingLog),
        (SAME_GCRA, Algorithm::Gcra),
    ] {
        let script = Script::new(&same_script::source(algorithm)?);
        script.prepare_invoke().load_async(&mut connection).await?;
        let layer = Evalsha {
            hash: script.get_hash().into(),
            question: Some((name, same_script::question(algorithm).into())),
            ..bare.clone()
        };
        router = router.merge(routes(name, |_| layer.clone()));
    }
    Ok(router)
}

/// Routes that call the crate's own script by hand.
pub const SAME_LOG: &str = "log-by-hand";
pub const SAME_GCRA: &str = "gcra-by-hand";

/// Routes without a limit that send what the routes of `log-resilient` do.
pub fn answers() -> Router {
    Router::new()
        .route(&path(PLAIN_ANSWERS, Traffic::Hot), get(hot))
        .route(&path(PLAIN_ANSWERS, Traffic::Keys), get(keys))
        .route(&path(PLAIN_ANSWERS, Traffic::Denied), get(denied))
}

async fn hot() -> impl IntoResponse {
    let fields = [
        field("ratelimit-policy", "\"log-resilient-hot\";q=1000000;w=1"),
        field("ratelimit", "\"log-resilient-hot\";r=999000;t=1"),
    ];
    (fields, "1")
}

async fn keys() -> impl IntoResponse {
    let fields = [
        field("ratelimit-policy", "\"log-resilient-keys\";q=1000;w=604800"),
        field("ratelimit", "\"log-resilient-keys\";r=990;t=604800"),
    ];
    (fields, "1")
}

async fn denied() -> impl IntoResponse {
    let fields = [
        field("content-type", "application/problem+json"),
        field("ratelimit-policy", "\"log-resilient-denied\";q=1;w=604800"),
        field("ratelimit", "\"log-resilient-denied\";r=0;t=604800"),
        field("retry-after", "604800"),
    ];
    let body = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
        \"status\":429,\"violated-policies\":[\"log-resilient-denied\"]}";
    (StatusCode::TOO_MANY_REQUESTS, fields, body)
}

fn field(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )
}

/// A connection with a longer time-out than the default, so that a pause of a busy machine does not
/// end a run.
pub async fn patient_connection(redis: &str) -> Result<MultiplexedConnection> {
    let patience = Some(Duration::from_secs(10));
    let config = AsyncConnectionConfig::new().set_response_timeout(patience);
    let client = redis::Client::open(redis)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// The layer, and around an inner service the service.
#[derive(Clone)]
pub struct Evalsha<S> {
    hash: Arc<str>,
    /// The key, and what one of the crate's own scripts is asked about it.
    question: Option<(&'static str, Arc<[u8]>)>,
    connection: MultiplexedConnection,
    inner: S,
}

impl Evalsha<()> {
    /// A script call that returns 1.
    pub async fn connect(redis: &str) -> Result<Self> {
        let mut connection = patient_connection(redis).await?;
        let script = Script::new("return 1");
        script.prepare_invoke().load_async(&mut connection).await?;
        Ok(Self {
            hash: script.get_hash().into(),
            question: None,
            connection,
            inner: (),
        })
    }
}

impl<S> Layer<S> for Evalsha<()> {
    type Service = Evalsha<S>;

    fn layer(&self, inner: S) -> Evalsha<S> {
        Evalsha {
            hash: self.hash.clone(),
            question: self.question.clone(),
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
        command.arg(&*self.hash);
        let has_question = self.question.is_some();
        match &self.question {
            None => command.arg(0),
            Some((key, question)) => command.arg(1).arg(key).arg(&**question),
        };
        Box::pin(async move {
            // A panic closes the connection, and the load generator reports that as an error.
            if has_question {
                let answer: RedisResult<Vec<u8>> = command.query_async(&mut connection).await;
                assert!(answer.is_ok_and(|answer| same_script::is_allowed(&answer)));
            } else {
                let answer: RedisResult<i64> = command.query_async(&mut connection).await;
                assert_eq!(answer, Ok(1), "the script answers 1");
            }
            inner.call(request).await
        })
    }
}
