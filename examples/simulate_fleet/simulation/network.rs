use std::collections::VecDeque;

use tokio::sync::oneshot::{Receiver, Sender, channel};

use super::outcome::Outcome;
use super::random::Random;
use super::scenario::{Faults, Scenario};
use super::server::{Answer, Question, Server};

/// The messages between processes and the server, the server's queue, and what calls cost.
pub(super) struct Network {
    pub(super) tick: u64,
    pub(super) server: Server,
    pub(super) outcome: Outcome,
    links: Vec<Link>,
    /// What arrives in this tick and in later ones.
    arrivals: VecDeque<Vec<Arrival>>,
    queue: VecDeque<Call>,
    server_per_tick: u64,
    faults: Faults,
    random: Random,
}

/// The connection of one process, until it crashes.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    is_dead: bool,
    partitioned_until: u64,
    paused_until: u64,
}

struct Call {
    link: usize,
    asked: u64,
    question: Question,
    sender: Sender<Option<Answer>>,
}

enum Arrival {
    AtServer(Call),
    /// An answer that was decided in a tick, or `None` after the time-out.
    AtProcess(Call, Option<(u64, Answer)>),
}

/// How long processes wait for an answer.
pub(super) const TIMEOUT: u64 = 100;
/// How old a question may be when the server decides it: questions carry their deadline.
const MAX_AGE: u64 = TIMEOUT / 2;

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            tick: 0,
            server: Server::new(scenario.upset.is_some(), scenario.ticks() + 1),
            outcome: Outcome::new(scenario),
            links: Vec::new(),
            arrivals: VecDeque::from([Vec::new()]),
            queue: VecDeque::new(),
            server_per_tick: scenario.server_per_tick,
            faults: scenario.faults,
            random: Random::from_seed(scenario.seed ^ 0x006e_6574),
        }
    }

    pub(super) fn connect(&mut self) -> usize {
        self.links.push(Link::default());
        self.links.len() - 1
    }

    pub(super) fn crash(&mut self, link: usize) {
        self.links[link].is_dead = true;
    }

    pub(super) fn partition(&mut self, link: usize, until: u64) {
        self.links[link].partitioned_until = until;
    }

    /// What a paused process says and hears waits until it goes on.
    pub(super) fn pause(&mut self, link: usize, until: u64) {
        self.links[link].paused_until = until;
    }

    pub(super) fn ask(&mut self, link: usize, question: Question) -> Receiver<Option<Answer>> {
        let (sender, receiver) = channel();
        let call = Call {
            link,
            asked: self.tick,
            question,
            sender,
        };
        self.outcome.asked(self.tick);
        let departs = self.tick.max(self.links[link].paused_until);
        match self.is_lost(link, departs) {
            true => self.time_out(call),
            false => {
                let at = departs + self.travel_time();
                self.push(at, Arrival::AtServer(call));
            }
        }
        receiver
    }

    fn is_lost(&mut self, link: usize, tick: u64) -> bool {
        let link = self.links[link];
        link.is_dead || tick < link.partitioned_until || self.random.is_lucky(self.faults.losses)
    }

    /// A message takes one or two ticks.
    fn travel_time(&mut self) -> u64 {
        let more = match self.random.is_lucky(self.faults.delays) {
            true => self.random.below(100),
            false => 0,
        };
        1 + self.random.below(2) + more
    }

    fn push(&mut self, tick: u64, arrival: Arrival) {
        let after = tick.max(self.tick + 1) - self.tick;
        let after = usize::try_from(after).expect("fits");
        if self.arrivals.len() <= after {
            self.arrivals.resize_with(after + 1, Vec::new);
        }
        self.arrivals[after].push(arrival);
    }

    fn time_out(&mut self, call: Call) {
        self.push(call.asked + TIMEOUT, Arrival::AtProcess(call, None));
    }

    /// What arrives in the next tick, and what the server decides in it.
    pub(super) fn advance(&mut self) {
        self.tick += 1;
        self.server.advance(self.tick);
        self.arrivals.pop_front();
        let arrived = self.arrivals.front_mut().map(std::mem::take);
        for arrival in arrived.unwrap_or_default() {
            match arrival {
                Arrival::AtServer(call) => self.queue.push_back(call),
                Arrival::AtProcess(call, answer) => self.deliver(call, answer),
            }
        }
        let mut left = self.server_per_tick;
        while left > 0
            && let Some(call) = self.queue.pop_front()
        {
            if call.asked + MAX_AGE < self.tick {
                self.time_out(call);
                continue;
            }
            left -= 1;
            self.decide(call);
        }
    }

    fn decide(&mut self, call: Call) {
        let answer = self.server.decide(self.tick, call.question.clone());
        let at = self.tick + self.travel_time();
        match self.is_lost(call.link, self.tick) || at > call.asked + TIMEOUT {
            true => self.time_out(call),
            false => self.push(at, Arrival::AtProcess(call, Some((self.tick, answer)))),
        }
    }

    fn deliver(&mut self, call: Call, answer: Option<(u64, Answer)>) {
        let link = self.links[call.link];
        if link.is_dead {
            return;
        }
        if self.tick < link.paused_until {
            return self.push(link.paused_until, Arrival::AtProcess(call, answer));
        }
        if answer.is_some() && self.tick < link.partitioned_until {
            return self.time_out(call);
        }
        if let Question::Take(take) = &call.question
            && take.cost() == 1
        {
            self.count(call.asked, answer.as_ref());
        }
        // Nobody waits for a request: it is counted here.
        let _ = call.sender.send(answer.map(|(_, answer)| answer));
    }

    /// A request that the server was asked about. Leases are of more units than one.
    fn count(&mut self, asked: u64, answer: Option<&(u64, Answer)>) {
        if let Some((decided, Answer::Taken(decision))) = answer
            && decision.is_allowed()
        {
            self.outcome.admit(*decided);
        }
        if self.outcome.is_measured(asked) {
            self.outcome.answered(self.tick - asked);
            self.outcome.failed += u64::from(answer.is_none());
        }
    }
}
