//! A node for every master of a cluster, and which of them is asked.
//!
//! A question goes to the master of its slot. It is sent again only to a node that another one
//! names instead of doing it (`MOVED`, `ASK`), or when the server says that it has not done it
//! (`TRYAGAIN`): never if it may have been done. `docs/dependencies.md` tells why the cluster
//! client of the `redis` crate is not used.

mod layout;
mod redirect;
mod slots;
mod watcher;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::layout::{Layout, NodeAddress, SlotMap};
pub(in crate::connection) use self::redirect::Redirects;
pub(super) use self::slots::slot;
use self::watcher::Watcher;
use super::address::RedisAddress;
use super::errors::store_error;
use super::flight::Home;
use super::link::Link;
use super::node::Node;
use super::question::Question;
use super::queue::Queue;
use super::reconnector::Target;
use super::scripts::Preload;
use crate::error::{StoreError, StoreErrorKind};

/// How long a node that serves no slot is kept after its last use: slots may be on their way to it.
const UNUSED: Duration = Duration::from_secs(30);

/// The masters of a cluster. The background tasks end with it.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    watcher: tokio::task::AbortHandle,
}

/// What questions, nodes and the task that watches the layout share.
pub(super) struct Shared {
    /// Where the nodes' tasks run.
    runtime: Handle,
    address: RedisAddress,
    label: Arc<str>,
    preload: Preload,
    view: ArcSwap<View>,
    /// Questions that wait for the first view.
    early: Queue,
    /// With the instant of the last use. There is one node for an address.
    nodes: Mutex<HashMap<NodeAddress, (Arc<Node>, Instant)>>,
    /// Notified when the layout may have changed.
    doubt: Arc<Notify>,
}

/// The layout of the cluster, as far as it is known.
enum View {
    /// No node has answered yet.
    Connecting,
    Known(SlotMap),
    /// No node has ever answered.
    Unknown(RedisError),
}

impl Cluster {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(address: RedisAddress, label: &Arc<str>, preload: Preload) -> Self {
        let shared = Arc::new(Shared {
            runtime: Handle::current(),
            address,
            label: Arc::clone(label),
            preload,
            view: ArcSwap::from_pointee(View::Connecting),
            early: Queue::new(label),
            nodes: Mutex::default(),
            doubt: Arc::default(),
        });
        let watcher = tokio::spawn(Watcher::new(Arc::clone(&shared)).run());
        Self {
            shared,
            watcher: watcher.abort_handle(),
        }
    }

    /// Whether one of the masters is connected to; `None` before all first attempts have ended.
    pub(super) fn status(&self) -> Option<RedisResult<()>> {
        match &**self.shared.view.load() {
            View::Connecting => None,
            View::Unknown(error) => Some(Err(error.clone())),
            View::Known(map) => {
                let statuses = map.masters.iter().map(|(_, node)| node.status());
                let statuses: Vec<_> = statuses.collect();
                match statuses.contains(&Some(Ok(()))) {
                    true => Some(Ok(())),
                    false => statuses.into_iter().collect::<Option<Vec<_>>>()?.pop(),
                }
            }
        }
    }

    pub(super) fn ask(&self, question: Question) {
        self.shared.ask(question);
    }

    /// The connection to any master.
    pub(super) fn link(&self) -> Option<Link> {
        match &**self.shared.view.load() {
            View::Known(map) => map.masters.iter().find_map(|(_, node)| node.link()),
            _ => None,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Shared {
    /// Asks the master of the question's slot.
    fn ask(&self, question: Question) {
        match &**self.view.load() {
            View::Known(map) => match map.owner(question.slot) {
                Some(node) => node.ask(question),
                None => {
                    self.doubt.notify_one();
                    let (label, slot) = (&self.label, question.slot);
                    let what = "is not available: no node of the cluster serves slot";
                    let message = format!("{label} {what} {slot}");
                    question.fail(StoreError::new(StoreErrorKind::Unavailable, message));
                }
            },
            View::Unknown(error) => question.fail(store_error(&self.label, error.clone())),
            View::Connecting => {
                self.early.push(question);
                // The first view may have come meanwhile.
                if !matches!(&**self.view.load(), View::Connecting) {
                    self.ask_early();
                }
            }
        }
    }

    fn ask_early(&self) {
        for question in self.early.take(usize::MAX) {
            self.ask(question);
        }
    }

    fn set_view(&self, view: View) {
        self.view.store(Arc::new(view));
        self.ask_early();
    }

    /// The node at an address; begins to connect to it if there is none.
    fn node(self: &Arc<Self>, at: &NodeAddress) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        let (node, used) = nodes.entry(at.clone()).or_insert_with(|| {
            let target = Target::Server(Box::new(self.address.server(&at.host, at.port)));
            let home = Home {
                address: Arc::clone(&self.label),
                queue: Arc::new(Queue::new(&self.label)),
                redirects: Some(Redirects::new(Arc::downgrade(self), at.clone())),
            };
            let _in_runtime = self.runtime.enter();
            let node = Node::start(target, self.preload, home, Arc::clone(&self.doubt));
            (Arc::new(node), Instant::now())
        });
        *used = Instant::now();
        Arc::clone(node)
    }

    fn map(self: &Arc<Self>, layout: Layout) -> SlotMap {
        let map = SlotMap::new(layout, |node| self.node(node));
        lock(&self.nodes).retain(|_, (_, used)| used.elapsed() < UNUSED);
        map
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
