use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use redis::{Cmd, ConnectionAddr, RedisResult, cmd};
use tokio::time::{Instant, sleep_until, timeout};

use super::layout::{Layout, SlotMap};
use crate::connection::address::Server;
use crate::connection::cluster::{Router, RouterState};
use crate::connection::link::{connect, unbounded};
use crate::connection::reconnector::{ATTEMPT_INTERVAL, within};
use crate::jitter;

/// How long the nodes may take to report the layout.
const MAX_REFRESH: Duration = Duration::from_secs(2);
/// How often the layout is asked for once it may have changed.
const REFRESHES: usize = 3;
/// How long the last asked node is waited for before another one is asked beside it.
const MAX_ALONE: Duration = Duration::from_millis(50);

/// The background task that asks the nodes for the layout, at first and whenever it may have
/// changed.
///
/// It may have changed when a question was redirected, when a slot has no master, and when a
/// connection to a master is lost or silent. While a master cannot be reached, each failed attempt
/// to connect to it notifies the task again, so that a promoted replica is found.
///
/// The watcher believes the first node that answers. Right after a change that may be the old
/// layout, so it asks three times, and again behind the next refusal or failed attempt; the order
/// of the nodes is random.
///
/// It ends when it is aborted, and asks at most once in 120 to 180 ms.
pub(super) async fn watch_layout(router: Arc<Router>) {
    let mut refreshes = 1;
    loop {
        for _ in 0..refreshes {
            let next = Instant::now() + ATTEMPT_INTERVAL + jitter::up_to(ATTEMPT_INTERVAL / 2);
            refresh(&router).await;
            sleep_until(next).await;
        }
        // While a master cannot be reached, each failed attempt to connect notifies.
        if matches!(&**router.state.load(), RouterState::Known(_)) {
            router.layout_changed.notified().await;
            refreshes = REFRESHES;
        }
    }
}

/// Asks for the layout once. If no node answers, the router keeps the layout that it has.
async fn refresh(router: &Arc<Router>) {
    let state = router.state.load_full();
    let known = match &*state {
        RouterState::Known(map) => Some(map),
        RouterState::Connecting | RouterState::Unknown(_) => None,
    };
    match within(MAX_REFRESH, query_nodes(router, known)).await {
        Ok(layout) => router.set_layout(layout),
        // An old layout is better than none.
        Err(_) if known.is_some() => {}
        Err(error) => router.set_state(RouterState::Unknown(error)),
    }
}

/// Asks one node after the other until one answers. A node that hangs does not delay the next.
/// Nodes that are connected come first, in random order.
async fn query_nodes(router: &Router, map: Option<&SlotMap>) -> RedisResult<Layout> {
    let masters = map.iter().flat_map(|map| &map.masters);
    let links = masters.filter_map(|(address, node)| Some((&*address.host, node.link()?)));
    let mut links: Vec<_> = links.collect();
    fastrand::shuffle(&mut links);
    let over_links = links.into_iter().map(|(host, link)| {
        let layout = async move { Layout::read(&link.query(cluster_slots()).await?, host) };
        Box::pin(layout) as BoxFuture<'_, _>
    });
    let servers = servers(router, map).into_iter();
    let over_new = servers.map(|server| Box::pin(connect_and_ask(server)) as BoxFuture<'_, _>);
    first_success(over_links.chain(over_new)).await
}

/// Every server of the known layout, and those of the address.
fn servers(router: &Router, map: Option<&SlotMap>) -> Vec<Server> {
    let address = &router.address;
    let known = map.iter().flat_map(|map| &map.servers);
    let known = known.map(|server| address.server(&server.host, server.port));
    let mut servers: Vec<_> = known.chain(address.servers()).collect();
    let mut seen = HashSet::new();
    servers.retain(|server| seen.insert(server.info.addr().to_string()));
    servers
}

/// Starts one future after the other, the next one when the last has failed or takes long, until
/// one succeeds.
async fn first_success<T>(
    mut futures: impl Iterator<Item = BoxFuture<'_, RedisResult<T>>>,
) -> RedisResult<T> {
    let mut started = FuturesUnordered::new();
    let mut failure = None;
    loop {
        let next = futures.next();
        let is_last = next.is_none();
        started.extend(next);
        let outcome = if is_last {
            started.next().await
        } else {
            match timeout(MAX_ALONE, started.next()).await {
                Ok(outcome) => outcome,
                Err(_) => continue,
            }
        };
        match outcome {
            Some(Ok(success)) => return Ok(success),
            Some(Err(error)) => failure = Some(error),
            None => return Err(failure.expect("there is at least one, and all have failed")),
        }
    }
}

/// Asks a server for the layout over a connection of its own.
async fn connect_and_ask(server: Server) -> RedisResult<Layout> {
    let (info, _) = server.with_credentials().await?;
    let host = match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    };
    let mut connection = connect(info, &unbounded()).await?;
    let reply = connection.req_packed_command(&cluster_slots()).await?;
    Layout::read(&reply.extract_error()?, &host)
}

/// The command that asks a node for the layout.
fn cluster_slots() -> Cmd {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    command
}
