//! What was granted, by the clock of the server: read from the sorted set of grants all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kit::Redis as Server;

type Member = (Vec<u8>, f64);

/// A grant: when it was made, in milliseconds, how many permits, and when it was not seen any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) at: u64,
    pub(super) permits: u64,
    gone: u64,
}

/// Looks at the grants of one limiter every few milliseconds until it is asked for them.
pub(super) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

#[derive(Default)]
struct Seen {
    all: BTreeMap<Vec<u8>, Grant>,
    /// What there was at each look.
    looks: Vec<Vec<Grant>>,
}

impl Witness {
    pub(super) fn watch(server: &Server, name: &str) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (ends, key) = (Arc::clone(&is_over), format!("{{{name}}}:permits"));
        let mut connection = server.connection();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !ends.load(Ordering::Relaxed) {
                look(&mut connection, &key, &mut seen);
                std::thread::sleep(Duration::from_millis(4));
            }
            look(&mut connection, &key, &mut seen);
            seen
        });
        Self { is_over, thread }
    }

    fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("looks at the server")
    }

    /// All grants in order, but for those that were given back or cleared while they counted.
    pub(super) fn grants(self, interval: Duration) -> Vec<Grant> {
        self.end().grants(interval)
    }

    /// Law 1: no interval holds more than this. Returns all permits that were granted.
    pub(super) fn check(self, rate: u64, interval: Duration) -> u64 {
        let grants = self.grants(interval);
        check_windows(&grants, rate, interval);
        sum(&grants)
    }

    /// The same where callers leave or release, so that some grants were given back just before
    /// their time: what there is at each look is what counts then.
    pub(super) fn check_each_look(self, rate: u64, interval: Duration) -> u64 {
        let seen = self.end();
        assert!(!seen.looks.is_empty());
        for look in &seen.looks {
            check_windows(look, rate, interval);
        }
        sum(&seen.grants(interval))
    }
}

impl Seen {
    fn grants(self, interval: Duration) -> Vec<Grant> {
        let interval = interval.as_millis() as u64;
        let all = self.all.into_values();
        let mut grants: Vec<_> = all
            .filter(|grant| grant.gone >= grant.at + interval)
            .collect();
        grants.sort_unstable_by_key(|grant| grant.at);
        grants
    }
}

fn sum(grants: &[Grant]) -> u64 {
    grants.iter().map(|grant| grant.permits).sum()
}

pub(super) fn check_windows(grants: &[Grant], rate: u64, interval: Duration) {
    let interval = interval.as_millis() as u64;
    for (place, first) in grants.iter().enumerate() {
        let inside = grants[place..]
            .iter()
            .take_while(|grant| grant.at < first.at + interval);
        let inside: u64 = inside.map(|grant| grant.permits).sum();
        assert!(
            inside <= rate,
            "law 1: {inside} of {rate} from {}",
            first.at
        );
    }
}

/// What the server's clock shows, in milliseconds.
pub(super) fn server_now(server: &Server) -> u64 {
    let time = redis::cmd("TIME").query::<(u64, u64)>(&mut server.connection());
    let (seconds, micros) = time.expect("the time");
    seconds * 1_000 + micros / 1_000
}

fn look(connection: &mut redis::Connection, key: &str, seen: &mut Seen) {
    let mut look = redis::pipe();
    look.atomic().cmd("TIME");
    look.cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES");
    let ((seconds, micros), members): ((u64, u64), Vec<Member>) =
        look.query(connection).expect("a look at the grants");
    let now = seconds * 1_000 + micros / 1_000;
    // Who is still there has not gone.
    for grant in seen.all.values_mut().filter(|grant| grant.gone == u64::MAX) {
        grant.gone = now;
    }
    let mut look = Vec::new();
    for (member, score) in members {
        let permits = member.last_chunk::<4>().expect("permits at the end");
        let grant = Grant {
            at: score as u64,
            permits: u64::from(u32::from_le_bytes(*permits)),
            gone: u64::MAX,
        };
        look.push(grant);
        seen.all.insert(member, grant);
    }
    seen.looks.push(look);
}
