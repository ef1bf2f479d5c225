use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::question::{CountKey, CountQuestion};
use super::take_call::{CallKind, NO_DEADLINE, TakeCall, algorithm_of, script_of};
use super::take_script::{Fields, HEAD_SIZE, MAX_NUMBER, Told, id_in, one_take, records_in};
use crate::algorithm::constants::RECORD_SIZE;
use crate::connection::{
    CallId, Carrier, FlightCall, Question, RoundTrip, SendOptions, ServerClock,
};
use crate::decision::Decision;

/// A take of one count of windows, whose key nothing holds, in a call of its own: what most requests
/// ask while few are in progress.
///
/// It is a [`TakeCall`] of one take, without its lists: it sends the same bytes, and reads the reply
/// if that is a decision about one quota. Every other reply is that call's.
pub(super) struct LoneTake {
    id: CallId,
    question: Question,
}

impl LoneTake {
    pub(super) fn new(question: Question) -> Self {
        let id = CallId::next();
        Self { id, question }
    }

    #[cold]
    fn into_call(self, clock: &ServerClock) -> TakeCall {
        let mut call = TakeCall::new(CallKind::new(&self.question));
        call.id = self.id;
        call.push(0, self.question, clock);
        call
    }
}

/// Until when the server may decide a take.
pub(super) fn deadline(question: &Question, clock: &ServerClock) -> u64 {
    let asked = CountQuestion::in_call(question);
    match asked.now {
        // Units that were used are charged, however late the question arrives.
        None if !asked.owes() => clock.at(question.deadline.at.into_std()).min(NO_DEADLINE),
        _ => NO_DEADLINE,
    }
}

/// The questions about one take, of a count of windows that nothing holds.
pub(super) fn write_lone(id: u64, count: &CountKey, deadline: u64) -> SmallVec<[u8; 128]> {
    // No number has more than 7 bytes, so what stands before one is written over its eighth.
    let mut row = [0; RECORD_SIZE - 4];
    row[8..].copy_from_slice(&deadline.min(MAX_NUMBER).to_be_bytes());
    row[1..9].copy_from_slice(&count.cost.min(MAX_NUMBER).to_be_bytes());
    row[1] = 1;
    let mut bytes = SmallVec::from_slice(count.spec.question(one_take));
    bytes[3..HEAD_SIZE].copy_from_slice(&id.to_be_bytes());
    let records = records_in(&bytes);
    bytes[records + 4..][..row.len()].copy_from_slice(&row);
    bytes
}

/// The server's clock and the decision, if this is a reply that decides one take, of a count of one
/// quota. Other replies are the call's.
pub(super) fn read_lone(reply: &[u8], id: u64, count: &CountKey) -> Option<(u64, Decision)> {
    let windows = count.spec.windows()?;
    let mut fields = Fields(reply);
    let now = fields.head(id)?;
    let told = Told::read(windows, now, count.cost, &mut fields)?;
    let decision = told.decision(windows, now, count.cost)?;
    fields.0.is_empty().then_some((now, decision))
}

/// Hands out the decision about a take.
pub(super) fn decided(
    question: Question,
    mut decision: Decision,
    trip: RoundTrip,
    carrier: &Carrier,
) {
    carrier.prove_by(&question);
    let deadline = question.deadline;
    decision.is_late = deadline.was_extended() || deadline.at.into_std() <= trip.answered;
    question.reply(Ok(decision));
}

impl FlightCall for LoneTake {
    fn command(&self, clock: &ServerClock) -> Cmd {
        let asked = CountQuestion::in_call(&self.question);
        let count = asked.first();
        let script = script_of(algorithm_of(&count.spec));
        let mut command = script.command(self.question.options.has_text, 1, 256);
        let deadline = deadline(&self.question, clock);
        let questions = write_lone(self.id.number(), count, deadline);
        command.arg(count).arg(&questions[..]);
        if let Some(now) = asked.now {
            command.arg(now);
        }
        command
    }

    fn shape(&self) -> (SendOptions, usize) {
        (self.question.options, 1)
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(bytes) if id_in(bytes) == Some(self.id.number()))
    }

    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier) {
        let asked = CountQuestion::in_call(&self.question);
        let read = match &reply {
            Value::BulkString(bytes) => read_lone(bytes, self.id.number(), asked.first()),
            _ => None,
        };
        let Some((now, decision)) = read else {
            let call = self.into_call(carrier.clock());
            return call.hand_out(reply, trip, carrier);
        };
        if asked.now.is_none() {
            carrier.clock().learn(now, trip.asked, trip.answered);
        }
        decided(self.question, decision, trip, carrier);
    }

    fn into_questions(self) -> Vec<Question> {
        vec![self.question]
    }
}

#[cfg(feature = "test-util")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use fastrand::Rng;
    use smallvec::smallvec;

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::algorithm::constants::{ALLOWED, DENIED, DENIED_STATE, GCRA_MARK};
    use crate::algorithm::spec::{Kind, Spec, Windows};
    use crate::deadline::Deadline;
    use crate::question::Name;
    use crate::quota::Quota;
    use crate::store::redis::question::CountOperation;
    use crate::store::redis::take_script::TakeReply;

    /// A number of any size.
    fn any(rng: &mut Rng) -> u64 {
        rng.u64(..) >> rng.u32(..64)
    }

    /// A take under random quotas, once as a lone one and once as the call of one take.
    fn both(rng: &mut Rng, clock: &ServerClock) -> (LoneTake, TakeCall) {
        let algorithms = [
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::Gcra,
            Algorithm::FixedWindow,
        ];
        let quotas = (0..rng.usize(1..4)).map(|at| {
            let window = Duration::from_millis(rng.u64(1..1_000_000) << (4 * at));
            Quota::new(window, any(rng) % 1_000_000_000).expect("it is a quota")
        });
        let quotas = quotas.collect();
        let config = algorithms[rng.usize(..4)].into();
        let windows = Windows::new(config, quotas, rng.bool().then(|| any(rng)));
        let (spec, cost) = (Spec::plain(Kind::Windows(windows)), any(rng));
        let deadline = Deadline::after(Duration::from_millis(any(rng) % 100_000));
        let (now, has_text) = (rng.bool().then(|| any(rng)), rng.bool());
        let question = || {
            let counts = smallvec![CountKey {
                name: Name::whole("{alice}:path"),
                spec: Arc::clone(&spec),
                cost,
                prefix: Arc::default(),
            }];
            let (whole, holder) = (None, None);
            let what = CountOperation::Take { whole, holder };
            let mut question = Question::unsent(CountQuestion { counts, now, what }, deadline);
            question.options.has_text = has_text;
            question
        };
        assert!(CountQuestion::is_lone(&question()));
        let lone = LoneTake::new(question());
        let (id, question) = (lone.id, question());
        (lone, LoneTake { id, question }.into_call(clock))
    }

    #[tokio::test]
    async fn a_lone_take_sends_what_a_call_of_one_take_sends() {
        let clock = ServerClock::new(1 << 50, Instant::now(), Instant::now());
        let mut rng = Rng::with_seed(1);
        for _ in 0..2_000 {
            let (lone, call) = both(&mut rng, &clock);
            let (lone, call) = (lone.command(&clock), call.command(&clock));
            assert_eq!(lone.get_packed_command(), call.get_packed_command());
        }
    }

    /// A reply in random numbers: the state that a take left or was denied by, or an answer of any
    /// verdict; and such that are cut, too long, or of another call.
    fn reply(rng: &mut Rng, id: u64, count: &CountKey) -> (Vec<u8>, u8) {
        let odd = |rng: &mut Rng| rng.u8(..16) == 0;
        let id = if odd(rng) { any(rng) } else { id };
        let code = if rng.bool() { ALLOWED } else { DENIED } as u8;
        let code = if odd(rng) { rng.u8(..12) } else { code };
        let takes = if odd(rng) { rng.u8(..3) } else { 1 };
        let mut seven = |odd_bits: u32| {
            let bits = if odd(rng) { 8 } else { odd_bits };
            (any(rng) >> bits).to_be_bytes()[1..].to_vec()
        };
        let (number, now) = (seven(8), seven(11));
        let mut numbers = |count: usize| (0..count).flat_map(|_| seven(8)).collect::<Vec<_>>();
        let head =
            |mark: u8, number: &[u8]| [&id.to_be_bytes()[..], &[mark], number, &now].concat();
        let (state, answer) = (numbers(7), numbers(1 + 2 * count.spec.quotas().len()));
        let mut reply = match rng.u8(..3) {
            0 => [head(GCRA_MARK as u8, &number), state].concat(),
            1 => [head(DENIED_STATE as u8, &number), state[..7].to_vec()].concat(),
            _ => [head(0, &[0; 7]), vec![code, 0, takes], answer].concat(),
        };
        if odd(rng) {
            reply.truncate(rng.usize(..reply.len()));
        }
        if odd(rng) {
            reply.push(rng.u8(..));
        }
        (reply, code)
    }

    #[tokio::test]
    async fn a_lone_take_reads_what_a_call_of_one_take_reads() {
        let clock = ServerClock::new(1 << 50, Instant::now(), Instant::now());
        let mut rng = Rng::with_seed(2);
        let (mut read, mut left) = (0, 0);
        for _ in 0..20_000 {
            let (lone, call) = both(&mut rng, &clock);
            let asked = CountQuestion::in_call(&lone.question);
            let (id, count) = (lone.id.number(), asked.first());
            let (reply, code) = reply(&mut rng, id, count);
            let fast = read_lone(&reply, id, count);
            let whole = call.read(&Value::BulkString(reply));
            match (fast, whole) {
                (Some((now, decision)), Some((now_of_call, replies))) => {
                    let [TakeReply::Decided(decisions)] = &replies[..] else {
                        panic!("the call reads no decision");
                    };
                    let (one, same) = (format!("{decision:?}"), format!("{:?}", decisions[0]));
                    assert_eq!((now, one), (now_of_call, same));
                    let limit = count.spec.windows().and_then(|it| it.limits().next());
                    assert!(Some(decision.remaining()) <= limit, "{decision:?}");
                    read += 1;
                }
                (Some(_), None) => panic!("it is no reply to the call"),
                (None, Some((_, replies))) => {
                    let is_usual = |it: &TakeReply| matches!(it, TakeReply::Decided(of) if of[0].quotas().len() == 1);
                    let is_usual = replies.len() == 1 && is_usual(&replies[0]);
                    assert!(!(is_usual && [ALLOWED, DENIED].contains(&code.into())));
                    left += 1;
                }
                (None, None) => {}
            }
        }
        assert!(read > 1_000 && left > 1_000, "{read} read, {left} left");
    }
}
