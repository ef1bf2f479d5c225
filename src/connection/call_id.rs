use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Value};

use super::link::{micros, text};

/// Reads the server's clock and repeats the number. It travels as text with each call, so no server
/// can answer that it does not know the script.
const CHECK: &str = "local t = redis.call('TIME') return {t[1], t[2], ARGV[1]}";

/// A number that a reply repeats, so that the reply is known to be that of its own call.
///
/// Replies have no names: the client gives the next reply to the request that waits longest. If a
/// proxy loses one reply, each later reply goes to the request before its own, often in a form that
/// fits. So the last command of each flight is a script call whose reply repeats a number, and no
/// reply is believed before that one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallId(u64);

impl CallId {
    /// The next number. No two calls in progress have the same.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Lua's numbers are doubles, so the number has to be smaller than 2^53.
        Self(NEXT.fetch_add(1, Ordering::Relaxed) % (1 << 32))
    }

    /// The number, as an argument of a script that repeats it.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// A script call that does nothing but repeat the number.
    pub(super) fn check(self) -> Cmd {
        let mut check = redis::cmd("EVAL");
        check.arg(CHECK).arg(0).arg(self.0);
        check
    }

    /// The server's clock in microseconds, if this is the reply to [`check`](Self::check). `None`
    /// if the reply belongs to another call, or is an error.
    pub(super) fn read_check(self, reply: &Value) -> Option<u64> {
        let Value::Array(parts) = reply else {
            return None;
        };
        let (number, time) = parts.split_last()?;
        let is_own = text(number)?.parse() == Ok(self.0);
        micros(time).filter(|_| is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_reply_is_read() {
        let id = CallId::next();
        let text = |number: u64| Value::BulkString(number.to_string().into_bytes());
        let reply = |number| Value::Array(vec![text(7), text(8), text(number)]);
        assert_eq!(id.read_check(&reply(id.number())), Some(7_000_008));
        assert_eq!(id.read_check(&reply(CallId::next().number())), None);
        // The reply to `TIME`, whatever its number.
        assert_eq!(
            id.read_check(&Value::Array(vec![text(7), text(id.0)])),
            None
        );
        assert_eq!(id.read_check(&text(id.0)), None);
        assert_eq!(id.read_check(&Value::Array(vec![])), None);
    }
}
