//! Errors of the server instead of answers: whoever is refused hears so, and nobody else loses an
//! answer or the connection.

use super::callers::{Kind, World};
use super::*;

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
    a_flight_is_refused_under_callers_of_all_kinds: all_at_once(&Kind::all(), 2, &REFUSALS);
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
        one.is_wrong() || one.has_failed() && !stalls.excuse(&one.lost(), 2 * TIMEOUT)
    });
    unexcused.collect()
}

fn assert_all_answered(records: &[Record], stalls: &Stalls) {
    let failed = unexcused(records, stalls);
    let number = failed.len();
    assert!(number == 0, "{number}: {:?}", &failed[..number.min(3)]);
}

/// Law 13: forbidden keys of all kinds, over and over, beside allowed ones on the same connection.
#[tokio::test]
async fn forbidden_keys_beside_allowed_ones() {
    let server = Server::start();
    let open = Arc::new(limited(&server, "+@all").await);
    let closed = Arc::new(open.labelled("closed").await);
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let allowed = Load::of_many(&open, &Kind::all(), 2);
    allowed.all_answered(Instant::now()).await;
    let accepted = open.accepted();
    let refused = Load::of_many(&closed, &Kind::all(), 2);
    sleep(Duration::from_secs(2)).await;
    let (allowed, refused) = (allowed.end().await, refused.end().await);
    let connections = open.accepted() - accepted;
    assert_all_answered(&allowed, &stalls);
    let heard = refused.iter().filter(|one| !one.has_failed());
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
    let load = Load::of_many(&world, &Kind::all(), 2);
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
    let mut broken = unexcused(&records, &stalls);
    broken.retain(|one| one.is_wrong() || one.asked > deadline);
    broken.truncate(3);
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
    let load = Load::of_many(&world, &Kind::all(), 2);
    load.all_answered(Instant::now()).await;
    let accepted = world.accepted();
    for _ in 0..20 {
        run(&server, "SCRIPT FLUSH");
        sleep(millis(50)).await;
    }
    let connections = world.accepted() - accepted;
    let records = load.end().await;
    assert_all_answered(&records, &stalls);
    let is_right = connections == 0 || stalls.longest().is_some();
    assert!(is_right, "{connections} connections");
}
