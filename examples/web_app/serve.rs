//! Listens, and ends gracefully within a bounded time.

use std::future::IntoFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long requests in progress may take after the app was asked to stop.
const GRACE: Duration = Duration::from_secs(3);

/// Takes the port, on this machine only.
pub(crate) async fn listen(port: u16) -> Result<TcpListener, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let taken = |error| format!("cannot listen on {address}: {error}; PORT names another one");
    TcpListener::bind(address).await.map_err(taken)
}

/// Answers requests until it is asked to stop.
pub(crate) async fn until_stopped(
    listener: TcpListener,
    app: Router,
    asked_to_stop: Stop,
) -> Result<(), String> {
    // With the peer's address, from which the key `client-ip` starts.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let (stop, stopped) = oneshot::channel::<()>();
    let graceful = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    let mut serving = pin!(graceful.into_future());
    tokio::select! {
        ended = &mut serving => return ended.map_err(|error| error.to_string()),
        () = asked_to_stop.asked() => {}
    }
    drop(stop);
    if tokio::time::timeout(GRACE, serving).await.is_err() {
        eprintln!("web_app: closed what was still open after {GRACE:?}");
    }
    Ok(())
}

/// Ctrl-C and SIGTERM, which are listened to from the moment that this is made.
pub(crate) struct Stop(#[cfg(unix)] [tokio::signal::unix::Signal; 2]);

impl Stop {
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, String> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|error: std::io::Error| error.to_string());
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self([interrupt, listen(SignalKind::terminate())?]))
    }

    #[cfg(unix)]
    async fn asked(self) {
        let [mut interrupt, mut terminate] = self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, String> {
        Ok(Self())
    }

    #[cfg(not(unix))]
    async fn asked(self) {
        // Where signals cannot be received, the app does not end by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
