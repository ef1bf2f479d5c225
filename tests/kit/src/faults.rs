//! Faults of Redis and of the way to it: how each begins on a real server, and how it ends.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use redis::{Cmd, Connection, cmd};

use crate::cluster::{Cluster, Plan};
use crate::proxy::{Mode, Proxy};
use crate::{PATIENT, Redis, let_in, lock_out, millis, run};

/// Values of all types, for [`Fault::Foreign`].
pub const FOREIGN: [&str; 6] = [
    "SET {key} foreign",
    "RPUSH {key} foreign",
    "SADD {key} foreign",
    "HSET {key} foreign 1",
    "ZADD {key} 1 foreign",
    "XADD {key} * foreign 1",
];

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// `maxmemory` is reached, and nothing is evicted.
    NoMemory,
    /// `min-replicas-to-write` is not met.
    TooFewReplicas,
    /// A dump cannot be written, as on a full disk.
    FailedDump,
    /// The server is a replica, of a master that is not there.
    ReadOnly,
    /// This command, such as `RPUSH {key} foreign`, has written something else under the keys.
    Foreign(&'static str),
    /// The user may use no keys but those that have one of these patterns.
    Keys(&'static str),
    /// The server wants a password from everybody.
    LockedOut,
    /// The user may not call these commands, such as `-evalsha`.
    Commands(&'static str),
    /// The server forgets all scripts.
    ScriptsFlushed,
    /// Nobody is there. When it is over, the server is back with its dump.
    Gone,
    /// The server answers only what writes nothing.
    WritesPaused,
    /// The server has died, and loads its dump.
    Loading,
    /// The server stands still.
    Stopped,
    /// The network loses everything.
    Mute,
    /// The next reply is lost, and those behind it are not.
    LostReply,
    /// The connection is closed in place of the next reply.
    CutReply,
    /// The slots of the keys go to another master of the cluster.
    MovedSlot,
}

impl Fault {
    /// Whether it is over at once: it meets the calls that are asked right after it began.
    pub fn is_momentary(self) -> bool {
        use Fault::{CutReply, Foreign, LostReply, MovedSlot, ScriptsFlushed};
        matches!(
            self,
            ScriptsFlushed | LostReply | CutReply | MovedSlot | Foreign(_)
        )
    }

    /// Whether a connection is lost by it, so that a call may fail until there is another one.
    pub fn breaks_connections(self) -> bool {
        use Fault::{CutReply, Gone, Loading, LostReply, Mute, ReadOnly, Stopped, WritesPaused};
        matches!(
            self,
            Gone | Loading | Stopped | WritesPaused | Mute | LostReply | CutReply | ReadOnly
        )
    }

    /// Whether nobody answers, so that only a time-out ends a call.
    pub fn is_silent(self) -> bool {
        use Fault::{LostReply, Mute, Stopped, WritesPaused};
        matches!(self, Stopped | WritesPaused | Mute | LostReply)
    }
}

/// Servers that a fault happens to, and the way to them.
pub struct Site {
    fault: Fault,
    servers: Servers,
    proxy: Option<Proxy>,
    /// Which master has a slot that has moved.
    moved: HashMap<usize, usize>,
    /// The keys that hold something else now.
    foreign: Vec<String>,
    /// Who may still call the server that locks others out.
    admin: Option<Connection>,
}

enum Servers {
    One(Box<Redis>),
    Cluster(Cluster),
}

/// What stands on the servers: the milliseconds at which each key expires, or -1, and its value.
pub type Contents = BTreeMap<String, (i64, Vec<u8>)>;

impl Site {
    /// A server to which this fault can happen, and which is well.
    pub async fn start(fault: Fault) -> Self {
        let servers = match fault {
            Fault::MovedSlot => Servers::Cluster(Cluster::start(&Plan {
                masters: 2,
                ..Plan::default()
            })),
            _ => Servers::One(Box::new(Redis::start_with(arguments(fault)))),
        };
        let mut site = Self {
            fault,
            servers,
            proxy: None,
            moved: HashMap::new(),
            foreign: Vec::new(),
            admin: None,
        };
        match fault {
            Fault::Keys(_) | Fault::Commands(_) => {
                site.run("ACL SETUSER caller on >secret ~* &* +@all");
            }
            Fault::FailedDump => {
                // A folder stands where the dump is to be written.
                site.run("CONFIG SET dbfilename folder");
                let folder = site.server().folder().join("folder");
                std::fs::create_dir(&folder).expect("a folder");
                std::fs::write(folder.join("in-it"), "").expect("a file");
            }
            Fault::Loading => site.run("DEBUG POPULATE 20000 filler 1"),
            Fault::Mute | Fault::LostReply | Fault::CutReply => {
                site.proxy = Some(Proxy::start(&site.server().url).await);
            }
            _ => {}
        }
        site
    }

    /// Where callers connect to.
    pub fn url(&self) -> String {
        match (&self.servers, &self.proxy) {
            (_, Some(proxy)) => proxy.url.clone(),
            (Servers::Cluster(cluster), _) => cluster.url(),
            (Servers::One(server), _) => match self.fault {
                Fault::Keys(_) | Fault::Commands(_) => server.url.replace("//", "//caller:secret@"),
                _ => server.url.clone(),
            },
        }
    }

    /// From now on this is the fault that begins. It needs the same servers.
    pub fn change(&mut self, fault: Fault) {
        self.fault = fault;
    }

    fn server(&self) -> &Redis {
        match &self.servers {
            Servers::One(server) => server,
            Servers::Cluster(_) => panic!("a cluster"),
        }
    }

    fn server_mut(&mut self) -> &mut Redis {
        match &mut self.servers {
            Servers::One(server) => server,
            Servers::Cluster(_) => panic!("a cluster"),
        }
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a fault of the network")
    }

    fn run(&self, command: &str) {
        run(self.server(), command);
    }

    /// The fault begins. Those of keys happen to these.
    pub async fn begin(&mut self, keys: &[String]) {
        match self.fault {
            Fault::NoMemory => self.run("CONFIG SET maxmemory 1"),
            Fault::TooFewReplicas => self.run("CONFIG SET min-replicas-to-write 1"),
            Fault::FailedDump => {
                self.set_save("3600 1");
                self.run("BGSAVE");
                self.until_info("rdb_last_bgsave_status", "err").await;
            }
            Fault::ReadOnly => self.server().follow("redis://127.0.0.1:1"),
            Fault::Foreign(command) => self.put_aside(keys, command),
            Fault::LockedOut => self.admin = Some(lock_out(self.server())),
            Fault::Keys(patterns) => self.run(&format!("ACL SETUSER caller resetkeys {patterns}")),
            Fault::Commands(rights) => self.run(&format!("ACL SETUSER caller {rights}")),
            Fault::ScriptsFlushed => self.run("SCRIPT FLUSH"),
            Fault::WritesPaused => self.run("CLIENT PAUSE 60000 WRITE"),
            Fault::Gone | Fault::Loading => {
                self.run("SAVE");
                self.server_mut().kill();
                if self.fault == Fault::Loading {
                    self.server_mut().restart();
                }
            }
            Fault::Stopped => self.server().signal("STOP"),
            Fault::Mute => self.proxy().all(Mode::BlackHole),
            Fault::LostReply => self.proxy().present(Mode::LoseReplies(1)),
            Fault::CutReply => self.proxy().present(Mode::CutAfter(0)),
            Fault::MovedSlot => self.move_slots_of(keys),
        }
    }

    /// It is over.
    pub async fn end(&mut self) {
        match self.fault {
            Fault::NoMemory => self.run("CONFIG SET maxmemory 0"),
            Fault::TooFewReplicas => self.run("CONFIG SET min-replicas-to-write 0"),
            Fault::FailedDump => self.set_save(""),
            Fault::ReadOnly => self.run("REPLICAOF NO ONE"),
            Fault::Foreign(_) => self.put_back(),
            Fault::LockedOut => let_in(&mut self.admin.take().expect("it has begun")),
            Fault::Keys(_) => self.run("ACL SETUSER caller ~*"),
            Fault::Commands(_) => self.run("ACL SETUSER caller +@all"),
            Fault::WritesPaused => self.run("CLIENT UNPAUSE"),
            Fault::Gone => self.server_mut().restart(),
            Fault::Loading => {
                self.run("CONFIG SET key-load-delay 0");
                self.until_info("loading", "0").await;
                self.run(&format!("CONFIG SET key-load-delay {LOAD_DELAY}"));
            }
            Fault::Stopped => self.server().signal("CONT"),
            Fault::Mute => self.proxy().all(Mode::Pass),
            Fault::ScriptsFlushed | Fault::LostReply | Fault::CutReply | Fault::MovedSlot => {}
        }
    }

    fn set_save(&self, save: &str) {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("save").arg(save);
        set.exec(&mut self.server().connection()).expect("is set");
    }

    async fn until_info(&self, field: &str, value: &str) {
        let began = Instant::now();
        let mut connection = self.server().connection();
        loop {
            let info: redis::InfoDict = cmd("INFO").query(&mut connection).expect("an answer");
            if info.get::<String>(field).as_deref() == Some(value) {
                return;
            }
            assert!(began.elapsed() < PATIENT, "{field} is not {value}");
            tokio::time::sleep(millis(2)).await;
        }
    }

    /// What stood there is kept under another name meanwhile. No caller comes in between.
    fn put_aside(&mut self, keys: &[String], command: &str) {
        let mut connection = self.server().connection();
        for key in keys {
            let aside = ["COPY {key} aside-{key} REPLACE", "DEL {key}", command];
            ask_all(&mut connection, &aside, key);
        }
        self.foreign = keys.to_vec();
    }

    fn put_back(&mut self) {
        let mut connection = self.server().connection();
        for key in std::mem::take(&mut self.foreign) {
            // What callers have written meanwhile stays.
            let expiry = words("PTTL {key}", &key).query(&mut connection);
            if expiry == Ok(-1) {
                let back = ["DEL {key}", "COPY aside-{key} {key}"];
                ask_all(&mut connection, &back, &key);
            }
            ask_all(&mut connection, &["DEL aside-{key}"], &key);
        }
    }

    fn move_slots_of(&mut self, keys: &[String]) {
        let Servers::Cluster(cluster) = &self.servers else {
            panic!("one server");
        };
        let owners = keys
            .iter()
            .map(|key| (cluster.slot(key), cluster.owner(key)));
        for (slot, first) in BTreeMap::from_iter(owners) {
            let from = self.moved.get(&slot).copied().unwrap_or(first);
            cluster.move_slot(slot, from, 1 - from);
            self.moved.insert(slot, 1 - from);
        }
    }

    /// What stands there now. It may not be asked during a fault that keeps the servers from
    /// answering.
    pub fn contents(&self) -> Contents {
        let connections = match &self.servers {
            Servers::One(server) => vec![server.connection()],
            Servers::Cluster(cluster) => {
                let nodes = cluster.nodes.iter();
                nodes.map(|node| node.connection()).collect()
            }
        };
        connections.into_iter().flat_map(contents).collect()
    }
}

/// Microseconds for each key: with its filler, the server loads for 10 s if nobody ends that.
const LOAD_DELAY: &str = "500";

fn arguments(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::FailedDump => &["--enable-protected-configs", "yes"],
        Fault::Loading => &[
            "--key-load-delay",
            LOAD_DELAY,
            "--loading-process-events-interval-bytes",
            "1024",
        ],
        _ => &[],
    }
}

/// A command with the key in place of `{key}`, which may hold a space.
fn words(command: &str, key: &str) -> Cmd {
    let mut words = command.split(' ').map(|word| word.replace("{key}", key));
    let mut question = cmd(&words.next().expect("a command"));
    words.for_each(|word| {
        question.arg(word);
    });
    question
}

/// All of them, with nothing in between.
fn ask_all(connection: &mut Connection, commands: &[&str], key: &str) {
    let mut all = redis::pipe();
    all.atomic();
    for command in commands {
        all.add_command(words(command, key));
    }
    all.exec(connection).expect("all is done");
}

/// What stands on one server.
pub fn contents(mut connection: Connection) -> Contents {
    let names: Vec<String> = cmd("KEYS").arg("*").query(&mut connection).expect("names");
    let names = names.into_iter().filter(|name| !name.starts_with("filler"));
    let contents = names.filter_map(|name| {
        let expires: i64 = words("PEXPIRETIME {key}", &name)
            .query(&mut connection)
            .expect("a time");
        let dump = cmd("DUMP").arg(&name).query(&mut connection);
        match (expires, dump) {
            (-1 | 0.., Ok(dump)) => Some((name, (expires, dump))),
            // It has just expired.
            _ => None,
        }
    });
    contents.collect()
}
