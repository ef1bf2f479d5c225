use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{ConnectionAddr, ConnectionInfo, RedisError, RedisResult, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::map::{Layout, Map, Node};
use crate::connection::address::RedisAddress;
use crate::connection::keeper::{PAUSE, Target, within};
use crate::connection::line::Line;
use crate::connection::open::{client, unbounded};
use crate::connection::scripts::Preload;
use crate::jitter;

/// How long the nodes may take to say how the cluster is.
const LOOK: Duration = Duration::from_secs(2);
/// A node that has not answered for so long may hang: another one is asked besides.
const NEXT: Duration = Duration::from_millis(50);
/// How long a connection outlives its last use to a node that serves nothing: one to which slots are being moved.
const UNUSED: Duration = Duration::from_secs(30);

/// How the cluster is seen.
#[derive(Clone)]
pub(super) enum View {
    /// Nobody has said yet.
    Connecting,
    Known(Arc<Map>),
    /// Nobody has ever said.
    Unknown(RedisError),
}

/// What the calls and the task that watches share.
pub(super) struct Layouts {
    /// Where connections are kept, whoever is the first to want one.
    runtime: Handle,
    address: RedisAddress,
    preload: Preload,
    /// The connections, and when each was asked for last.
    lines: Mutex<HashMap<Node, (Arc<Line>, Instant)>>,
    /// Rung when something may have changed.
    doubt: Arc<Notify>,
}

impl Layouts {
    pub(super) fn new(address: RedisAddress, preload: Preload) -> Self {
        Self {
            runtime: Handle::current(),
            address,
            preload,
            lines: Mutex::default(),
            doubt: Arc::default(),
        }
    }

    /// Something may have changed.
    pub(super) fn look(&self) {
        self.doubt.notify_one();
    }

    /// The connection to a node: there is one at most.
    pub(super) fn line(&self, node: &Node) -> Arc<Line> {
        let mut lines = self.lines();
        let line = lines.entry(node.clone()).or_insert_with(|| {
            let target = Target::Server(Box::new(self.address.server(&node.host, node.port)));
            let _in_runtime = self.runtime.enter();
            let line = Line::start(target, self.preload, Arc::clone(&self.doubt));
            (Arc::new(line), Instant::now())
        });
        line.1 = Instant::now();
        Arc::clone(&line.0)
    }

    fn map(&self, layout: Layout) -> Map {
        let map = Map::new(layout, |node| self.line(node));
        self.lines().retain(|_, (_, used)| used.elapsed() < UNUSED);
        map
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Node, (Arc<Line>, Instant)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every node that is known, masters that are connected to first, and what was known at the beginning.
    pub(super) fn servers(&self, map: Option<&Map>) -> Vec<ConnectionInfo> {
        let up = |node: &&Node| {
            let mut masters = map.iter().flat_map(|map| &map.masters);
            masters.any(|(master, line)| master == *node && line.link_now().is_some())
        };
        let nodes: Vec<_> = map.iter().flat_map(|map| &map.nodes).collect();
        let (first, then): (Vec<_>, Vec<_>) = nodes.into_iter().partition(up);
        let nodes = first.into_iter().chain(then);
        let nodes = nodes.map(|node| self.address.server(&node.host, node.port));
        let mut servers: Vec<_> = nodes.chain(self.address.servers()).collect();
        let mut seen = HashSet::new();
        servers.retain(|server| seen.insert(server.addr().to_string()));
        servers
    }
}

/// The background task: asks how the cluster is, whenever there is doubt.
pub(super) struct Watcher {
    layouts: Arc<Layouts>,
    view: watch::Sender<View>,
}

impl Watcher {
    pub(super) fn new(layouts: Arc<Layouts>) -> Self {
        Self {
            layouts,
            view: watch::Sender::new(View::Connecting),
        }
    }

    pub(super) fn view(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    pub(super) async fn run(self) {
        loop {
            let next = Instant::now() + PAUSE + jitter::up_to(PAUSE / 2);
            self.look().await;
            sleep_until(next).await;
            // A master that cannot be reached gives cause for doubt at every attempt to.
            if self.map().is_some() {
                self.layouts.doubt.notified().await;
            }
        }
    }

    async fn look(&self) {
        let known = self.map();
        match within(LOOK, self.ask(known.as_deref())).await {
            Ok(layout) => {
                let map = Arc::new(self.layouts.map(layout));
                self.view.send_replace(View::Known(map));
            }
            // An old view is better than none.
            Err(_) if known.is_some() => {}
            Err(error) => {
                self.view.send_replace(View::Unknown(error));
            }
        }
    }

    fn map(&self) -> Option<Arc<Map>> {
        match &*self.view.borrow() {
            View::Known(map) => Some(Arc::clone(map)),
            _ => None,
        }
    }

    /// One node after the other, until one answers; one that hangs holds nobody up. The connections that are there come
    /// first, in an order that differs from look to look.
    async fn ask(&self, map: Option<&Map>) -> RedisResult<Layout> {
        let masters = map.iter().flat_map(|map| &map.masters);
        let up = masters.filter_map(|(node, line)| Some((node.host.clone(), line.link_now()?)));
        let mut up: Vec<_> = up.collect();
        let first = jitter::below(up.len());
        up.rotate_left(first);
        let up = up.into_iter().map(|(host, link)| {
            let answer = async move { layout(link.connection, &host).await };
            Box::pin(answer) as BoxFuture<'_, _>
        });
        let others = self.layouts.servers(map).into_iter();
        let others = others.map(|server| Box::pin(connect_and_ask(server)) as BoxFuture<'_, _>);
        first_good(up.chain(others)).await
    }
}

/// Begins one after the other, the next when the last one has failed or takes long, until one is good.
async fn first_good<T>(
    mut work: impl Iterator<Item = BoxFuture<'_, RedisResult<T>>>,
) -> RedisResult<T> {
    let mut begun = FuturesUnordered::new();
    let mut failure = None;
    loop {
        let next = work.next();
        let is_last = next.is_none();
        begun.extend(next);
        let done = match is_last {
            true => begun.next().await,
            false => match timeout(NEXT, begun.next()).await {
                Ok(done) => done,
                Err(_) => continue,
            },
        };
        match done {
            Some(Ok(good)) => return Ok(good),
            Some(Err(error)) => failure = Some(error),
            None => return Err(failure.expect("there is at least one, and all have failed")),
        }
    }
}

async fn connect_and_ask(server: ConnectionInfo) -> RedisResult<Layout> {
    let host = match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    };
    let client = client(server)?;
    let connection = client
        .get_multiplexed_async_connection_with_config(&unbounded())
        .await?;
    layout(connection, &host).await
}

async fn layout(mut connection: MultiplexedConnection, host: &str) -> RedisResult<Layout> {
    let mut question = cmd("CLUSTER");
    question.arg("SLOTS");
    let answer = connection.req_packed_command(&question).await;
    Layout::read(&answer?.extract_error()?, host)
}
