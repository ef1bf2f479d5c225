//! A master with a replica, and sentinels that look after them.

use std::collections::HashMap;

use super::process::{Process, wait_until};

/// How the sentinels know the master.
pub const NAME: &str = "limits";

pub struct Sentinels {
    /// The first is the master at the beginning.
    pub servers: Vec<Process>,
    pub sentinels: Vec<Process>,
}

impl Sentinels {
    /// Three sentinels that think a server dead after two seconds.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with a password for the servers.
    pub fn start_with(password: &[&str]) -> Self {
        let mut settings = vec!["--save", "", "--repl-diskless-sync-delay", "0"];
        for password in password {
            settings.extend(["--requirepass", password, "--masterauth", password]);
        }
        let master = Process::start(&settings);
        let port = master.port.to_string();
        settings.extend(["--replicaof", "127.0.0.1", &port]);
        let replica = Process::start(&settings);
        let url = |server: &Process| match password {
            [] => server.url(),
            [password, ..] => format!("redis://:{password}@{}", server.address()),
        };
        wait_until("the replica follows", || {
            let client = redis::Client::open(url(&replica)).expect("a valid address");
            let info = client.get_connection().and_then(|mut connection| {
                redis::cmd("INFO")
                    .arg("replication")
                    .query::<String>(&mut connection)
            });
            info.is_ok_and(|info| info.contains("master_link_status:up"))
        });
        let mut lines = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {NAME} 2000\n\
             sentinel failover-timeout {NAME} 6000\n"
        );
        for password in password {
            lines += &format!("sentinel auth-pass {NAME} {password}\n");
        }
        let sentinels = (0..3).map(|_| Process::sentinel(&lines)).collect();
        let started = Self {
            servers: vec![master, replica],
            sentinels,
        };
        wait_until("the sentinels know each other", || {
            started.sentinels.iter().all(|sentinel| {
                let known: HashMap<String, String> =
                    sentinel.run(&format!("SENTINEL MASTER {NAME}"));
                known["num-other-sentinels"] == "2" && known["num-slaves"] == "1"
            })
        });
        started
    }

    /// The URL, with all sentinels.
    pub fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(Process::address).collect();
        format!("redis-sentinel://{}/{NAME}", sentinels.join(","))
    }

    /// Commands a failover, once the sentinels are able to.
    pub fn fail_over(&self) {
        let command = format!("SENTINEL FAILOVER {NAME}");
        wait_until("a failover is begun", || {
            self.sentinels[0].try_run::<()>(&command).is_ok()
        });
    }

    /// Whether both servers are there and one follows the other, whichever it is by now.
    pub fn is_settled(&self) -> bool {
        self.servers.iter().any(|server| {
            let info: String = server.run("INFO replication");
            info.contains("role:slave") && info.contains("master_link_status:up")
        })
    }

    /// The port of the master, as the first sentinel says.
    pub fn master(&self) -> u16 {
        let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}");
        let (_, port): (String, u16) = self.sentinels[0].run(&command);
        port
    }
}
