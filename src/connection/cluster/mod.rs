//! A connection to every master of a cluster, and who of them is asked.
//!
//! The client of the `redis` crate has one task for all nodes: while it looks at the cluster anew, which it does over
//! connections that may hang, no call to any node gets on. Here each node has a connection that breaks and comes back
//! alone, and the layout is looked at beside them.
//!
//! A call goes to the master of its slot. It is sent again only to a node that another one names instead of doing it
//! (`MOVED`, `ASK`), or when the server says that it has not done it (`TRYAGAIN`): never if it may have been done.

mod map;
mod redirect;
mod slots;
mod watcher;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value, cmd, pipe};
use tokio::sync::watch;
use tokio::time::sleep;

use self::map::{Map, Node};
use self::redirect::{Hops, Redirect, unresolved};
use self::slots::slot_of;
pub(crate) use self::slots::{SLOTS, slot};
use self::watcher::{Layouts, View, Watcher};
use super::address::RedisAddress;
use super::line::{Line, runtime_ended};
use super::scripts::Preload;

/// How often it is asked whether the node that is listened to is still well.
const LOOK_AT_LISTENER: Duration = Duration::from_millis(500);

/// The connection to a cluster. Its background tasks end with it.
pub(super) struct Cluster {
    layouts: Arc<Layouts>,
    view: watch::Receiver<View>,
    watcher: tokio::task::AbortHandle,
}

impl Cluster {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(address: RedisAddress, preload: Preload) -> Self {
        let layouts = Arc::new(Layouts::new(address, preload));
        let watcher = Watcher::new(Arc::clone(&layouts));
        Self {
            layouts,
            view: watcher.view(),
            watcher: tokio::spawn(watcher.run()).abort_handle(),
        }
    }

    /// Completes when the cluster is known and one of its masters is connected to, or when it is known why not, if that
    /// does not pass by itself.
    pub(super) async fn first(&self) -> RedisResult<()> {
        let mut view = self.view.clone();
        let settled = |view: &View| match view {
            View::Connecting => false,
            View::Known(_) => true,
            View::Unknown(error) => !super::line::is_passing(error),
        };
        let map = match view.wait_for(settled).await.as_deref() {
            Ok(View::Known(map)) => Arc::clone(map),
            Ok(View::Unknown(error)) => return Err(error.clone()),
            Ok(View::Connecting) | Err(_) => return Err(runtime_ended()),
        };
        let masters = map.masters.iter();
        let mut tried: FuturesUnordered<_> = masters.map(|(_, line)| line.tried()).collect();
        let mut last = Ok(());
        while let Some(outcome) = tried.next().await {
            match outcome {
                Ok(()) => return Ok(()),
                error => last = error,
            }
        }
        last
    }

    async fn map(&self) -> RedisResult<Arc<Map>> {
        if let View::Known(map) = &*self.view.borrow() {
            return Ok(Arc::clone(map));
        }
        let mut view = self.view.clone();
        let known = |view: &View| !matches!(view, View::Connecting);
        match view.wait_for(known).await.as_deref() {
            Ok(View::Known(map)) => Ok(Arc::clone(map)),
            Ok(View::Unknown(error)) => Err(error.clone()),
            Ok(View::Connecting) | Err(_) => Err(runtime_ended()),
        }
    }

    /// The master of the slot, or any that is connected to for what has none.
    async fn master(&self, slot: Option<u16>) -> RedisResult<(Node, Arc<Line>)> {
        let map = self.map().await?;
        let master = match slot {
            Some(slot) => map.owner(slot),
            None => {
                let mut masters = map.masters.iter();
                let up = masters.find(|(_, line)| line.link_now().is_some());
                up.or(map.masters.first())
            }
        };
        master.cloned().ok_or_else(|| {
            self.layouts.look();
            let detail = slot.map_or_else(String::new, |slot| format!("slot {slot}"));
            let what = "no node of the cluster serves this slot";
            RedisError::from((ErrorKind::ClusterConnectionNotFound, what, detail))
        })
    }

    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        let slot = slot_of(command);
        let mut hops = Hops::default();
        let (mut node, mut line) = self.master(slot).await?;
        let mut is_asking = false;
        loop {
            let reply = match is_asking {
                true => asking(&line, command).await,
                false => line.command(command).await,
            };
            let Some(redirect) = Redirect::of(&reply, &node) else {
                self.look_if_doubtful(&reply);
                return reply;
            };
            if matches!(redirect, Redirect::Moved(_)) {
                self.layouts.look();
            }
            if !hops.has_another(&redirect).await {
                return unresolved(&redirect, reply);
            }
            is_asking = matches!(redirect, Redirect::Ask(_));
            (node, line) = match redirect {
                Redirect::Moved(to) | Redirect::Ask(to) => (to.clone(), self.layouts.line(&to)),
                Redirect::Wait => self.master(slot).await?,
            };
        }
    }

    /// A pipeline goes to the master of its first key. It is not sent on: a part of it may have been done.
    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let slot = pipeline.cmd_iter().find_map(slot_of);
        let (node, line) = self.master(slot).await?;
        let replies = line.commands(pipeline, offset, count).await;
        match &replies {
            Ok(replies) => {
                let is_sent_on = |reply: &Value| Redirect::of_value(reply, &node).is_some();
                if replies.iter().any(is_sent_on) {
                    self.layouts.look();
                }
            }
            Err(_) => self.layouts.look(),
        }
        replies
    }

    /// See [`Line::out_of_step`].
    pub(super) fn out_of_step(&self, key: &str, asked: Instant) {
        if let View::Known(map) = &*self.view.borrow()
            && let Some((_, line)) = map.owner(slot(key.as_bytes()))
        {
            line.out_of_step(asked);
        }
    }

    /// An error may mean that others serve the slot by now.
    fn look_if_doubtful(&self, reply: &RedisResult<Value>) {
        let is_down = |error: &RedisError| error.code() == Some("CLUSTERDOWN");
        let is_doubtful = match reply {
            Err(_) => true,
            Ok(Value::ServerError(error)) => is_down(&RedisError::from(error.clone())),
            Ok(_) => false,
        };
        if is_doubtful {
            self.layouts.look();
        }
    }

    /// Where a connection besides is made to: every node, masters that are connected to first.
    pub(super) fn servers(&self) -> Vec<redis::ConnectionInfo> {
        let known = match &*self.view.borrow() {
            View::Known(map) => Some(Arc::clone(map)),
            _ => None,
        };
        self.layouts.servers(known.as_deref())
    }

    /// Completes when the server is no node of the cluster any more, or is a master that cannot be reached.
    pub(super) async fn left(&self, at: &str) {
        loop {
            if let View::Known(map) = &*self.view.borrow()
                && !map.has(at)
            {
                return;
            }
            sleep(LOOK_AT_LISTENER).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// `ASKING` holds for the command right behind it, so both are written at once.
async fn asking(line: &Line, command: &Cmd) -> RedisResult<Value> {
    let mut both = pipe();
    both.add_command(cmd("ASKING")).add_command(command.clone());
    let mut replies = line.commands(&both, 0, 2).await?;
    match (replies.pop(), replies.pop()) {
        // Who must not ask is told that, and not where the slot still is.
        (Some(reply), Some(refused @ Value::ServerError(_))) if is_moved(&reply) => Ok(refused),
        (Some(reply), Some(_)) => Ok(reply),
        _ => Err(RedisError::from((ErrorKind::Parse, "an answer is missing"))),
    }
}

fn is_moved(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if matches!(error.kind(), Some(ServerErrorKind::Moved)))
}
