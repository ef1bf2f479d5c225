use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::layout::{Layout, NodeAddress};
use super::redirect::{Redirects, Route};
use super::slot_map::SlotMap;
use crate::connection::address::RedisAddress;
use crate::connection::errors::store_error;
use crate::connection::node::{Endpoint, Node};
use crate::connection::question::Question;
use crate::connection::queue::Queue;
use crate::connection::reconnector::Target;
use crate::connection::scripts::Preload;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// How long a node that serves no slot is kept after its last use: a slot may be moving to it.
const MAX_UNUSED: Duration = Duration::from_secs(30);

/// Sends each question to the master of its slot. Holds the nodes of the cluster.
///
/// Questions that arrive before the first layout is known wait for it. A node is kept for 30
/// seconds after the last layout or redirection that named it: while a slot is being moved, the
/// layout does not name the node that it moves to.
pub(super) struct Router {
    pub(super) address: RedisAddress,
    pub(super) state: ArcSwap<RouterState>,
    /// Notified when the state has changed.
    pub(super) state_changed: Notify,
    /// Notified when the layout may have changed.
    pub(super) layout_changed: Arc<Notify>,
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
pub(super) enum RouterState {
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
    pub(super) fn new(address: RedisAddress, label: &Arc<str>, preload: Preload) -> Self {
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
    pub(super) fn ask(&self, question: Question) {
        match &**self.state.load() {
            RouterState::Known(map) => match map.owner(question.slot) {
                Some(node) => node.ask(question),
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
                    self.ask_early();
                }
            }
        }
    }

    /// Asks the questions that waited for the first layout.
    fn ask_early(&self) {
        for question in self.early.take(usize::MAX) {
            self.ask(question);
        }
    }

    /// Uses a layout from now on. Makes nodes for new masters, and drops nodes that serve no slot.
    pub(super) fn set_layout(self: &Arc<Self>, layout: Layout) {
        let map = SlotMap::new(layout, |address| self.node(address));
        lock(&self.nodes).retain(|_, (_, used)| used.elapsed() < MAX_UNUSED);
        self.set_state(RouterState::Known(map));
    }

    /// Changes the state, and answers the questions that waited for it.
    pub(super) fn set_state(&self, state: RouterState) {
        self.state.store(Arc::new(state));
        self.state_changed.notify_waiters();
        self.ask_early();
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
                (Some(router), Some(address)) => router.node(address).ask(question),
                (Some(router), None) => router.ask(question),
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
