//! What the page lets you try besides requests: a second process that shares the limits, and a
//! Redis that stops and comes back. The app starts both on this machine, and they end with it.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate::rule::Share;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::child::Owned;
use crate::own_redis::OwnRedis;
use crate::settings::{Redis, Settings};

/// The processes of a demo: this one and a second one.
const PROCESSES: u32 = 2;
/// How long the second one may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the limits are counted, and what of it this app may stop.
pub(crate) struct Demo {
    /// Dropped before its Redis.
    second: Mutex<Option<Second>>,
    redis_url: Option<String>,
    own_redis: Option<OwnRedis>,
    processes: Option<u32>,
    limits: String,
}

struct Second {
    address: String,
    _process: Owned,
}

impl Demo {
    /// Uses the Redis that is named, else one that it starts, else none.
    pub(crate) async fn begin(settings: &Settings) -> Self {
        let (redis_url, own_redis) = match &settings.redis {
            Redis::At(url) => (Some(url.clone()), None),
            Redis::Memory => (None, None),
            Redis::Own => {
                let own = OwnRedis::start().await;
                (own.as_ref().map(OwnRedis::url), own)
            }
        };
        let of_demo = own_redis.as_ref().map(|_| PROCESSES);
        Self {
            second: Mutex::default(),
            redis_url,
            own_redis,
            processes: settings.processes.or(of_demo),
            limits: settings.limits.clone(),
        }
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        self.redis_url.as_deref()
    }

    pub(crate) fn has_own_redis(&self) -> bool {
        self.own_redis.is_some()
    }

    /// What this process admits of each quota while Redis is away.
    pub(crate) fn share(&self) -> Option<Share> {
        Share::checked(1, self.processes?)
    }

    pub(crate) fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/demo", get(Self::status))
            .route("/demo/redis/stop", post(Self::stop_redis))
            .route("/demo/redis/start", post(Self::start_redis))
            .route("/demo/process", post(Self::start_process))
            .with_state(self)
    }

    async fn status(State(demo): State<Arc<Self>>) -> Json<Value> {
        Json(demo.now().await)
    }

    async fn now(&self) -> Value {
        let redis = match (&self.own_redis, &self.redis_url) {
            (Some(own), _) if own.is_running() => "running",
            (Some(_), _) => "stopped",
            (None, Some(_)) => "given",
            (None, None) => "none",
        };
        let second = match self.second.try_lock() {
            Ok(second) => second.as_ref().map(|it| it.address.clone()),
            Err(_) => None, // it is being started
        };
        let second = match second {
            Some(address) if TcpStream::connect(&address).await.is_ok() => Some(address),
            _ => None,
        };
        json!({ "redis": redis, "second": second })
    }

    async fn stop_redis(State(demo): State<Arc<Self>>, fields: HeaderMap) -> Answer {
        check(&fields)?;
        demo.own_redis.as_ref().ok_or_else(not_ours)?.stop().await;
        Ok(Json(demo.now().await))
    }

    async fn start_redis(State(demo): State<Arc<Self>>, fields: HeaderMap) -> Answer {
        check(&fields)?;
        let redis = demo.own_redis.as_ref().ok_or_else(not_ours)?;
        redis.run().await.map_err(failed)?;
        Ok(Json(demo.now().await))
    }

    async fn start_process(State(demo): State<Arc<Self>>, fields: HeaderMap) -> Answer {
        check(&fields)?;
        let url = demo.redis_url().ok_or_else(not_ours)?.to_owned();
        let mut second = demo.second.lock().await;
        let is_there = match &*second {
            Some(it) => TcpStream::connect(&it.address).await.is_ok(),
            None => false,
        };
        if !is_there {
            let (limits, processes) = (demo.limits.clone(), demo.processes);
            let started = spawn_blocking(move || start(&url, &limits, processes));
            let started = tokio::time::timeout(PATIENCE, started).await;
            let started =
                started.map_err(|_| failed("the second process does not listen".into()))?;
            *second = Some(
                started
                    .map_err(|error| failed(error.to_string()))?
                    .map_err(failed)?,
            );
        }
        drop(second);
        Ok(Json(demo.now().await))
    }
}

/// The state afterwards, or why it is as before.
type Answer = Result<Json<Value>, (StatusCode, String)>;

fn failed(error: String) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error)
}

fn not_ours() -> (StatusCode, String) {
    let text = "this app has started no Redis: install redis-server, or set REDIS_URL";
    (StatusCode::CONFLICT, text.to_owned())
}

/// Pages of other origins cannot send this field: the browser asks first, and nobody answers. A
/// foreign name that points to this machine (DNS rebinding) is not in the list.
fn check(fields: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let host = fields.get(header::HOST).and_then(|it| it.to_str().ok());
    let name = host.map(|it| it.rsplit_once(':').map_or(it, |(name, _)| name));
    let is_here = name.is_some_and(|it| ["127.0.0.1", "localhost", "[::1]"].contains(&it));
    match is_here && fields.contains_key("x-demo") {
        true => Ok(()),
        false => Err((
            StatusCode::FORBIDDEN,
            "expected x-demo, and a host of this machine".into(),
        )),
    }
}

/// This program again, on a port of its own.
fn start(redis_url: &str, limits: &str, processes: Option<u32>) -> Result<Second, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = program
        .to_str()
        .ok_or("the path of this program is not UTF-8")?;
    // An empty variable counts as not set.
    let processes = processes.map(|it| it.to_string()).unwrap_or_default();
    let variables = [
        ("PORT", "0"),
        ("REDIS_URL", redis_url),
        ("PROCESSES", &processes),
        ("LIMITS", limits),
    ];
    let (process, output) =
        Owned::start(program, &[], &variables).map_err(|error| error.to_string())?;
    let mut line = String::new();
    let mut output = BufReader::new(output.ok_or("it has no output")?);
    output
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;
    let (_, address) = line
        .trim()
        .split_once("http://")
        .ok_or("the second process has ended")?;
    Ok(Second {
        address: address.to_owned(),
        _process: process,
    })
}
