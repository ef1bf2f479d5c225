use std::sync::atomic::{AtomicU64, Ordering};

use redis::Cmd;

use crate::algorithm::{Algorithm, Pace};
use crate::connection::{FIXED_WINDOW, GCRA, SLIDING_LOG, SLIDING_WINDOW, Script};
use crate::decision::Token;
use crate::store::Take;

/// A key outlives its last charge by as long as that counts and two slices of the scripts', rounded up.
const SLACK_MILLIS: u64 = 2 * 1_049;

/// Two to the 53rd: the scripts' numbers are doubles.
const LARGEST_NUMBER: u64 = 1 << 53;

/// What one script call asks: takes of one rule and key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    takes: &'a [Take],
    looks: bool,
    deadline: u64,
    /// Which of this process's questions this is.
    number: u64,
    now: Option<u64>,
}

/// Questions that are under way at the same time differ in the last digits of their deadlines, so that replies can be
/// told apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);
const NUMBERS: u64 = 64;

impl<'a> Question<'a> {
    pub(super) fn new(takes: &'a [Take]) -> Self {
        Self {
            takes,
            looks: false,
            deadline: LARGEST_NUMBER,
            number: NUMBER.fetch_add(1, Ordering::Relaxed) % NUMBERS,
            now: None,
        }
    }

    /// How things stand, instead of the takes.
    pub(super) fn look(mut self) -> Self {
        self.looks = true;
        self
    }

    /// Nothing is charged later than that, in microseconds of the server's clock.
    pub(super) fn deadline(mut self, deadline: Option<u64>) -> Self {
        self.deadline = deadline.unwrap_or(LARGEST_NUMBER).min(LARGEST_NUMBER);
        self
    }

    /// The deadline as it is sent: earlier by at most 126 microseconds.
    pub(super) fn marked_deadline(&self) -> u64 {
        let early = self.deadline.saturating_sub(NUMBERS - 1);
        early / NUMBERS * NUMBERS + self.number
    }

    /// By a test's clock instead of the server's.
    pub(super) fn now(mut self, now: Option<u64>) -> Self {
        self.now = now;
        self
    }

    pub(super) fn script(&self) -> &'static Script {
        match self.takes[0].rule().counting().algorithm() {
            Algorithm::SlidingLog => &SLIDING_LOG,
            Algorithm::SlidingWindow => &SLIDING_WINDOW,
            Algorithm::Gcra => &GCRA,
            Algorithm::FixedWindow => &FIXED_WINDOW,
        }
    }

    /// The quotas, the deadline, and then a cost for each take; the expiry; and `now`, where a test says it.
    pub(super) fn write(&self, command: &mut Cmd) {
        let Some(first) = self.takes.first() else {
            return;
        };
        let (quotas, counting) = (first.quotas(), first.rule().counting());
        let mut question = Vec::with_capacity(1 + 35 * quotas.len() + 16);
        question.push(u8::try_from(quotas.len()).expect("a rule has at most 16 quotas"));
        for quota in quotas {
            put(&mut question, &[quota.max(), quota.window_micros()]);
            match counting.algorithm() {
                Algorithm::SlidingLog | Algorithm::FixedWindow => {}
                Algorithm::SlidingWindow => put(&mut question, &[u64::from(counting.sub_windows)]),
                Algorithm::Gcra => {
                    let pace = Pace::of(quota);
                    put(&mut question, &[quota.burst(), pace.units, pace.micros]);
                }
            }
        }
        put(&mut question, &[self.marked_deadline()]);
        match self.looks {
            true => put_cost(&mut question, 0, 1),
            false => {
                for alike in self.takes.chunk_by(|a, b| a.units() == b.units()) {
                    put_cost(&mut question, alike[0].units(), alike.len());
                }
            }
        }
        let life = first.rule().life_micros();
        command
            .arg(question)
            .arg(life.div_ceil(1_000) + SLACK_MILLIS);
        if let Some(now) = self.now {
            command.arg(now);
        }
    }
}

fn put_cost(bytes: &mut Vec<u8>, units: u64, takes: usize) {
    put(bytes, &[units]);
    let number = u16::try_from(takes).expect("calls are short");
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// Numbers in 7 bytes, which hold all that quotas and costs can be; larger costs are as hopeless as the
/// largest.
fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        let number = (*number).min(LARGEST_NUMBER);
        bytes.extend_from_slice(&number.to_le_bytes()[..7]);
    }
}

/// A token and the most units to give back.
pub(super) fn write_refund(command: &mut Cmd, now: Option<u64>, token: &Token, most: u64) {
    let mut bytes = Vec::with_capacity(21);
    for number in [token.stamp(), token.serial(), token.units()] {
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
    }
    command.arg(bytes).arg(most);
    if let Some(now) = now {
        command.arg(now);
    }
}
