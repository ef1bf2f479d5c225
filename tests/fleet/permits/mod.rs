//! Permits of several processes on one Redis: how many requests run at a time, when a permit is
//! back, and what it costs to wait for one.

mod at_a_time;
mod back;
mod backend;
mod hang;
mod served;
mod waiters;

use std::time::Duration;

use kit::Redis;
use tidegate::{Algorithm, Quota, Rule};

const PATH: &str = "export";

/// So many requests at a time, beside a quota that denies none.
fn rule(max: u64, lease: Duration) -> Rule {
    let rule = Rule::new(PATH, [Quota::per_hour(1_000_000_000)]).expect("valid");
    // Its counts are strings, those of permits sorted sets.
    let rule = rule.with_algorithm(Algorithm::FixedWindow);
    let rule = rule.with_max_concurrent(max).expect("valid");
    rule.with_permit_lease(lease).expect("valid")
}

/// The permits that the server keeps: those that are held, and with them those whose leases are
/// over.
fn permits(server: &Redis) -> (u64, u64) {
    let mut connection = server.connection();
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("a time");
    let now = seconds * 1_000 + micros / 1_000;
    let names = redis::cmd("KEYS").arg("*").query(&mut connection);
    let names: Vec<Vec<u8>> = names.expect("the keys");
    let (mut held, mut all) = (0, 0);
    for name in names {
        let is_of: String = redis::cmd("TYPE")
            .arg(&name)
            .query(&mut connection)
            .expect("a type");
        if is_of != "zset" {
            continue;
        }
        let mut count = redis::cmd("ZCOUNT");
        let count = count.arg(&name).arg(format!("({now}")).arg("+inf");
        held += count.query::<u64>(&mut connection).expect("a number");
        let card = redis::cmd("ZCARD").arg(&name).query(&mut connection);
        all += card.unwrap_or(0);
    }
    (held, all)
}
