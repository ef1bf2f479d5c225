use redis::{Cmd, Value};
use smallvec::{SmallVec, smallvec};

use super::question::{CountKey, CountOperation, CountQuestion, refund_key};
use super::take_call::{CallKind, NO_DEADLINE};
use super::take_script::write;
use crate::connection::{
    CallId, Carrier, FlightCall, Question, RoundTrip, SendOptions, ServerClock,
};

/// The most refunds in one script call. Such a call of a log occupies the server for about 0.2 ms,
/// or 0.3 ms where they come in any order; of the other algorithms for less.
const MAX_REFUNDS: usize = 20;
/// The most permits that are given back, or kept, in one script call.
const MAX_PERMITS: usize = 64;

/// Refunds of many callers in one script call.
///
/// As in a [`TakeCall`](super::take_call::TakeCall), the refunds of each count are executed in the
/// order in which they came, and an error about one count is the answer to its refunds alone. The
/// script reads and writes each count once.
pub(super) struct RefundCall {
    id: CallId,
    pub(super) kind: CallKind,
    counts: SmallVec<[CountRefunds; 1]>,
    number_of_refunds: usize,
}

/// The refunds of one count, in order of arrival. There is at least one.
type CountRefunds = SmallVec<[Question; 1]>;

impl RefundCall {
    /// A call about one count, without refunds yet.
    pub(super) fn new(kind: CallKind) -> Self {
        Self {
            id: CallId::next(),
            kind,
            counts: smallvec![CountRefunds::new()],
            number_of_refunds: 0,
        }
    }

    /// Whether a refund may be added.
    pub(super) fn has_room(&self) -> bool {
        let max = match self.kind.is_of_permits() {
            true => MAX_PERMITS,
            false => MAX_REFUNDS,
        };
        self.number_of_refunds < max
    }

    /// The index of a further count, if there is room. A refund has to be added to it.
    pub(super) fn new_key(&mut self) -> Option<usize> {
        self.has_room().then(|| {
            self.counts.push(CountRefunds::new());
            self.counts.len() - 1
        })
    }

    /// Adds a refund to those of the count with this index.
    pub(super) fn push(&mut self, count: usize, question: Question) {
        self.number_of_refunds += 1;
        self.counts[count].push(question);
    }

    /// The count with this index.
    pub(super) fn count(&self, count: usize) -> &CountKey {
        CountQuestion::in_call(&self.counts[count][0]).first()
    }

    /// Until when the server may renew a permit.
    fn deadline(&self, question: &Question, clock: &ServerClock) -> u64 {
        match self.kind.now {
            Some(_) => NO_DEADLINE,
            None => clock.at(question.deadline.at.into_std()).min(NO_DEADLINE),
        }
    }
}

impl FlightCall for RefundCall {
    /// The script call: two keys and the receipts of each count, or one and the holders of permits,
    /// the command that announces them, a test's clock if there is one, and the call id. See
    /// `lua/include/refund_begin.lua`, and `lua/permits/renew.lua`.
    fn command(&self, clock: &ServerClock) -> Cmd {
        let has_two_keys = !self.kind.is_of_permits();
        let keys = (1 + usize::from(has_two_keys)) * self.counts.len();
        let bytes = 192 * self.counts.len() + 28 * self.number_of_refunds + 64;
        let mut command = self.kind.command(keys, bytes);
        let mut receipts = Vec::with_capacity(2 * self.counts.len() + 28 * self.number_of_refunds);
        for (at, refunds) in self.counts.iter().enumerate() {
            let name = self.count(at).text();
            command.arg(&name);
            if has_two_keys {
                command.arg(refund_key(&name));
            }
            let number = u16::try_from(refunds.len()).expect("a call has at most 64 refunds");
            receipts.extend_from_slice(&number.to_be_bytes());
            if has_two_keys {
                let mut of_count = Vec::with_capacity(40 * refunds.len());
                let refunds = refunds.iter().map(CountQuestion::in_call);
                refunds.for_each(|asked| write_refund(asked, &mut of_count));
                let size = u32::try_from(of_count.len()).expect("64 refunds have few bytes");
                receipts.extend_from_slice(&size.to_be_bytes());
                receipts.append(&mut of_count);
                continue;
            }
            for question in refunds {
                let asked = CountQuestion::in_call(question);
                let (receipt, max) = asked.refund();
                let [third, fourth] = match asked.what {
                    CountOperation::Renew { lease, .. } => [lease, self.deadline(question, clock)],
                    _ => [receipt.units(), max],
                };
                write(
                    &[receipt.stamp(), receipt.serial(), third, fourth],
                    &mut receipts,
                );
            }
        }
        command.arg(receipts).arg(self.kind.announces_by());
        if let Some(now) = self.kind.now {
            command.arg(now);
        }
        command.arg(self.id.number());
        command
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        self.id.is_in(reply)
    }

    /// Hands out the replies. If the reply is not that of this call or cannot be read, all refunds
    /// get an error, and the connection is closed.
    fn hand_out(self, reply: Value, _: RoundTrip, carrier: &Carrier) {
        let replies = match self.id.read(reply).map(|numbered| numbered.reply) {
            Some(Value::Array(replies)) if replies.len() == self.number_of_refunds => replies,
            _ => return carrier.condemn(self.into_questions()),
        };
        for (question, reply) in self.into_questions().into_iter().zip(replies) {
            let (_, max) = CountQuestion::in_call(&question).refund();
            question.reply(match reply {
                // Nobody gets back more than was charged.
                Value::Int(units @ 0..) if units.unsigned_abs() <= max => Ok(units.unsigned_abs()),
                Value::ServerError(error) => Err(carrier.error(error.into())),
                reply => Err(carrier.protocol_error(&reply)),
            });
        }
    }

    /// The keys of each count count as one.
    fn shape(&self) -> (SendOptions, usize) {
        (self.kind.options, self.counts.len())
    }

    fn into_questions(self) -> Vec<Question> {
        self.counts.into_iter().flatten().collect()
    }
}

/// A receipt, the most units to give back, and the windows of the take's quotas.
fn write_refund(asked: &CountQuestion, into: &mut Vec<u8>) {
    let (receipt, max) = asked.refund();
    let [stamp, serial, units] = [receipt.stamp(), receipt.serial(), receipt.units()];
    write(&[stamp, serial, units, max], into);
    let quotas = match asked.first().spec.windows() {
        Some(windows) if !windows.algorithm().keeps_log() => &*windows.quotas,
        // They look at one log, or release permits.
        _ => &[],
    };
    into.push(u8::try_from(quotas.len()).expect("at most 16 quotas"));
    quotas
        .iter()
        .for_each(|it| write(&[it.window_micros()], into));
}
