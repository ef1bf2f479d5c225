//! What is done to the server and to the way to it, one after the other.

use std::time::Duration;

use redis::{Cmd, cmd};
use tokio::time::sleep;

use kit::Redis;
use kit::proxy::{Mode, Proxy};

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

const PASSWORD: &str = "s3cret";

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
            Self::ForgetScripts => run(server, cmd("SCRIPT").arg("FLUSH")),
            Self::ReadOnly => {
                // Of a master that nobody has ever seen.
                run(server, cmd("REPLICAOF").arg("127.0.0.1").arg(1));
                sleep(lasts).await;
                run(server, cmd("REPLICAOF").arg("NO").arg("ONE"));
            }
            Self::NoMemory => {
                run(server, &mut set("maxmemory", "1"));
                sleep(lasts).await;
                run(server, &mut set("maxmemory", "0"));
            }
            Self::Password => {
                run(server, &mut set("requirepass", PASSWORD));
                let mut admin = server.connection_with_password(PASSWORD);
                let mut kill = cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg("normal");
                kill.arg("SKIPME").arg("yes");
                kill.exec(&mut admin).expect("kills");
                sleep(lasts).await;
                set("requirepass", "").exec(&mut admin).expect("is set");
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
    let millis = u64::try_from(lasts.as_millis()).expect("short");
    run(server, cmd("CLIENT").arg("PAUSE").arg(millis).arg(which));
    sleep(lasts).await;
}

fn set(name: &str, value: &str) -> Cmd {
    let mut set = cmd("CONFIG");
    set.arg("SET").arg(name).arg(value);
    set
}

fn run(server: &Redis, command: &mut Cmd) {
    let done = command.exec(&mut server.connection());
    done.expect("the server does it");
}
