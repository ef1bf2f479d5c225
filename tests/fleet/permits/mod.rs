//! Permits of several processes on one Redis: how many requests run at a time, what is left after a
//! process was killed, and what it costs to wait for one.

mod at_a_time;
mod back;
mod backend;
mod served;
mod waiters;

use crate::*;

const PATH: &str = "export";

/// So many requests at a time, beside a quota that denies none.
fn rule(max: u64, lease: Duration) -> Rule {
    let rule = kit::per_hour(PATH, 1_000_000_000);
    // Its counts are strings, those of permits sorted sets.
    let rule = rule.with_algorithm(Algorithm::FixedWindow);
    let rule = rule.with_max_concurrent(max).expect("valid");
    rule.with_permit_lease(lease).expect("valid")
}

/// The permits that the server keeps: those that are held, and with them those whose leases are
/// over.
fn permits(server: &Redis) -> (u64, u64) {
    let (now, mut connection) = (server.millis(), server.connection());
    let names: Vec<Vec<u8>> = server.run("KEYS *");
    let (mut held, mut all) = (0, 0);
    for name in names {
        let ask = |command: &str| redis::cmd(command).arg(&name).to_owned();
        let is_of = ask("TYPE")
            .query::<String>(&mut connection)
            .expect("a type");
        if is_of == "zset" {
            let mut count = ask("ZCOUNT");
            let count = count.arg(format!("({now}")).arg("+inf");
            held += count.query::<u64>(&mut connection).expect("a number");
            all += ask("ZCARD").query(&mut connection).unwrap_or(0);
        }
    }
    (held, all)
}
