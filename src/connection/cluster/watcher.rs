use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use redis::{ConnectionAddr, ConnectionInfo, Pipeline, RedisResult, Value, pipe};
use tokio::time::{Instant, sleep_until, timeout};

use super::layout::{Layout, SlotMap};
use super::{Shared, View};
use crate::connection::link::{client, unbounded};
use crate::connection::reconnector::{PAUSE, within};
use crate::jitter;

/// How long the nodes may take to say how the cluster is.
const MAX_LOOK: Duration = Duration::from_secs(2);
/// A node that has not answered for so long may hang: another one is asked beside it.
const NEXT: Duration = Duration::from_millis(50);

/// The background task: asks how the cluster is, whenever there is doubt.
pub(super) struct Watcher {
    cluster: Arc<Shared>,
}

impl Watcher {
    pub(super) fn new(cluster: Arc<Shared>) -> Self {
        Self { cluster }
    }

    pub(super) async fn run(self) {
        loop {
            let next = Instant::now() + PAUSE + jitter::up_to(PAUSE / 2);
            self.look().await;
            sleep_until(next).await;
            // A master that cannot be reached gives cause for doubt at every attempt to.
            if matches!(&**self.cluster.view.load(), View::Known(_)) {
                self.cluster.doubt.notified().await;
            }
        }
    }

    async fn look(&self) {
        let view = self.cluster.view.load_full();
        let known = match &*view {
            View::Known(map) => Some(map),
            _ => None,
        };
        match within(MAX_LOOK, self.ask(known)).await {
            Ok(layout) => self.cluster.set_view(View::Known(self.cluster.map(layout))),
            // An old view is better than none.
            Err(_) if known.is_some() => {}
            Err(error) => self.cluster.set_view(View::Unknown(error)),
        }
    }

    /// One node after the other, until one answers; one that hangs holds nobody up. The connections
    /// that are there come first, in an order that differs from look to look.
    async fn ask(&self, map: Option<&SlotMap>) -> RedisResult<Layout> {
        let masters = map.iter().flat_map(|map| &map.masters);
        let up = masters.filter_map(|(at, node)| Some((at.host.clone(), node.link()?)));
        let mut up: Vec<_> = up.collect();
        let first = jitter::below(up.len());
        up.rotate_left(first);
        let up = up.into_iter().map(|(host, link)| {
            let answer = async move {
                let answer = link.ask(&question()).await?;
                Layout::read(&first_of(answer)?, &host)
            };
            Box::pin(answer) as BoxFuture<'_, _>
        });
        let others = self.servers(map).into_iter();
        let others = others.map(|server| Box::pin(connect_and_ask(server)) as BoxFuture<'_, _>);
        first_good(up.chain(others)).await
    }

    /// Every node that is known, and the addresses that were given.
    fn servers(&self, map: Option<&SlotMap>) -> Vec<ConnectionInfo> {
        let address = &self.cluster.address;
        let nodes = map.iter().flat_map(|map| &map.nodes);
        let nodes = nodes.map(|node| address.server(&node.host, node.port));
        let mut servers: Vec<_> = nodes.chain(address.servers()).collect();
        let mut seen = HashSet::new();
        servers.retain(|server| seen.insert(server.addr().to_string()));
        servers
    }
}

/// Begins one after the other, the next when the last one has failed or takes long, until one is
/// good.
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
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&unbounded())
        .await?;
    let answer = connection.req_packed_commands(&question(), 0, 1).await?;
    Layout::read(&first_of(answer)?, &host)
}

fn question() -> Pipeline {
    let mut question = pipe();
    question.cmd("CLUSTER").arg("SLOTS");
    question
}

fn first_of(answers: Vec<Value>) -> RedisResult<Value> {
    let answer = answers.into_iter().next().unwrap_or(Value::Nil);
    answer.extract_error()
}
