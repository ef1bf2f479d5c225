//! A network that loses replies, or delivers calls late.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy on a free port.
pub(crate) struct Mute {
    pub(crate) url: String,
    is_mute: Arc<watch::Sender<bool>>,
    /// How often calls were held, and delivered.
    holds: Arc<watch::Sender<u64>>,
    task: tokio::task::JoinHandle<()>,
}

impl Mute {
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let target = url.trim_start_matches("redis://").to_owned();
        let is_mute = Arc::new(watch::Sender::new(false));
        let holds = Arc::new(watch::Sender::new(0));
        let (seen, held) = (is_mute.subscribe(), holds.subscribe());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(replies(from_server, to_client, seen.clone()));
                tokio::spawn(calls(from_client, to_server, held.clone()));
            }
        });
        Self {
            url: format!("redis://{address}"),
            is_mute,
            holds,
            task,
        }
    }

    /// From now on no reply comes through.
    pub(crate) fn begin(&self) {
        self.is_mute.send_replace(true);
    }

    /// From now on calls over the connections that are there are held.
    pub(crate) fn hold(&self) {
        self.holds.send_modify(|holds| *holds += 1);
    }

    /// They come at last.
    pub(crate) fn deliver(&self) {
        self.holds.send_modify(|holds| *holds += 1);
    }

    /// What was mute breaks, and new connections are whole.
    pub(crate) fn end(&self) {
        self.is_mute.send_replace(false);
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn calls(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<u64>) {
    // Odd while they are held; a connection that begins then is not concerned.
    let at_first = *held.borrow();
    let hold = at_first + 1 + at_first % 2;
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if *held.borrow() == hold {
            let _ = held.wait_for(|now| *now > hold).await;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_mute: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 65_536];
    let mut was_mute = false;
    loop {
        tokio::select! {
            biased;
            _ = is_mute.changed() => {
                if was_mute {
                    return;
                }
                was_mute = *is_mute.borrow();
            }
            read = from.read(&mut bytes) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) if was_mute || *is_mute.borrow() => was_mute = true,
                Ok(length) => {
                    if to.write_all(&bytes[..length]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
