//! What is done to the server and to the way to it, one after the other.

use crate::*;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Kill,
    Stop,
    /// On the way to the server.
    OnTheWay(Mode),
    Refuse,
    Password,
    /// The first of these commands begins it, and the second ends it.
    Commands(&'static str, &'static str),
}

const FORGET_SCRIPTS: &str = "SCRIPT FLUSH";
const UNPAUSE: &str = "CLIENT UNPAUSE";

const DELAY: Mode = Mode::Delay {
    calls: millis(40),
    replies: millis(40),
};

pub(crate) const FAULTS: [Fault; 16] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Commands("CLIENT PAUSE 60000 ALL", UNPAUSE),
    Fault::Commands("CLIENT PAUSE 60000 WRITE", UNPAUSE),
    Fault::OnTheWay(Mode::BlackHole),
    Fault::OnTheWay(DELAY),
    Fault::OnTheWay(Mode::CutAfter(1_000)),
    Fault::OnTheWay(Mode::Reset),
    Fault::OnTheWay(Mode::Garbage(b"\x00nonsense\r\n")),
    Fault::OnTheWay(Mode::LoseReplies(1)),
    Fault::OnTheWay(Mode::HalfClosed),
    Fault::Refuse,
    Fault::Commands(FORGET_SCRIPTS, FORGET_SCRIPTS),
    // Of a master that nobody has ever seen.
    Fault::Commands("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    Fault::Commands("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
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
        let mut admin = None;
        match self {
            Self::Kill => {
                server.kill();
                data_is_lost();
            }
            Self::Stop => server.signal("STOP"),
            Self::OnTheWay(mode) => proxy.all(mode),
            Self::Refuse => {
                proxy.refuse().await;
                proxy.present(Mode::Reset);
            }
            Self::Commands(begin, _) => run(server, begin),
            Self::Password => admin = Some(kit::lock_out(server)),
        }
        sleep(lasts).await;
        match self {
            Self::Kill => server.restart(),
            Self::Stop => server.signal("CONT"),
            Self::OnTheWay(_) => proxy.all(Mode::Pass),
            Self::Refuse => proxy.accept_again().await,
            Self::Commands(_, end) => run(server, end),
            Self::Password => kit::let_in(&mut admin.expect("it has begun")),
        }
    }
}
