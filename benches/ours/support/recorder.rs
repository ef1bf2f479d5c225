//! The script calls of a `RedisStore`, as bytes: the store is connected through a proxy that keeps
//! a copy of each `EVALSHA`.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::Cmd;
use tidegate::{RedisStore, Store, Take};
use tokio::runtime::{Builder, Runtime};

type Words = Vec<Vec<u8>>;

pub(crate) struct Recorder {
    runtime: Runtime,
    pub(crate) store: RedisStore,
    sent: Receiver<Words>,
}

/// A script call of the store, to be sent again for other keys and other times.
pub(crate) struct ScriptCall(Words);

impl Recorder {
    /// Connects a store to the server at this address, `host:port`.
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("is bound"));
        let (sender, sent) = mpsc::channel();
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = TcpStream::connect(&server).expect("a running server");
                let sender = sender.clone();
                thread::spawn(move || relay(&client, server, &sender));
            }
        });
        // On one thread, all takes are in the queue before the first flight leaves.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let store = runtime.block_on(RedisStore::connect(url));
        // The calls are sent again until the bench ends, and must not be late then.
        let timeout = Duration::from_secs(3_600);
        let store = store.expect("a running server").timeout(timeout);
        Self {
            runtime,
            store,
            sent,
        }
    }

    /// The one call that the store sends for these takes. The server decides them.
    pub(crate) fn record(&self, store: &RedisStore, takes: &[Take]) -> ScriptCall {
        let answers = async { try_join_all(takes.iter().map(|take| store.take(take))).await };
        self.runtime.block_on(answers).expect("decides");
        let call = ScriptCall(self.sent.recv().expect("the proxy runs"));
        assert!(self.sent.try_recv().is_err(), "more than one call");
        call
    }
}

impl ScriptCall {
    pub(crate) fn keys(&self) -> &[Vec<u8>] {
        let number = std::str::from_utf8(&self.0[2]).expect("a number");
        &self.0[3..3 + number.parse::<usize>().expect("a number")]
    }

    /// The same call for other keys, and for another time if it was recorded with one.
    pub(crate) fn again(&self, keys: &[String], at_micros: Option<u64>) -> Cmd {
        let [questions, now @ ..] = &self.0[3 + self.keys().len()..] else {
            panic!("the store sends questions");
        };
        assert_eq!(keys.len(), self.keys().len());
        assert_eq!(now.len(), usize::from(at_micros.is_some()));
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.0[1]).arg(keys.len()).arg(keys);
        command.arg(questions).arg(at_micros);
        command
    }
}

/// Carries commands to the server and replies back, until one side closes.
fn relay(client: &TcpStream, mut server: TcpStream, sent: &Sender<Words>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut replies, mut caller) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut replies, &mut caller));
    let mut commands = redis::Parser::new();
    while let Ok(command) = commands.parse_value(client) {
        let words: Words = redis::from_redis_value(command).expect("a command is strings");
        let mut command = Cmd::new();
        for word in &words {
            command.arg(word);
        }
        server.write_all(&command.get_packed_command())?;
        if words[0] == b"EVALSHA" {
            // Nobody receives once the bench ends.
            let _ = sent.send(words);
        }
    }
    Ok(())
}
