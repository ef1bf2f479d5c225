//! What is done to the server and to the way to it, one after the other.

use std::time::Duration;

use tokio::time::sleep;

use kit::proxy::{Mode, Proxy};
use kit::{Redis, run};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Kill,
    Stop,
    Pause,
    PauseWrites,
    BlackHole,
    Delay,
    Cut,
    Reset,
    Garbage,
    LostReply,
    HalfClosed,
    Refuse,
    ForgetScripts,
    ReadOnly,
    NoMemory,
    Password,
}

pub(crate) const FAULTS: [Fault; 16] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Pause,
    Fault::PauseWrites,
    Fault::BlackHole,
    Fault::Delay,
    Fault::Cut,
    Fault::Reset,
    Fault::Garbage,
    Fault::LostReply,
    Fault::HalfClosed,
    Fault::Refuse,
    Fault::ForgetScripts,
    Fault::ReadOnly,
    Fault::NoMemory,
    Fault::Password,
];

impl Fault {
    /// Does it, and takes it back. Tells when the server has forgotten what it had counted.
    pub(crate) async fn play(
        self,
        lasts: Duration,
        server: &mut Redis,
        proxy: &mut Proxy,
        data_is_lost: impl FnOnce(),
    ) {
        match self {
            Self::Kill => {
                server.kill();
                data_is_lost();
                sleep(lasts).await;
                server.restart();
            }
            Self::Stop => {
                server.signal("STOP");
                sleep(lasts).await;
                server.signal("CONT");
            }
            Self::Pause => pause(server, lasts, "ALL").await,
            Self::PauseWrites => pause(server, lasts, "WRITE").await,
            Self::BlackHole => on_the_way(proxy, Mode::BlackHole, lasts).await,
            Self::Delay => {
                let way = Duration::from_millis(40);
                let (calls, replies) = (way, way);
                on_the_way(proxy, Mode::Delay { calls, replies }, lasts).await;
            }
            Self::Cut => on_the_way(proxy, Mode::CutAfter(1_000), lasts).await,
            Self::Reset => on_the_way(proxy, Mode::Reset, lasts).await,
            Self::Garbage => on_the_way(proxy, Mode::Garbage(b"\x00nonsense\r\n"), lasts).await,
            Self::LostReply => on_the_way(proxy, Mode::LoseReplies(1), lasts).await,
            Self::HalfClosed => on_the_way(proxy, Mode::HalfClosed, lasts).await,
            Self::Refuse => {
                proxy.refuse().await;
                proxy.present(Mode::Reset);
                sleep(lasts).await;
                proxy.accept_again().await;
            }
            Self::ForgetScripts => run(server, "SCRIPT FLUSH"),
            Self::ReadOnly => {
                // Of a master that nobody has ever seen.
                server.follow("redis://127.0.0.1:1");
                sleep(lasts).await;
                run(server, "REPLICAOF NO ONE");
            }
            Self::NoMemory => {
                run(server, "CONFIG SET maxmemory 1");
                sleep(lasts).await;
                run(server, "CONFIG SET maxmemory 0");
            }
            Self::Password => {
                let mut admin = kit::lock_out(server);
                sleep(lasts).await;
                kit::let_in(&mut admin);
            }
        }
    }
}

async fn on_the_way(proxy: &Proxy, mode: Mode, lasts: Duration) {
    proxy.all(mode);
    sleep(lasts).await;
    proxy.all(Mode::Pass);
}

async fn pause(server: &Redis, lasts: Duration, which: &str) {
    run(
        server,
        &format!("CLIENT PAUSE {} {which}", lasts.as_millis()),
    );
    sleep(lasts).await;
}
