//! A cluster of real servers.

use std::time::Duration;

use redis_test::utils::get_random_available_port;

use super::load::until;
use super::process::{Process, wait_until};

/// How a cluster is.
pub struct Plan {
    pub masters: usize,
    /// Of each master.
    pub replicas: usize,
    /// Whether all slots are refused while one has no master, as Redis's default is.
    pub full_coverage: bool,
    /// After so many milliseconds without an answer a node is thought to be dead.
    pub node_timeout: u32,
}

/// With `cluster-require-full-coverage no`, as docs/production.md advises.
impl Default for Plan {
    fn default() -> Self {
        Self {
            masters: 3,
            replicas: 0,
            full_coverage: false,
            node_timeout: 15_000,
        }
    }
}

impl Plan {
    /// Each master has a replica, which soon takes over.
    pub fn with_replicas() -> Self {
        Self {
            replicas: 1,
            node_timeout: 2_000,
            ..Self::default()
        }
    }
}

/// The name of a node, and the epoch of its slots, of a line of `CLUSTER NODES`.
fn epoch(line: &str) -> (String, String) {
    let words: Vec<_> = line.split(' ').collect();
    (words[0].to_owned(), words[6].to_owned())
}

/// First all masters, then their replicas in the same order.
pub struct Cluster {
    pub nodes: Vec<Process>,
    masters: usize,
}

impl Cluster {
    pub fn start(plan: &Plan) -> Self {
        let coverage = if plan.full_coverage { "yes" } else { "no" };
        let timeout = plan.node_timeout.to_string();
        let number = plan.masters * (1 + plan.replicas);
        let start = || {
            // A port of its own for the bus: the usual one may lie behind the last port that there
            // is.
            let port = get_random_available_port();
            let text = port.to_string();
            #[rustfmt::skip]
            let node = Process::start(&[
                "--save", "", "--cluster-enabled", "yes", "--cluster-port", &text,
                "--cluster-node-timeout", &timeout, "--cluster-require-full-coverage", coverage,
                "--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
                "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes",
            ]);
            (node, port)
        };
        let (nodes, ports): (Vec<_>, Vec<_>) = (0..number).map(|_| start()).unzip();
        let cluster = Self {
            nodes,
            masters: plan.masters,
        };
        cluster.form(&ports);
        cluster
    }

    fn form(&self, bus_ports: &[u16]) {
        for (at, node) in self.nodes.iter().enumerate() {
            node.run::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
            if at < self.masters {
                let first = 16_384 * at / self.masters;
                let last = 16_384 * (at + 1) / self.masters - 1;
                node.run::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            }
            let (port, bus) = (self.nodes[0].port, bus_ports[0]);
            node.run::<()>(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        wait_until("all know all", || {
            let mut nodes = self.nodes.iter();
            nodes.all(|node| self.known_by(node) == self.nodes.len())
        });
        for at in self.masters..self.nodes.len() {
            let master = self.id(at % self.masters);
            self.nodes[at].run::<()>(&format!("CLUSTER REPLICATE {master}"));
        }
        wait_until("all is well", || {
            let mut nodes = self.nodes.iter();
            nodes.all(|node| self.is_well(node))
        });
    }

    fn known_by(&self, node: &Process) -> usize {
        let known: String = node.run("CLUSTER NODES");
        let known = known.lines().filter(|line| !line.contains("handshake"));
        known.count()
    }

    fn is_well(&self, node: &Process) -> bool {
        let info: String = node.run("CLUSTER INFO");
        let known: String = node.run("CLUSTER NODES");
        let replicas = known.lines().filter(|line| line.contains("slave"));
        let replication: String = node.run("INFO replication");
        info.contains("cluster_state:ok")
            && info.contains("cluster_slots_ok:16384")
            && replicas.count() == self.nodes.len() - self.masters
            && !replication.contains("master_link_status:down")
    }

    /// Whether a node is a master by now.
    pub fn is_master(&self, at: usize) -> bool {
        let info: String = self.nodes[at].run("INFO replication");
        info.contains("role:master")
    }

    /// Makes a replica the master of its slots, once it has all of its data. The others may not
    /// vote for it at once, if they have voted there a moment ago.
    pub async fn promote(&self, at: usize) {
        let replication = || self.nodes[at].run::<String>("INFO replication");
        let follows = || replication().contains("master_link_status:up");
        until("it follows its master", follows).await;
        while !self.is_master(at) {
            // It is an error where the one before has just made it a master.
            let _ = self.nodes[at].try_run::<()>("CLUSTER FAILOVER");
            let promoted = async { until("it is a master", || self.is_master(at)).await };
            let _ = tokio::time::timeout(Duration::from_secs(1), promoted).await;
        }
        let id = self.id(at);
        let knows = |node: &Process| {
            let known: String = node.run("CLUSTER NODES");
            let line = known.lines().find(|line| line.starts_with(&id));
            line.is_some_and(|line| line.contains("master"))
        };
        until("all know it", || self.nodes.iter().all(knows)).await;
    }

    /// The name by which the cluster knows a node.
    pub fn id(&self, at: usize) -> String {
        self.nodes[at].run("CLUSTER MYID")
    }

    /// Its URL, with all nodes.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(Process::address).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let mut nodes = self.nodes.iter();
        let slot = nodes.find_map(|node| node.try_run(&format!("CLUSTER KEYSLOT {key}")).ok());
        slot.expect("one node answers")
    }

    /// Which master had the key's slot at the beginning.
    pub fn owner(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let mut masters = 0..self.masters;
        let owner = masters.find(|at| slot < 16_384 * (at + 1) / self.masters);
        owner.expect("every slot has a master")
    }

    /// A key that begins like this and that this master has.
    pub fn key_at(&self, master: usize, begin: &str) -> String {
        let mut keys = (0..).map(|number| format!("{begin}{number}"));
        let key = keys.find(|key| self.owner(key) == master);
        key.expect("there is one")
    }

    /// A path that begins so, whose count this master keeps.
    pub fn path_at(&self, master: usize, path: &str) -> String {
        let key = self.key_at(master, &format!("CurrentLimiter:{path}"));
        key.replace("CurrentLimiter:", "")
    }

    /// Begins to move the slot of a key to the next master: from then on its keys are on their way.
    /// Tells the slot, and between which nodes.
    pub fn begin_move(&self, key: &str) -> (usize, usize, usize) {
        let (slot, from) = (self.slot(key), self.owner(key));
        (slot, from, self.begin_move_from(slot, from))
    }

    /// The same from the node that is known to have the slot; tells to which one.
    pub fn begin_move_from(&self, slot: usize, from: usize) -> usize {
        let to = (from + 1) % self.masters;
        self.begin(slot, from, to);
        to
    }

    fn begin(&self, slot: usize, from: usize, to: usize) {
        let [source, target] = [self.id(from), self.id(to)];
        self.nodes[to].run::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        self.nodes[from].run::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    }

    /// Moves a slot with its keys from one master to another.
    pub fn move_slot(&self, slot: usize, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        self.begin(slot, from, to);
        loop {
            let keys: Vec<String> = source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
            if keys.is_empty() {
                break;
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(target.port).arg("").arg(0);
            migrate.arg(5_000).arg("KEYS").arg(keys);
            let migrated = migrate.exec(&mut source.connection());
            migrated.expect("the keys are moved");
        }
        self.give_slot(slot, to);
        // Else a node that does not know yet takes the slot back by an older message.
        wait_until("all know of the move", || {
            let epochs = |node: &Process| {
                let known: String = node.run("CLUSTER NODES");
                let mut epochs: Vec<_> = known.lines().map(epoch).collect();
                epochs.sort();
                epochs
            };
            let mut all = self.nodes.iter().map(epochs);
            let first = all.next();
            all.all(|epochs| Some(&epochs) == first.as_ref())
        });
    }

    /// Moves slots with all of their keys at once, where the servers can: since Valkey 9.0 and
    /// Redis 8.4. Elsewhere it moves one after the other. Tells whether it was at once.
    pub fn migrate(&self, slots: &[usize], from: usize, to: usize) -> bool {
        let ranges: String = slots.iter().map(|slot| format!(" {slot} {slot}")).collect();
        let valkey = format!(
            "CLUSTER MIGRATESLOTS SLOTSRANGE{ranges} NODE {}",
            self.id(to)
        );
        let redis = format!("CLUSTER MIGRATION IMPORT{ranges}");
        let begun = self.nodes[from].try_run::<redis::Value>(&valkey);
        let begun = begun.or_else(|_| self.nodes[to].try_run(&redis));
        match begun {
            Ok(_) => wait_until("the slots are there", || {
                let mut nodes = self.nodes.iter();
                nodes.all(|node| slots.iter().all(|slot| self.serves(node, to, *slot)))
            }),
            Err(_) => slots
                .iter()
                .for_each(|slot| self.move_slot(*slot, from, to)),
        }
        begun.is_ok()
    }

    /// Whether a slot is that of this master, as a node knows.
    fn serves(&self, node: &Process, master: usize, slot: usize) -> bool {
        let address = format!(" {}@", self.nodes[master].address());
        let known: String = node.run("CLUSTER NODES");
        let line = known.lines().find(|line| line.contains(&address));
        let mut ranges = line.into_iter().flat_map(|line| line.split(' ').skip(8));
        ranges.any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = (first.parse::<usize>(), last.parse::<usize>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }

    /// Tells all masters whose a slot is.
    pub fn give_slot(&self, slot: usize, to: usize) {
        let id = self.id(to);
        let others = (0..self.nodes.len()).filter(|at| *at != to && self.is_master(*at));
        for at in std::iter::once(to).chain(others) {
            self.nodes[at].run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
        }
    }
}
