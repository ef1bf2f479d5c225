//! One connection through the proxy: what is read of each side goes down a line, and is written
//! when it is due.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::flights::Flights;
use super::{Mode, Rules, frame};

pub(super) async fn carry(mut client: TcpStream, rules: watch::Receiver<Rules>) {
    let born = rules.borrow().clone();
    let Ok(mut server) = TcpStream::connect(&born.target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let seen = Seen {
        rules,
        age: born.age,
        flights: born.faults.map(|faults| {
            let flights = Flights::new(faults);
            Arc::new(Mutex::new(flights))
        }),
    };
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            end = pump(Way::Calls, from_client, to_server, seen.clone()) => end,
            end = pump(Way::Replies, from_server, to_client, seen) => end,
            () = sleep(born.lifetime) => End::Closed,
        }
    };
    if end == End::Reset {
        let _ = client.set_zero_linger();
    }
}

#[derive(PartialEq)]
enum End {
    Closed,
    Reset,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Calls,
    Replies,
}

/// The rules as they are for this connection.
#[derive(Clone)]
struct Seen {
    rules: watch::Receiver<Rules>,
    age: u64,
    flights: Option<Arc<Mutex<Flights>>>,
}

impl Seen {
    fn mode(&mut self) -> Mode {
        let rules = self.rules.borrow_and_update();
        if self.age < rules.age {
            rules.present
        } else {
            rules.new
        }
    }

    /// What is left of these bytes by the fault of a flight.
    fn tell_apart<'a>(&self, way: Way, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(flights) = &self.flights else {
            return bytes.into();
        };
        let mut flights = flights.lock().unwrap_or_else(PoisonError::into_inner);
        match way {
            Way::Calls => {
                flights.call(bytes);
                bytes.into()
            }
            Way::Replies => flights.reply(bytes).into(),
        }
    }
}

type Line = mpsc::UnboundedSender<(Instant, Vec<u8>)>;

async fn pump(way: Way, from: ReadHalf<'_>, to: WriteHalf<'_>, seen: Seen) -> End {
    let (line, due) = mpsc::unbounded_channel();
    tokio::join!(read(way, from, line, seen), write(to, due)).0
}

async fn write(mut to: WriteHalf<'_>, mut line: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) {
    while let Some((due, bytes)) = line.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn read(way: Way, mut from: ReadHalf<'_>, line: Line, mut seen: Seen) -> End {
    let mut passage = Passage::new(way, seen.mode());
    let mut bytes = vec![0; 65_536];
    loop {
        let idle = match passage.mode {
            Mode::Reset => return End::Reset,
            Mode::BlackHole => return swallow(way, from).await,
            Mode::HalfClosed if way == Way::Replies => {
                drop(line);
                return swallow(way, from).await;
            }
            Mode::CloseIdle(idle) => idle,
            _ => Duration::MAX,
        };
        tokio::select! {
            biased;
            changed = seen.rules.changed() => match changed {
                Ok(()) => passage = Passage::new(way, seen.mode()),
                Err(_) => return End::Closed,
            },
            read = from.read(&mut bytes), if !matches!(passage.mode, Mode::Hold) => {
                let Ok(length @ 1..) = read else { return End::Closed };
                let passed = passage.pass(&seen.tell_apart(way, &bytes[..length]));
                if line.send((Instant::now() + passage.delay(), passed)).is_err() || passage.is_over() {
                    return End::Closed;
                }
            }
            () = sleep(idle) => return End::Closed,
        }
    }
}

/// A server may close its end, and is not heard. A client that does has given up: nobody is left to
/// be deceived.
async fn swallow(way: Way, mut from: ReadHalf<'_>) -> End {
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    match way {
        Way::Calls => End::Closed,
        Way::Replies => std::future::pending().await,
    }
}

/// What gets through in one mode.
struct Passage {
    way: Way,
    mode: Mode,
    /// Of a reply that has not ended yet.
    rest: Vec<u8>,
}

impl Passage {
    fn new(way: Way, mode: Mode) -> Self {
        Self {
            way,
            mode,
            rest: Vec::new(),
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.way == Way::Calls {
            return bytes.to_vec();
        }
        match &mut self.mode {
            Mode::Garbage(garbage) => garbage.to_vec(),
            Mode::CutAfter(left) => {
                let carried = bytes.len().min(*left);
                *left -= carried;
                bytes[..carried].to_vec()
            }
            Mode::LoseReplies(left) if *left > 0 || !self.rest.is_empty() => {
                self.rest.extend_from_slice(bytes);
                while *left > 0 {
                    let Some(length) = frame::length(&self.rest) else {
                        return Vec::new();
                    };
                    self.rest.drain(..length);
                    *left -= 1;
                }
                std::mem::take(&mut self.rest)
            }
            Mode::Edit { edit, replies } if *replies > 0 || !self.rest.is_empty() => {
                self.rest.extend_from_slice(bytes);
                let mut passed = Vec::new();
                while let Some(length) = frame::length(&self.rest) {
                    let reply: Vec<_> = self.rest.drain(..length).collect();
                    match frame::contents(&reply) {
                        Some(mut contents) if *replies > 0 => {
                            *replies -= 1;
                            edit(&mut contents);
                            passed.extend(frame::string(&contents));
                        }
                        _ => passed.extend(reply),
                    }
                }
                passed
            }
            _ => bytes.to_vec(),
        }
    }

    fn delay(&self) -> Duration {
        match (self.mode, self.way) {
            (Mode::Delay { calls, .. }, Way::Calls) => calls,
            (Mode::Delay { replies, .. }, Way::Replies) => replies,
            _ => Duration::ZERO,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.mode, Mode::CutAfter(0)) && self.way == Way::Replies
    }
}
