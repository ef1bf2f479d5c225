use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::lock;

thread_local! {
    /// Whether a request of this thread was the one by which a peer is found, until its layer
    /// looks.
    pub(crate) static FOUND: Cell<bool> = const { Cell::new(false) };
}

/// The trusted peers whose last requests named no client, and how many requests that are, in a row.
/// When one is found with a hundred, none is watched any more.
#[derive(Debug, Default)]
pub(super) struct SilentPeers {
    watched: Mutex<HashMap<IpAddr, u32>>,
    /// How many are watched, so that requests of proxies that name clients take no lock. More than
    /// may be if one is found.
    number: AtomicUsize,
}

impl SilentPeers {
    /// How many are watched at most.
    const MAX: usize = 64;

    pub(super) fn is_found(&self) -> bool {
        self.number.load(Ordering::Relaxed) > Self::MAX
    }

    /// Notes a request of a trusted peer, and whether it named a client.
    pub(super) fn note(&self, peer: IpAddr, has_named: bool) {
        if self.is_found() || has_named && self.number.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut watched = lock(&self.watched);
        if has_named {
            watched.remove(&peer);
        } else if watched.len() < Self::MAX || watched.contains_key(&peer) {
            *watched.entry(peer).or_default() += 1;
        }
        let is_found = watched.values().any(|it| *it >= 100);
        let number = if is_found { usize::MAX } else { watched.len() };
        self.number.store(number, Ordering::Relaxed);
        FOUND.set(is_found || FOUND.get());
    }
}
