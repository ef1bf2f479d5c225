//! What is done to the server and to the way to it, one after the other.

use crate::*;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Kill,
    Stop,
    /// `CLIENT PAUSE` of these.
    Pause(&'static str),
    /// On the way to the server.
    OnTheWay(Mode),
    Refuse,
    ForgetScripts,
    ReadOnly,
    NoMemory,
    Password,
}

const DELAY: Mode = Mode::Delay {
    calls: millis(40),
    replies: millis(40),
};

pub(crate) const FAULTS: [Fault; 16] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Pause("ALL"),
    Fault::Pause("WRITE"),
    Fault::OnTheWay(Mode::BlackHole),
    Fault::OnTheWay(DELAY),
    Fault::OnTheWay(Mode::CutAfter(1_000)),
    Fault::OnTheWay(Mode::Reset),
    Fault::OnTheWay(Mode::Garbage(b"\x00nonsense\r\n")),
    Fault::OnTheWay(Mode::LoseReplies(1)),
    Fault::OnTheWay(Mode::HalfClosed),
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
            Self::Pause(which) => {
                run(
                    server,
                    &format!("CLIENT PAUSE {} {which}", lasts.as_millis()),
                );
                sleep(lasts).await;
            }
            Self::OnTheWay(mode) => {
                proxy.all(mode);
                sleep(lasts).await;
                proxy.all(Mode::Pass);
            }
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
