//! A cluster: one node for each master, and the way of a question to the master of its slot.
//!
//! A question is sent again only to a node that another node names in a refusal (`MOVED`, `ASK`),
//! or when the server says that it has not executed it (`TRYAGAIN`). A question that may have been
//! executed is never sent again. `docs/evidence/dependencies.md` tells why the cluster client of the `redis`
//! crate is not used.
//!
//! ```text
//! question -> Router: slot -> SlotMap -> Node of the master -> flight
//!               ^                                                |
//!               |      MOVED, ASK to a node that was named       |  refused: nothing
//!               +------------------ Redirects <------------------+  was executed
//!               |      TRYAGAIN: after a pause, by the slot
//!               |
//!            LayoutWatcher: asks any node for CLUSTER SLOTS when a refusal, a lost
//!            link or a slot without a master says that the layout has changed
//! ```
//!
//! Each master is a [`Node`](super::node::Node) with a queue and a link of its own, so one that
//! hangs delays its own slots only. The router owns the nodes and the layout watcher refreshes the
//! map. Nodes have a way back into the router, which is a weak pointer: otherwise both would live
//! forever.

mod layout;
mod layout_watcher;
mod redirect;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::select_ok;
use redis::{RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::layout::{Layout, NodeAddress, SlotMap};
use self::layout_watcher::LayoutWatcher;
use self::redirect::Route;
use super::address::RedisAddress;
use super::direct::Way;
use super::errors::{may_pass, store_error};
use super::link::Link;
use super::node::{Endpoint, Node};
use super::question::Question;
use super::queue::Queue;
use super::reconnector::Target;
use super::scripts::Preload;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

pub(super) use self::layout::slot;
pub(super) use self::redirect::Redirects;

/// The masters of a cluster. The background tasks end when this is dropped.
///
/// A connection owns it. The watcher holds the router, too, so it is aborted here: otherwise the
/// nodes, their tasks and their links would outlive the connection.
pub(super) struct Cluster {
    router: Arc<Router>,
    watcher: AbortHandle,
}

impl Cluster {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(address: RedisAddress, label: &Arc<str>, preload: Preload) -> Self {
        let router = Arc::new(Router::new(address, label, preload));
        let watcher = tokio::spawn(LayoutWatcher::new(Arc::clone(&router)).run());
        Self {
            router,
            watcher: watcher.abort_handle(),
        }
    }

    /// Completes when one of the masters is connected, or with an error that will not pass by
    /// itself.
    pub(super) async fn connected(&self) -> RedisResult<()> {
        loop {
            let mut changed = pin!(self.router.state_changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            match &*self.router.state.load_full() {
                RouterState::Unknown(error) if !may_pass(error) => return Err(error.clone()),
                RouterState::Connecting | RouterState::Unknown(_) => changed.await,
                RouterState::Known(map) => {
                    let masters = map.masters.iter();
                    let connected = masters.map(|(_, node)| Box::pin(node.connected()));
                    tokio::select! {
                        first = select_ok(connected) => return first.map(drop),
                        () = changed => {}
                    }
                }
            }
        }
    }

    /// Asks the master of the question's slot.
    pub(super) fn enqueue(&self, question: Question) {
        self.router.enqueue(question);
    }

    /// Asks the master of the take's slot. Its caller may send it itself.
    pub(super) fn enqueue_take(&self, question: Question) -> Way {
        if let RouterState::Known(map) = &**self.router.state.load()
            && let Some(node) = map.owner(question.slot)
        {
            return node.enqueue_take(question);
        }
        self.router.enqueue(question);
        Way::Queued
    }

    /// A connection to any master.
    pub(super) fn link(&self) -> Option<Link> {
        match &**self.router.state.load() {
            RouterState::Known(map) => map.masters.iter().find_map(|(_, node)| node.link()),
            RouterState::Connecting | RouterState::Unknown(_) => None,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// How long a node that serves no slot is kept after its last use: a slot may be moving to it.
const MAX_UNUSED: Duration = Duration::from_secs(30);

/// Sends each question to the master of its slot. Holds the nodes of the cluster.
///
/// Questions that arrive before the first layout is known wait for it. A node is kept for 30
/// seconds after the last layout or redirection that named it: while a slot is being moved, the
/// layout does not name the node that it moves to.
struct Router {
    address: RedisAddress,
    state: ArcSwap<RouterState>,
    /// Notified when the state has changed.
    state_changed: Notify,
    /// Notified when the layout may have changed.
    layout_changed: Arc<Notify>,
    label: Arc<str>,
    preload: Preload,
    /// The runtime of the nodes' tasks.
    runtime: Handle,
    /// Questions that wait for the first layout.
    early: Queue,
    /// One node for each address, with the instant of its last use.
    nodes: Mutex<HashMap<NodeAddress, (Arc<Node>, Instant)>>,
}

/// Whether the masters of the slots are known.
///
/// Once known it stays known: an old layout is better than none, because the masters that it names
/// redirect to the right ones.
enum RouterState {
    /// The nodes are being asked for the first time.
    Connecting,
    Known(SlotMap),
    /// No node has ever answered.
    Unknown(RedisError),
}

impl Router {
    /// A router that does not know the masters yet.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    fn new(address: RedisAddress, label: &Arc<str>, preload: Preload) -> Self {
        Self {
            address,
            state: ArcSwap::from_pointee(RouterState::Connecting),
            state_changed: Notify::new(),
            layout_changed: Arc::default(),
            label: Arc::clone(label),
            preload,
            runtime: Handle::current(),
            early: Queue::new(label),
            nodes: Mutex::default(),
        }
    }

    /// Asks the master of the question's slot.
    fn enqueue(&self, question: Question) {
        match &**self.state.load() {
            RouterState::Known(map) => match map.owner(question.slot) {
                Some(node) => node.enqueue(question),
                None => {
                    self.layout_changed.notify_one();
                    let error = self.unserved(question.slot);
                    question.fail(error);
                }
            },
            RouterState::Unknown(error) => question.fail(store_error(&self.label, error.clone())),
            RouterState::Connecting => {
                self.early.push(question);
                // The state may have changed after it was read above.
                if !matches!(&**self.state.load(), RouterState::Connecting) {
                    self.enqueue_early();
                }
            }
        }
    }

    /// Asks the questions that waited for the first layout.
    fn enqueue_early(&self) {
        for question in self.early.take(usize::MAX) {
            self.enqueue(question);
        }
    }

    /// Uses a layout from now on. Makes nodes for new masters, and drops nodes that serve no slot.
    fn set_layout(self: &Arc<Self>, layout: Layout) {
        let map = SlotMap::new(layout, |address| self.node(address));
        lock(&self.nodes).retain(|_, (_, used)| used.elapsed() < MAX_UNUSED);
        self.set_state(RouterState::Known(map));
    }

    /// Changes the state, and answers the questions that waited for it.
    fn set_state(&self, state: RouterState) {
        self.state.store(Arc::new(state));
        self.state_changed.notify_waiters();
        self.enqueue_early();
    }

    /// The node at an address. If there is none, it is made and begins to connect.
    fn node(self: &Arc<Self>, address: &NodeAddress) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        let (node, used) = nodes
            .entry(address.clone())
            .or_insert_with(|| (Arc::new(self.start_node(address)), Instant::now()));
        *used = Instant::now();
        Arc::clone(node)
    }

    /// A new node, which begins to connect.
    fn start_node(self: &Arc<Self>, address: &NodeAddress) -> Node {
        let server = self.address.server(&address.host, address.port);
        let redirects = Redirects {
            refusing: address.clone(),
            layout_changed: Arc::clone(&self.layout_changed),
            route: self.route(),
        };
        let endpoint = Endpoint {
            label: Arc::clone(&self.label),
            queue: Arc::new(Queue::new(&self.label)),
            redirects: Some(redirects),
        };
        let failed = Arc::clone(&self.layout_changed);
        let _in_runtime = self.runtime.enter();
        Node::start(
            Target::Server(Box::new(server)),
            self.preload,
            endpoint,
            failed,
        )
    }

    /// The way of redirected questions back into this router.
    fn route(self: &Arc<Self>) -> Arc<Route> {
        // The nodes hold the route, so a strong pointer would keep the router alive forever.
        let router = Arc::downgrade(self);
        Arc::new(move |question, to: Option<&NodeAddress>| {
            match (router.upgrade(), to) {
                (Some(router), Some(address)) => router.node(address).enqueue(question),
                (Some(router), None) => router.enqueue(question),
                // The connection was dropped. So is the question.
                (None, _) => {}
            }
        })
    }

    /// The error of a question for a slot without a master.
    fn unserved(&self, slot: u16) -> StoreError {
        let label = &self.label;
        let message =
            format!("{label} is not available: no node of the cluster serves slot {slot}");
        StoreError::new(StoreErrorKind::Unavailable, message)
    }
}
