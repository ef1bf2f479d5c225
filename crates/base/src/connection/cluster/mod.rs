//! A cluster: one node for each master, and the way of a question to the master of its slot.
//!
//! A question that was refused is sent again: to the node that the refusal names (`MOVED`, `ASK`),
//! or after a pause to the master of its slot (`TRYAGAIN`). One that may have been executed is never
//! sent again. `docs/evidence/dependencies.md` tells why the cluster client of
//! the `redis` crate is not used.
//!
//! ```text
//! question -> Router: slot -> SlotMap -> Node of the master -> flight
//!               ^                                                |
//!               |      MOVED, ASK to a node that was named       |  refused: nothing
//!               +------------------ Redirects <------------------+  was executed
//!               |      TRYAGAIN: after a pause, by the slot
//!               |
//!            watch_layout: asks any node for CLUSTER SLOTS when a refusal, a lost
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
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{ErrorKind, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::layout::{Layout, NodeAddress, SlotMap};
use self::layout_watcher::watch_layout;
use super::address::RedisAddress;
use super::direct::{Alone, Driver};
use super::errors::{may_pass, store_error};
use super::link::Link;
use super::node::{Endpoint, Node};
use super::question::{Label, Question};
use super::queue::Queue;
use super::reconnector::Target;
use super::scripts::Preload;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::{OwnedTask, lock};

pub(super) use self::layout::slot;
pub(super) use self::redirect::Redirects;

/// The masters of a cluster. The background tasks end when this is dropped.
///
/// A connection owns it. The watcher holds the router, too, so it is aborted here: otherwise the
/// nodes, their tasks and their links would outlive the connection.
pub(super) struct Cluster {
    router: Arc<Router>,
    _watcher: OwnedTask,
}

impl Cluster {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(address: RedisAddress, label: &Arc<Label>, preload: Preload) -> Self {
        let router = Arc::new(Router::new(address, label, preload));
        let watcher = tokio::spawn(watch_layout(Arc::clone(&router)));
        Self {
            router,
            _watcher: OwnedTask(watcher.abort_handle()),
        }
    }

    /// Asks the master of the question's slot.
    pub(super) fn enqueue(&self, question: Question, driver: Driver) -> Option<Alone> {
        self.router.enqueue(question, driver)
    }

    /// Why a master of some slots is not connected, if one is not, and the label of it or of the
    /// cluster. Asks for the layout again where slots have no master.
    pub(super) fn missing(&self) -> Option<(RedisError, Arc<Label>)> {
        let of_all = |error| Some((error, Arc::clone(&self.router.label)));
        match &**self.router.state.load() {
            RouterState::Connecting => of_all(io::Error::from(io::ErrorKind::TimedOut).into()),
            RouterState::Unknown(error) => of_all(error.clone()),
            RouterState::Known(map) => {
                let missing = map.masters.iter().filter_map(|(_, node)| node.missing());
                missing
                    .max_by_key(|(error, _)| may_pass(error))
                    .or_else(|| {
                        let unserved = map.has_unserved().then_some(ErrorKind::Io)?;
                        self.router.layout_changed.notify_one();
                        of_all((unserved, "some slots have no master").into())
                    })
            }
        }
    }

    /// Calls this with the node of each master that is known.
    pub(super) fn each_master(&self, call: impl FnMut(&Node)) {
        if let RouterState::Known(map) = &**self.router.state.load() {
            map.masters.iter().map(|(_, node)| &**node).for_each(call);
        }
    }

    /// The master of a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        match &**self.router.state.load() {
            RouterState::Known(map) => map.owner(slot).cloned(),
            RouterState::Connecting | RouterState::Unknown(_) => None,
        }
    }

    /// The first of these names of keys on each master.
    pub(super) fn first_on_each(&self, name: impl Fn(u32) -> String) -> Vec<String> {
        /// Enough to meet a slot that is alone on its master.
        const MAX_TRIED: u32 = 1 << 18;
        let mut owners = Vec::<Arc<Node>>::new();
        let is_new = |name: &String| {
            let owner = self.owner(slot(name.as_bytes()));
            let new = owner.filter(|it| !owners.iter().any(|known| Arc::ptr_eq(known, it)));
            owners.extend(new.clone());
            new.is_some()
        };
        let mut masters = 0;
        self.each_master(|_| masters += 1);
        let names = (0..MAX_TRIED).map(name).filter(is_new);
        names.take(masters).collect()
    }

    /// Changes whenever the layout may have changed.
    pub(super) fn layouts(&self) -> watch::Receiver<()> {
        self.router.layouts.subscribe()
    }

    /// A connection to any master.
    pub(super) fn link(&self) -> Option<Link> {
        match &**self.router.state.load() {
            RouterState::Known(map) => map.masters.iter().find_map(|(_, node)| node.link()),
            RouterState::Connecting | RouterState::Unknown(_) => None,
        }
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
    /// Changes with the state.
    layouts: watch::Sender<()>,
    /// Notified when the layout may have changed.
    layout_changed: Arc<Notify>,
    label: Arc<Label>,
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
    fn new(address: RedisAddress, label: &Arc<Label>, preload: Preload) -> Self {
        Self {
            address,
            state: ArcSwap::from_pointee(RouterState::Connecting),
            layouts: watch::Sender::default(),
            layout_changed: Arc::default(),
            label: Arc::clone(label),
            preload,
            runtime: Handle::current(),
            early: Queue::new(label),
            nodes: Mutex::default(),
        }
    }

    /// Asks the master of the question's slot.
    fn enqueue(&self, question: Question, driver: Driver) -> Option<Alone> {
        let slot = question.slot.unwrap_or_default();
        match &**self.state.load() {
            RouterState::Known(map) => match map.owner(slot) {
                Some(node) => return node.enqueue(question, driver),
                None => {
                    self.layout_changed.notify_one();
                    let error = self.unserved(slot);
                    question.fail(error);
                }
            },
            RouterState::Unknown(error) => {
                question.fail(store_error(&self.label.text, error.clone()))
            }
            RouterState::Connecting => {
                self.early.push(question);
                // The state may have changed after it was read above.
                if !matches!(&**self.state.load(), RouterState::Connecting) {
                    self.enqueue_early();
                }
            }
        }
        None
    }

    /// Asks the questions that waited for the first layout.
    fn enqueue_early(&self) {
        for question in self.early.take(usize::MAX) {
            self.enqueue(question, Driver::Dispatcher);
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
        self.layouts.send_replace(());
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
            // The router holds the nodes, so a strong pointer would keep it alive forever.
            router: Arc::downgrade(self),
        };
        let label = Label {
            text: format!("{}, node {address},", self.label.text).into(),
            lag: Arc::clone(&self.label.lag),
            is_proven: Arc::clone(&self.label.is_proven),
        };
        let endpoint = Endpoint {
            queue: Arc::new(Queue::new(&Arc::new(label))),
            redirects: Some(redirects),
        };
        let failed = Arc::clone(&self.layout_changed);
        let _in_runtime = self.runtime.enter();
        Node::start(
            Target::Server(Box::new(server)),
            self.preload.clone(),
            endpoint,
            failed,
        )
    }

    /// Asks a question again, at this node or at the master of its slot.
    fn ask_again(self: &Arc<Self>, question: Question, to: Option<&NodeAddress>) {
        match to {
            Some(to) => self.node(to).enqueue(question, Driver::Dispatcher),
            None => self.enqueue(question, Driver::Dispatcher),
        };
    }

    /// The error of a question for a slot without a master.
    fn unserved(&self, slot: u16) -> StoreError {
        let label = &self.label.text;
        let message =
            format!("{label} is not available: no node of the cluster serves slot {slot}");
        StoreError::new(StoreErrorKind::Unavailable, message)
    }
}
