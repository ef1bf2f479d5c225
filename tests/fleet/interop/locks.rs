//! What becomes of locks, by what `MONITOR` shows.

use crate::*;

/// A lease that ends about now may have ended already, by the clock of the script.
const ROUNDING: u64 = 3_000;

/// What it has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Two holders, and counters that jump.
    pub(crate) violations: Vec<String>,
    pub(crate) holds: u64,
    /// What Rust processes are called in the keys of limiters.
    pub(crate) clients: Vec<String>,
}

#[derive(Debug, Default)]
struct Lock {
    holders: HashMap<String, i64>,
    /// In microseconds since 1970.
    ends: u64,
}

/// What was seen of all locks until now.
pub(crate) fn seen(monitor: Monitor, url: &str) -> Seen {
    let (mut seen, mut locks) = (Seen::default(), HashMap::new());
    let mut clients = BTreeSet::new();
    monitor.replay(url, |at, in_script, words| {
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        let words: Vec<_> = words.collect();
        let Some(name) = words.get(1).filter(|_| in_script) else {
            return;
        };
        if let Some((_, client)) = name.split_once(":epoch:") {
            clients.insert(client.to_owned());
        }
        let is_lock = ["plain0", "plain1", "{plain}2", "wild", "{wild}1"].contains(&&**name);
        if is_lock {
            let lock: &mut Lock = locks.entry(name.to_string()).or_default();
            lock.changed(at, &words, &mut seen);
        }
    });
    seen.clients = clients.into_iter().collect();
    seen
}

impl Lock {
    /// A command of a script on it.
    fn changed(&mut self, at: u64, words: &[std::borrow::Cow<'_, str>], seen: &mut Seen) {
        if self.ends != 0 && at >= self.ends + ROUNDING {
            *self = Self::default();
        }
        let number = |at: usize| words[at].parse::<i64>().expect("a number");
        let change: &dyn Fn(i64) -> i64 = match &*words[0].to_lowercase() {
            "hset" => &|_| number(3),
            "hincrby" => &|count| count + number(3),
            // With the only field the expiry goes, too.
            "hdel" | "del" => {
                *self = Self::default();
                return;
            }
            "pexpire" => {
                self.ends = at + 1_000 * u64::try_from(number(2)).expect("a lease");
                return;
            }
            _ => return,
        };
        if let Err(violation) = self.count(&words[2], change) {
            // Unless the lease ended a moment ago.
            let is_over = self.ends != 0 && at + ROUNDING >= self.ends;
            *self = Self::default();
            match self.count(&words[2], change) {
                Ok(()) if is_over => {}
                _ => seen.violations.push(format!("{violation}: {words:?}")),
            }
        }
        seen.holds += u64::from(self.holders.get(&*words[2]) == Some(&1));
    }

    fn count(&mut self, holder: &str, change: &dyn Fn(i64) -> i64) -> Result<(), String> {
        let before = self.holders.get(holder).copied().unwrap_or(0);
        let after = change(before);
        if let Some(other) = self.holders.keys().find(|other| *other != holder) {
            return Err(format!("held by {other}"));
        }
        if after.abs_diff(before) != 1 {
            return Err(format!("held {before} times"));
        }
        match after {
            0 => *self = Self::default(),
            _ => {
                self.holders.insert(holder.to_owned(), after);
            }
        }
        Ok(())
    }
}
