//! What limiters promise: an interval holds no more than the rate, whatever callers do.
//!
//! [`Grants`] knows only what was granted and given back, by what `MONITOR` shows.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A connection that is told of every command, also of those in scripts.
pub struct Monitor {
    stream: TcpStream,
    lines: Receiver<Vec<u8>>,
}

/// What was granted; times are microseconds of the server's clock.
#[derive(Debug, Clone)]
pub struct Grant {
    /// From when on it counts.
    pub stamp: u64,
    pub permits: u64,
    /// When the script was called that granted it.
    pub called: u64,
    /// When it was written.
    written: u64,
    /// From when on it may be used: when it was granted, or the time that it was reserved for.
    used: u64,
    /// What of it was given back, and when.
    back: Vec<(u64, u64)>,
    /// When a change of the rate forgot it.
    forgotten: Option<u64>,
    /// The rate then: permits, and microseconds.
    rate: Option<(u64, u64)>,
}

/// All that was granted under one name, in the order of granting.
#[derive(Debug, Default)]
pub struct Grants {
    pub all: Vec<Grant>,
    known: HashMap<Vec<u8>, (usize, u64)>,
    /// As it was set last.
    rate: Option<(u64, u64)>,
}

/// What a check of each grant has seen.
#[derive(Debug, Default)]
pub struct Checked {
    pub windows: u64,
    /// Windows with a change that forgot what was granted, beside which there would be too much.
    pub with_a_change: u64,
}

/// A member's identity and its permits; of one that stands for no grant, none.
pub fn split(member: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (identity, permits) = member.split_at(member.len() - 4);
    let permits = u32::from_le_bytes(permits.try_into().expect("four bytes"));
    (!identity.ends_with(b"missing_")).then(|| (identity.to_vec(), permits.into()))
}

/// Whether this is the set of what one client was granted.
fn is_a_clients(key: &[u8]) -> bool {
    String::from_utf8_lossy(key).contains(":permits:")
}

impl Monitor {
    pub fn start(url: &str) -> Self {
        let address = url.trim_start_matches("redis://");
        let mut stream = TcpStream::connect(address).expect("a running server");
        stream.write_all(b"MONITOR\r\n").expect("is sent");
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        let mut first = String::new();
        reader.read_line(&mut first).expect("an answer");
        assert_eq!(first.trim(), "+OK");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = reader.split(b'\n').map_while(Result::ok);
            lines.map_while(|line| sender.send(line).ok()).count()
        });
        Self { stream, lines }
    }

    /// What was granted until now, by the names of the sorted sets.
    pub fn grants(self, url: &str) -> HashMap<String, Grants> {
        let mut grants: HashMap<String, Grants> = HashMap::new();
        let mut called = 0;
        self.replay(url, |at, in_script, words| {
            if !in_script {
                called = at;
                return;
            }
            let key = || String::from_utf8(words[1].clone()).expect("a name");
            // Java clients write it in small letters.
            let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
            match &words[0].to_ascii_uppercase()[..] {
                b"HSET" if words[2] == b"rate" && words.len() > 5 => {
                    let number = |at: usize| text(&words[at]).parse::<u64>().ok();
                    let rate = number(3).zip(number(5).map(|millis| millis * 1_000));
                    let permits = format!("{{{}}}:permits", key());
                    grants.entry(permits).or_default().rate = rate;
                }
                b"DEL" => {
                    for name in &words[1..] {
                        if let Some(grants) = grants.get_mut(&text(name)) {
                            grants.forget(at);
                        }
                    }
                }
                b"ZADD" if !words[1].ends_with(b":permits") && !is_a_clients(&words[1]) => {}
                b"ZADD" => {
                    for (score, member) in pairs(&words) {
                        let grants = grants.entry(key()).or_default();
                        grants.add((called, at), score, member);
                    }
                }
                b"ZREM" if words[1].ends_with(b":waiting") => {}
                b"ZREM" => grants.entry(key()).or_default().remove(at, &words[2]),
                _ => {}
            }
        });
        // A limiter whose rate was set and of which nobody has taken anything.
        grants.retain(|_, grants| !grants.all.is_empty());
        grants
    }

    /// What was granted until now by the limiter of this name; nothing, if there is none.
    pub fn grants_of(self, url: &str, name: &str) -> Grants {
        let mut grants = self.grants(url);
        let grants = grants.remove(&format!("{{{name}}}:permits"));
        grants.unwrap_or_default()
    }

    /// Law 1: no interval holds more than this. Returns the permits that were granted and not given
    /// back.
    pub fn check(self, url: &str, name: &str, rate: u64, interval: Duration) -> u64 {
        let grants = self.grants_of(url, name);
        grants.check(rate, interval);
        grants.kept()
    }

    /// All commands until now: when, whether by a script, and their words.
    pub fn replay(self, url: &str, mut each: impl FnMut(u64, bool, Vec<Vec<u8>>)) {
        // What comes behind this is not asked for.
        let end = format!("end of {url}");
        let client = redis::Client::open(url).expect("a valid address");
        let mut connection = client.get_connection().expect("a running server");
        let echo = redis::cmd("ECHO").arg(&end).exec(&mut connection);
        echo.expect("an answer");
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let line = line.expect("the end was echoed");
            let (at, in_script, words) = parse(&line);
            if words.get(1).is_some_and(|word| word == end.as_bytes()) {
                break;
            }
            each(at, in_script, words);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The scores and members of a `ZADD`.
pub fn pairs(words: &[Vec<u8>]) -> impl Iterator<Item = (u64, &[u8])> {
    words[2..].chunks(2).map(|pair| {
        let score = std::str::from_utf8(&pair[0]).expect("a number");
        let score = score.parse::<f64>().expect("a number") as u64;
        (score, &pair[1][..])
    })
}

impl Grants {
    fn add(&mut self, (called, at): (u64, u64), score: u64, member: &[u8]) {
        let Some((identity, permits)) = split(member) else {
            return;
        };
        let stamp = score * 1_000;
        let is_reserved = stamp > at + 1_000;
        let used = if is_reserved { stamp } else { called };
        if let Some((index, known)) = self.known.get_mut(&identity) {
            if permits == *known {
                // The reply was lost, and the caller asked again: it has the permits from now on.
                let grant = &mut self.all[*index];
                (grant.stamp, grant.called, grant.used) = (stamp, called, used);
                grant.written = at;
                return;
            }
            // What is left of a grant that was given back in part.
            assert!(permits < *known, "granted twice");
            self.all[*index].back.push((at, *known - permits));
            *known = permits;
            return;
        }
        self.known.insert(identity, (self.all.len(), permits));
        self.all.push(Grant {
            stamp,
            permits,
            called,
            written: at,
            used,
            back: Vec::new(),
            forgotten: None,
            rate: self.rate,
        });
    }

    /// A change of the rate forgets what was granted.
    fn forget(&mut self, at: u64) {
        self.known.clear();
        for grant in &mut self.all {
            grant.forgotten.get_or_insert(at);
        }
    }

    fn remove(&mut self, at: u64, member: &[u8]) {
        let Some((identity, permits)) = split(member) else {
            return;
        };
        if let Some((index, known)) = self.known.get_mut(&identity)
            && *known == permits
        {
            self.all[*index].back.push((at, permits));
            *known = 0;
        }
    }

    /// All that was granted and not given back.
    pub fn kept(&self) -> u64 {
        self.all.iter().map(|grant| grant.at(u64::MAX)).sum()
    }

    /// The most permits in any interval, `(t - interval, t]`, that were not given back by its end.
    pub fn fullest(&self, interval: u64) -> u64 {
        let mut grants: Vec<&Grant> = self.all.iter().collect();
        grants.sort_by_key(|grant| grant.stamp);
        let (mut fullest, mut oldest) = (0, 0);
        for (at, last) in grants.iter().enumerate() {
            if last.at(last.used) == 0 {
                continue;
            }
            while grants[oldest].stamp + interval <= last.stamp {
                oldest += 1;
            }
            let same = grants[at..]
                .iter()
                .take_while(|grant| grant.stamp == last.stamp);
            let inside = grants[oldest..at].iter().chain(same);
            let inside = inside.filter(|grant| grant.used <= last.used);
            fullest = fullest.max(inside.map(|grant| grant.at(last.used)).sum());
        }
        fullest
    }

    /// Law 1: no interval holds more than this.
    pub fn check(&self, rate: u64, interval: Duration) {
        let fullest = self.fullest(interval.as_micros() as u64);
        assert!(
            fullest <= rate,
            "law 1: {fullest} of {rate} in {interval:?}"
        );
    }

    /// Law 1 under rates that change: none was granted beside so much that the interval that ends
    /// with it holds more than the rate that stood then.
    pub fn check_by_rates(&self) -> Checked {
        let mut checked = Checked::default();
        let mut grants: Vec<&Grant> = self.all.iter().collect();
        grants.sort_by_key(|grant| grant.stamp);
        let mut oldest = 0;
        for (at, last) in grants.iter().enumerate() {
            let Some((rate, interval)) = last.rate else {
                continue;
            };
            while grants[oldest].stamp + 60_000_000 <= last.stamp {
                oldest += 1;
            }
            let inside = grants[oldest..=at].iter();
            let inside = inside
                .filter(|grant| grant.stamp + interval > last.stamp && grant.used <= last.used);
            let sum = |counts: bool| -> u64 {
                let are_so = inside
                    .clone()
                    .filter(|grant| !counts || grant.counts(last.used));
                are_so.map(|grant| grant.at(last.used)).sum()
            };
            let granted = sum(true);
            assert!(
                granted <= rate,
                "law 1: {granted} of {rate} beside {last:?}"
            );
            checked.windows += 1;
            checked.with_a_change += u64::from(sum(false) > rate);
        }
        checked
    }

    /// The most that was called for in any interval, in microseconds; calls are told to a tenth of
    /// a millisecond. A server that stood still within a call read its clock before or after that.
    pub fn fullest_by_calls(&self, interval: u64) -> u64 {
        let (mut fullest, mut oldest, mut inside) = (0, 0, 0);
        for last in &self.all {
            inside += last.permits;
            while self.all[oldest].called + interval - 100 <= last.written {
                inside -= self.all[oldest].permits;
                oldest += 1;
            }
            fullest = fullest.max(inside);
        }
        fullest
    }

    /// What part of what could be had from the first to the last was used, in percent.
    pub fn use_of(&self, rate: u64, interval: u64) -> u64 {
        let stamps = || self.all.iter().map(|grant| grant.stamp);
        let (first, last) = (stamps().min(), stamps().max());
        let span = last.unwrap_or(0) - first.unwrap_or(0) + interval;
        100 * self.kept() * interval / (rate * span)
    }
}

impl Grant {
    /// What of it had not been given back by then.
    fn at(&self, then: u64) -> u64 {
        let back = self.back.iter().filter(|(at, _)| *at <= then);
        self.permits - back.map(|(_, permits)| permits).sum::<u64>()
    }

    /// Whether no change had forgotten it by then.
    fn counts(&self, then: u64) -> bool {
        self.forgotten.is_none_or(|at| at > then)
    }
}

/// From `+1795167694.123456 [0 lua] "ZADD" "key" ...`: when, whether by a script, and what.
pub fn parse(line: &[u8]) -> (u64, bool, Vec<Vec<u8>>) {
    let quote = line.iter().position(|byte| *byte == b'"');
    let quote = quote.expect("a command");
    let head = std::str::from_utf8(&line[1..quote]).expect("a time and a client");
    let (time, client) = head.split_once(' ').expect("a client");
    let time = time.replace('.', "").parse().expect("a time");
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line[quote..].iter().copied();
    while let Some(byte) = bytes.next() {
        let Some(open) = &mut word else {
            if byte == b'"' {
                word = Some(Vec::new());
            }
            continue;
        };
        match byte {
            b'"' => words.extend(word.take()),
            b'\\' => open.push(match bytes.next().expect("an escaped byte") {
                b'x' => {
                    let mut digit = || char::from(bytes.next().expect("a digit")).to_digit(16);
                    let byte = digit().zip(digit()).map(|(high, low)| 16 * high + low);
                    u8::try_from(byte.expect("digits")).expect("a byte")
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                plain => plain,
            }),
            plain => open.push(plain),
        }
    }
    (time, client.contains("lua"), words)
}
