//! Faults of the kit, each for a while.

use std::time::Duration;

use kit::faults::{Fault as What, Site};
use kit::millis;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;

/// The key that all callers share.
const SHARED: &str = "CurrentLimiter:shared";

/// `unsaved`: how often what was counted is lost with it.
async fn lasts(name: &'static str, what: What, kinds: &[Kind], time: Duration, unsaved: u64) {
    let mut site = Site::start(what).await;
    let fault = Fault::at(name, &site.url()).await.gives(kinds);
    let fault = fault.forgets(unsaved).begins();
    site.begin(&[SHARED.to_owned()]).await;
    fault.lasts(time).await;
    site.end().await;
    fault.ends().await;
}

macro_rules! faults {
    ($(
        $test:ident: $name:literal, $what:expr, $kinds:expr
        $(, for $time:literal)? $(, unsaved $unsaved:literal)?;
    )+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            use Kind::*;
            let (time, unsaved) = ([$($time,)? 400][0], [$($unsaved,)? 0][0]);
            lasts($name, $what, &$kinds, millis(time), unsaved).await;
        })+
    };
}

faults! {
    loading: "LOADING for a while", What::Loading, [Unavailable], unsaved 1;
    stopped: "SIGSTOP, SIGCONT", What::Stopped, [Timeout];
    // So long that attempts to connect end in time-outs, too.
    stopped_for_long: "SIGSTOP for 2 s, SIGCONT", What::Stopped, [Timeout], for 2_000;
    // PING would be answered meanwhile.
    writes_paused: "CLIENT PAUSE 400 WRITE", What::WritesPaused, [Timeout];
    // Who has just asked over a connection that another one replaces is told so.
    mute: "a black hole, all connections", What::Mute, [Timeout, Unavailable];
    too_few_replicas: "NOREPLICAS", What::TooFewReplicas, [ReadOnly];
    failed_dump: "MISCONF, a dump fails", What::FailedDump, [ReadOnly];
    no_memory: "maxmemory, noeviction", What::NoMemory, [OutOfMemory];
    a_wrong_password: "wrong password", What::LockedOut, [Refused, Unavailable];
    forbidden_scripts: "ACL without EVALSHA", What::Commands("-evalsha"), [Refused];
    // What a script calls is checked as well.
    forbidden_command: "ACL without ZADD", What::Commands("-zadd"), [Refused];
    forbidden_keys: "ACL without the keys", What::Keys("~other"), [Refused];
    a_string: "a string under the key", What::Foreign("SET {key} text"), [WrongType];
    a_list: "a list under the key", What::Foreign("RPUSH {key} text"), [WrongType];
    a_hash: "a hash under the key", What::Foreign("HSET {key} field text"), [WrongType];
}
