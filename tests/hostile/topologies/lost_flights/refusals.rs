//! Errors of the server instead of answers: whoever is refused hears so, and nobody else loses an
//! answer or the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::Redis as Server;
use kit::proxy::{FlightFault, Part};
use tokio::time::sleep;

use super::callers::{Kind, Trouble, World};
use super::{GROUPS, Load, Record, SLACK, TIMEOUT, all_at_once, in_groups, tests};
use kit::stalls::{Lost, Stalls};
use kit::{millis, run};

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
const NOPERM: &str = "-NOPERM User gate has no permissions to run the 'evalsha' command";

const REFUSALS: [FlightFault; 6] = [
    FlightFault::Replace(Part::All, LOADING),
    FlightFault::Replace(Part::FirstHalf, LOADING),
    FlightFault::Replace(Part::Last, LOADING),
    FlightFault::Replace(Part::All, NOPERM),
    FlightFault::Replace(Part::Middle, NOPERM),
    FlightFault::Replace(Part::Last, NOPERM),
];

tests! {
    a_flight_is_refused_under_callers_of_all_kinds: all_at_once(&Kind::ALL, 2, &REFUSALS);
    a_flight_is_refused_under_few_callers: in_groups(&GROUPS, &REFUSALS);
}

const PROCESS: &str = "gate:secret";

/// A world of a user that may touch keys with `open` in their names, and do what this says.
async fn limited(server: &Server, commands: &str) -> World {
    let user = "ACL SETUSER gate on >secret resetchannels &* resetkeys ~*open*";
    run(server, &format!("{user} {commands}"));
    World::of_user(server, PROCESS, "open").await
}

/// What went wrong that is not the machine's fault.
fn unexcused<'a>(records: &'a [Record], stalls: &Stalls) -> Vec<&'a Record> {
    let unexcused = records.iter().filter(|one| {
        let lost = Lost {
            asked: one.asked,
            answered: one.answered,
            why: String::new(),
        };
        match one.trouble {
            None => false,
            Some(Trouble::Wrong(_)) => true,
            Some(Trouble::Failed(_)) => !stalls.excuse(&lost, 2 * TIMEOUT),
        }
    });
    unexcused.collect()
}

/// Law 13: forbidden keys of all kinds, over and over, beside allowed ones on the same connection.
#[tokio::test]
async fn forbidden_keys_beside_allowed_ones() {
    let server = Server::start();
    let open = Arc::new(limited(&server, "+@all").await);
    let closed = Arc::new(open.labelled("closed").await);
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let allowed = Load::of_many(&open, &Kind::ALL, 2);
    allowed.all_answered(Instant::now()).await;
    let accepted = open.accepted();
    let refused = Load::of_many(&closed, &Kind::ALL, 2);
    sleep(Duration::from_secs(2)).await;
    let (allowed, refused) = (allowed.end().await, refused.end().await);
    let connections = open.accepted() - accepted;
    let failed = unexcused(&allowed, &stalls);
    let number = failed.len();
    assert!(
        failed.is_empty(),
        "{number}: {:?}",
        &failed[..number.min(3)]
    );
    let heard = refused
        .iter()
        .filter(|one| !matches!(one.trouble, Some(Trouble::Failed(_))));
    let heard: Vec<_> = heard.take(3).collect();
    assert!(heard.is_empty(), "it is forbidden: {heard:?}");
    let is_right = connections == 0 || stalls.longest().is_some();
    assert!(is_right, "{connections} connections for forbidden keys");
    println!("{} allowed, {} refused", allowed.len(), refused.len());
}

/// A command that is forbidden for a while: those that need it hear so, nobody hears another
/// caller's answer, the connection stays, and then all is well.
async fn forbidden_for_a_while(command: &str) -> Result<(), String> {
    let server = Server::start();
    let world = Arc::new(limited(&server, "+@all").await);
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let load = Load::of_many(&world, &Kind::ALL, 2);
    load.all_answered(Instant::now()).await;
    let accepted = world.accepted();
    run(&server, &format!("ACL SETUSER gate -{command}"));
    sleep(millis(500)).await;
    run(&server, &format!("ACL SETUSER gate +{command}"));
    let deadline = Instant::now() + SLACK;
    sleep(SLACK).await;
    load.all_answered(deadline).await;
    let connections = world.accepted() - accepted;
    let records = load.end().await;
    let broken = unexcused(&records, &stalls)
        .into_iter()
        .filter(|one| matches!(one.trouble, Some(Trouble::Wrong(_))) || one.asked > deadline);
    let broken: Vec<_> = broken.take(3).collect();
    let failed = records.iter().filter(|one| one.trouble.is_some()).count();
    println!("{command}: {failed} of {} failed", records.len());
    if !broken.is_empty() {
        return Err(format!("{command}: {broken:?}"));
    }
    match connections {
        1.. if stalls.longest().is_none() => Err(format!("{command}: {connections} connections")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_command_is_forbidden_for_a_while() {
    let mut broken = Vec::new();
    for command in ["evalsha", "time", "zadd", "get", "publish", "hincrby"] {
        broken.extend(forbidden_for_a_while(command).await.err());
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The server forgets all scripts, again and again: no call notices, and the connection stays.
#[tokio::test]
async fn scripts_that_are_forgotten() {
    let server = Server::start();
    let world = Arc::new(World::new(&server, "world").await);
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let load = Load::of_many(&world, &Kind::ALL, 2);
    load.all_answered(Instant::now()).await;
    let accepted = world.accepted();
    for _ in 0..20 {
        run(&server, "SCRIPT FLUSH");
        sleep(millis(50)).await;
    }
    let connections = world.accepted() - accepted;
    let records = load.end().await;
    let failed = unexcused(&records, &stalls);
    let number = failed.len();
    assert!(
        failed.is_empty(),
        "{number}: {:?}",
        &failed[..number.min(3)]
    );
    let is_right = connections == 0 || stalls.longest().is_some();
    assert!(is_right, "{connections} connections");
}
