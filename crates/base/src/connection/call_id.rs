use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Value};

/// A number that a reply repeats, so that the reply is known to be that of its own call.
///
/// Replies have no names: the client gives the next reply to the request that waits longest. If a
/// proxy loses one reply, each later reply goes to the request before its own, often in a form that
/// fits. So every script repeats a number that its call was sent with, the last command of each
/// flight is a script call, and no reply is believed before the last one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId(u64);

/// A script that returns the number of its call, and what `source` returns. The number is its last
/// argument, which `source` does not see.
pub(super) fn numbered(source: &str) -> String {
    format!(
        "local id = table.remove(ARGV) + 0\n\
         local function script()\n{source}end\n\
         return {{ id, script() }}\n"
    )
}

/// A numbered script that also returns the server's clock in microseconds, which `source` knows as
/// `server_now`. Its last argument but one is a deadline by that clock: after it nothing is done,
/// and the error `LATE` is in the place of what `source` returns.
pub(super) fn numbered_with_deadline(source: &str) -> String {
    format!(
        "local id, deadline, time = table.remove(ARGV) + 0, table.remove(ARGV) + 0, redis.call('TIME')\n\
         local server_now = time[1] * 1000000 + time[2]\n\
         if server_now > deadline then\n\
         return {{ id, redis.error_reply('LATE the deadline is over'), server_now }}\n\
         end\n\
         local function script()\n{source}end\n\
         return {{ id, script(), server_now }}\n"
    )
}

/// What a numbered script returned.
#[derive(Debug, PartialEq)]
pub struct NumberedReply {
    pub reply: Value,
    /// The server's clock in microseconds, if the script has a deadline.
    pub(super) now: Option<u64>,
}

impl CallId {
    /// The next number. No two calls in progress have the same.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Lua's numbers are doubles, so the number has to be smaller than 2^53.
        Self(NEXT.fetch_add(1, Ordering::Relaxed) % (1 << 32))
    }

    /// The number, as an argument of a script that repeats it.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// A script call that does nothing but repeat the number. It travels with its text, so no
    /// server can answer that it does not know the script.
    pub(super) fn check(self) -> Cmd {
        static CHECK: LazyLock<String> = LazyLock::new(|| numbered(""));
        let mut check = redis::cmd("EVAL");
        check.arg(&*CHECK).arg(0).arg(self.0);
        check
    }

    /// Whether this is the reply of the script that was called with this number.
    pub fn is_in(self, reply: &Value) -> bool {
        matches!(reply, Value::Array(parts)
            if matches!(parts[..], [Value::Int(id), ..] if id.cast_unsigned() == self.0))
    }

    /// Reads the reply of the script that was called with this number. `None` if it belongs to
    /// another call, or is an error.
    pub fn read(self, reply: Value) -> Option<NumberedReply> {
        let is_own = self.is_in(&reply);
        let Value::Array(parts) = reply else {
            return None;
        };
        let mut parts = parts.into_iter().skip(1);
        is_own.then(|| NumberedReply {
            reply: parts.next().unwrap_or(Value::Nil),
            now: match parts.next() {
                Some(Value::Int(now)) => Some(now.cast_unsigned()),
                _ => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_reply_is_read() {
        let id = CallId::next();
        let int = |number: u64| Value::Int(number.cast_signed());
        let read = |of: CallId, rest: &[Value]| {
            id.read(Value::Array([&[int(of.number())], rest].concat()))
        };
        let some = |reply, now| Some(NumberedReply { reply, now });
        assert_eq!(read(id, &[int(5)]), some(int(5), None));
        assert_eq!(read(id, &[int(5), int(7)]), some(int(5), Some(7)));
        // A script that returns nothing.
        assert_eq!(read(id, &[]), some(Value::Nil, None));
        assert_eq!(read(CallId::next(), &[int(5)]), None);
        assert_eq!(id.read(int(id.number())), None);
        // The reply to `TIME`, whatever its number.
        let text = |number: u64| Value::BulkString(number.to_string().into_bytes());
        assert_eq!(id.read(Value::Array(vec![text(id.0), text(7)])), None);
        assert_eq!(id.read(Value::Array(vec![])), None);
    }
}
