//! Flights: the commands that a client writes in one burst, and what becomes of their replies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::frame;

/// What happens to the replies of one flight. The connection stays, and what follows passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlightFault {
    /// These replies are lost.
    Lose(Part),
    /// One reply more than there were commands, or some.
    Add(Extra, Spot),
    /// This line comes instead of each of these replies.
    Replace(Part, &'static str),
}

/// Some of the replies of a flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    All,
    FirstHalf,
    SecondHalf,
    /// The one in the middle.
    Middle,
    Last,
}

/// A reply that nobody has asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extra {
    /// A copy of the previous flight's reply of the same shape.
    EarlierReply,
    /// Copies of all replies of the previous flight.
    EarlierFlight,
    Integer,
    Nil,
    /// What `TIME` replies.
    Time,
    Error,
}

/// Where an [`Extra`] stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spot {
    Before,
    Within,
    After,
}

impl Part {
    fn contains(self, at: usize, of: usize) -> bool {
        match self {
            Self::All => true,
            Self::FirstHalf => at < of.div_ceil(2),
            Self::SecondHalf => at >= of / 2,
            Self::Middle => at == (of - 1) / 2,
            Self::Last => at + 1 == of,
        }
    }
}

/// When a fault did what.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultTrace {
    /// When the server had replied to all of the flight.
    pub hit: Option<Instant>,
    /// When the client had as many replies as it takes to see that they do not fit.
    pub misfit: Option<Instant>,
    /// How many commands the flight had.
    pub commands: usize,
}

/// The fault that waits for its flight, and the trace of the one before; of all connections.
#[derive(Default)]
pub(super) struct Faults(Mutex<State>);

#[derive(Default)]
struct State {
    armed: Option<Armed>,
    trace: FaultTrace,
}

struct Armed {
    fault: FlightFault,
    /// What a flight contains that is meant.
    contains: Vec<u8>,
    /// So many of them are spared.
    skip: usize,
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arm(&self, fault: FlightFault, contains: &[u8], skip: usize) {
        *self.state() = State {
            armed: Some(Armed {
                fault,
                contains: contains.to_vec(),
                skip,
            }),
            trace: FaultTrace::default(),
        };
    }

    pub(super) fn trace(&self) -> FaultTrace {
        self.state().trace
    }

    fn take(&self, burst: &[u8], commands: usize) -> Option<FlightFault> {
        let mut state = self.state();
        let armed = state.armed.as_mut()?;
        let contains = &*armed.contains;
        let meant = contains.is_empty() || burst.windows(contains.len()).any(|at| at == contains);
        if !meant {
            return None;
        }
        if armed.skip > 0 {
            armed.skip -= 1;
            return None;
        }
        state.trace.commands = commands;
        state.armed.take().map(|armed| armed.fault)
    }
}

/// The flights of one connection that have no reply yet.
pub(super) struct Flights {
    faults: Arc<Faults>,
    /// Of a command that has not ended yet, with the commands of its burst before it.
    burst: Vec<u8>,
    /// Of a reply that has not ended yet.
    rest: Vec<u8>,
    pending: VecDeque<Flight>,
    /// The replies of the flight before.
    earlier: Vec<Vec<u8>>,
    /// So many replies until the client can know.
    until_misfit: Option<usize>,
}

struct Flight {
    /// How many messages each of its commands is answered by, at most.
    commands: Vec<usize>,
    fault: Option<FlightFault>,
    /// The command whose reply is the next.
    at: usize,
    replies: Vec<Vec<u8>>,
}

impl Flights {
    pub(super) fn new(faults: Arc<Faults>) -> Self {
        Self {
            faults,
            burst: Vec::new(),
            rest: Vec::new(),
            pending: VecDeque::new(),
            earlier: Vec::new(),
            until_misfit: None,
        }
    }

    /// The client writes this.
    pub(super) fn call(&mut self, bytes: &[u8]) {
        self.burst.extend_from_slice(bytes);
        let (mut commands, mut end) = (Vec::new(), 0);
        while let Some(length) = frame::length(&self.burst[end..]) {
            commands.push(frame::messages(&self.burst[end..end + length]));
            end += length;
        }
        if end < self.burst.len() || commands.is_empty() {
            return;
        }
        let fault = self.faults.take(&self.burst, commands.len());
        self.burst.clear();
        self.pending.push_back(Flight {
            commands,
            fault,
            at: 0,
            replies: Vec::new(),
        });
    }

    /// The server replies this; returns what the client reads.
    pub(super) fn reply(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let (mut passed, mut end) = (Vec::new(), 0);
        while let Some(length) = frame::length(&self.rest[end..]) {
            let reply = self.rest[end..end + length].to_vec();
            end += length;
            self.pass(reply, &mut passed);
        }
        self.rest.drain(..end);
        passed
    }

    fn pass(&mut self, reply: Vec<u8>, passed: &mut Vec<u8>) {
        if frame::is_message(&reply) {
            passed.extend(reply);
            return;
        }
        let Some(flight) = self.pending.front_mut() else {
            passed.extend(reply);
            return;
        };
        let (at, of) = (flight.at, flight.commands.len());
        let left = &mut flight.commands[at];
        *left = if reply[0] == b'>' { *left - 1 } else { 0 };
        let ends = *left == 0;
        flight.at += usize::from(ends);
        flight.replies.push(reply.clone());
        let (fault, over) = (flight.fault, flight.at == of);
        match fault {
            Some(FlightFault::Lose(part)) if part.contains(at, of) => {}
            Some(FlightFault::Replace(part, line)) if part.contains(at, of) => {
                passed.extend(line.as_bytes());
                passed.extend(b"\r\n");
            }
            Some(FlightFault::Add(extra, spot)) => {
                let before = match spot {
                    Spot::Before => at == 0,
                    Spot::Within => at == of / 2,
                    Spot::After => false,
                };
                if before {
                    passed.extend(extra_reply(extra, &self.earlier, &reply));
                }
                passed.extend(&reply);
                if spot == Spot::After && over {
                    passed.extend(extra_reply(extra, &self.earlier, &reply));
                }
            }
            _ => {
                passed.extend(reply);
                if fault.is_none() && ends {
                    self.delivered();
                }
            }
        }
        if over {
            let flight = self.pending.pop_front().expect("it is the first");
            self.earlier = flight.replies;
            if let Some(fault) = fault {
                self.hit(fault, of);
            }
        }
    }

    /// A reply to a later flight than the broken one.
    fn delivered(&mut self) {
        self.until_misfit = match self.until_misfit {
            Some(1) => {
                self.faults.state().trace.misfit = Some(Instant::now());
                None
            }
            left => left.map(|left| left - 1),
        };
    }

    fn hit(&mut self, fault: FlightFault, commands: usize) {
        let now = Instant::now();
        let mut state = self.faults.state();
        state.trace.hit = Some(now);
        match fault {
            FlightFault::Lose(part) => {
                let lost = (0..commands).filter(|at| part.contains(*at, commands));
                self.until_misfit = Some(lost.count());
            }
            FlightFault::Add(_, Spot::Before | Spot::Within) => state.trace.misfit = Some(now),
            // What is too much seems to be the first reply of the next flight.
            FlightFault::Add(_, Spot::After) => {
                let next = self.pending.front().map_or(2, |next| next.commands.len());
                self.until_misfit = Some(next);
            }
            FlightFault::Replace(..) => {}
        }
    }
}

fn extra_reply(extra: Extra, earlier: &[Vec<u8>], here: &[u8]) -> Vec<u8> {
    match extra {
        Extra::EarlierReply => {
            let alike = earlier.iter().find(|reply| reply[0] == here[0]);
            alike.map_or(here, |alike| alike).to_vec()
        }
        Extra::EarlierFlight => earlier.concat(),
        Extra::Integer => b":1\r\n".to_vec(),
        Extra::Nil => b"_\r\n".to_vec(),
        Extra::Time => b"*2\r\n$10\r\n1790000000\r\n$6\r\n123456\r\n".to_vec(),
        Extra::Error => b"-ERR nobody has asked for this\r\n".to_vec(),
    }
}
