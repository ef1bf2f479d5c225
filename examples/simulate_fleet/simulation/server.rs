use std::collections::VecDeque;

use tidegate::decision::Receipt;
use tidegate::test_util::ManualClock;
use tidegate::{Decision, MemoryStore, Store, Take};

use super::scenario::{REPLICA_DELAY, Upset};

/// What a server is asked.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Take(Take),
    Refund(Take, Receipt),
}

#[derive(Debug)]
pub(super) enum Answer {
    Taken(Decision),
    Refunded(u64),
}

/// Redis: a store with a clock of its own, and perhaps a replica that is behind.
pub(super) struct Server {
    master: Node,
    step: i64,
    replica: Option<(Node, VecDeque<Charge>)>,
    /// Units that were charged in each tick, for the bound on what an upset may admit.
    charged: Vec<u64>,
}

struct Node {
    store: MemoryStore,
    clock: ManualClock,
}

/// What a replica learns.
struct Charge {
    tick: u64,
    micros: u64,
    question: Question,
}

/// The server's clock at the first tick: room for a step back.
const EPOCH: i64 = 1_000_000_000;

impl Server {
    pub(super) fn new(has_replica: bool, ticks: u64) -> Self {
        Self {
            master: Node::new(),
            step: 0,
            replica: has_replica.then(|| (Node::new(), VecDeque::new())),
            charged: vec![0; index(ticks)],
        }
    }

    fn micros(&self, tick: u64) -> u64 {
        (EPOCH + self.step + 1_000 * tick.cast_signed()).cast_unsigned()
    }

    pub(super) fn advance(&mut self, tick: u64) {
        self.master.clock.set(self.micros(tick));
        let Some((replica, log)) = &mut self.replica else {
            return;
        };
        let is_there = |charge: &Charge| charge.tick + REPLICA_DELAY <= tick;
        while log.front().is_some_and(is_there)
            && let Some(charge) = log.pop_front()
        {
            replica.clock.set(charge.micros);
            replica.decide(&charge.question);
        }
    }

    pub(super) fn decide(&mut self, tick: u64, question: Question) -> Answer {
        let answer = self.master.decide(&question);
        self.note(tick, &question, &answer);
        let is_change = match &answer {
            Answer::Taken(decision) => decision.is_allowed(),
            Answer::Refunded(units) => *units > 0,
        };
        let micros = self.micros(tick);
        if let Some((_, log)) = self.replica.as_mut().filter(|_| is_change) {
            log.push_back(Charge {
                tick,
                micros,
                question,
            });
        }
        answer
    }

    /// Adds what was charged, and takes away what was given back.
    fn note(&mut self, tick: u64, question: &Question, answer: &Answer) {
        match (question, answer) {
            (_, Answer::Taken(decision)) => {
                let units = decision.receipt().map_or(0, |receipt| receipt.units());
                self.charged[index(tick)] += units;
            }
            (Question::Refund(_, receipt), Answer::Refunded(units)) => {
                let since_epoch = receipt.stamp().cast_signed() - EPOCH - self.step;
                let tick = index(since_epoch.max(0).cast_unsigned() / 1_000);
                if let Some(charged) = self.charged.get_mut(tick) {
                    *charged = charged.saturating_sub(*units);
                }
            }
            (Question::Take(_), Answer::Refunded(_)) => {}
        }
    }

    /// Returns at most how many units the server has forgotten before their time.
    pub(super) fn upset(&mut self, tick: u64, upset: Upset, counted_for: u64) -> u64 {
        match upset {
            Upset::Failover => {
                let (replica, _) = self.replica.take().expect("a replica");
                replica.clock.set(self.micros(tick));
                self.master = replica;
                let since = index(tick.saturating_sub(REPLICA_DELAY));
                self.charged[since..=index(tick)].iter().sum()
            }
            Upset::Step(millis) => {
                self.step += 1_000 * millis;
                self.master.clock.set(self.micros(tick));
                let step = index(millis.max(0).cast_unsigned());
                let since = index(tick.saturating_sub(counted_for));
                let counting = &self.charged[since..=index(tick)];
                // Units of a span as long as the step count no more, while they should.
                let spans = counting.windows(step.clamp(1, counting.len()));
                let most = spans.map(|span| span.iter().sum()).max();
                most.filter(|_| step > 0).unwrap_or(0)
            }
        }
    }
}

fn index(tick: u64) -> usize {
    usize::try_from(tick).expect("fits")
}

impl Node {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::new().clock(clock.clone()),
            clock,
        }
    }

    fn decide(&self, question: &Question) -> Answer {
        match question {
            Question::Take(take) => {
                let answer = self.store.take(take).poll_now();
                Answer::Taken(answer.expect("memory").expect("decides"))
            }
            Question::Refund(take, receipt) => {
                let answer = self.store.refund(take, receipt).poll_now();
                Answer::Refunded(answer.expect("memory").expect("decides"))
            }
        }
    }
}
