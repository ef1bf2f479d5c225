//! Faults of the kit, each for a while.

use kit::faults::Fault::{self as What, *};
use kit::faults::Site;
use tidegate::store::StoreErrorKind::{self as Kind, OutOfMemory, ReadOnly, Refused};
use tidegate::store::StoreErrorKind::{Timeout, Unavailable, WrongType};

use crate::fault::Fault;
use crate::*;

/// The key that all callers share.
const SHARED: &str = "CurrentLimiter:shared";

async fn lasts(name: &'static str, what: What, kinds: &[Kind]) {
    lasts_for(name, what, kinds, WHILE, 0).await;
}

/// `unsaved`: how often what was counted is lost with it.
async fn lasts_for(name: &'static str, what: What, kinds: &[Kind], time: Duration, unsaved: u64) {
    let mut site = Site::start(what).await;
    let fault = Fault::at(name, &site.url()).await.gives(kinds);
    let fault = fault.forgets(unsaved).begins();
    site.begin(&[SHARED.to_owned()]).await;
    fault.lasts(time).await;
    site.end().await;
    fault.ends().await;
}

kit::cases! {
    gone: lasts_for("killed with -9, restarted with its last dump", Gone, &[Unavailable], WHILE, 1);
    loading: lasts_for("LOADING for a while", Loading, &[Unavailable], WHILE, 1);
    stopped: lasts("SIGSTOP, SIGCONT", Stopped, &[Timeout]);
    // So long that attempts to connect end in time-outs, too.
    stopped_for_long: lasts_for("SIGSTOP for 2 s, SIGCONT", Stopped, &[Timeout], 5 * WHILE, 0);
    // PING would be answered meanwhile.
    writes_paused: lasts("CLIENT PAUSE 400 WRITE", WritesPaused, &[Timeout]);
    // Who has just asked over a connection that another one replaces is told so.
    mute: lasts("a black hole, all connections", Mute, &[Timeout, Unavailable]);
    too_few_replicas: lasts("NOREPLICAS", TooFewReplicas, &[ReadOnly]);
    failed_dump: lasts("MISCONF, a dump fails", FailedDump, &[ReadOnly]);
    no_memory: lasts("maxmemory, noeviction", NoMemory, &[OutOfMemory]);
    a_wrong_password: lasts("wrong password", LockedOut, &[Refused, Unavailable]);
    forbidden_scripts: lasts("ACL without EVALSHA", Commands("-evalsha"), &[Refused]);
    // What a script calls is checked as well.
    forbidden_command: lasts("ACL without ZADD", Commands("-zadd"), &[Refused]);
    forbidden_keys: lasts("ACL without the keys", Keys("~other"), &[Refused]);
    a_string: lasts("a string under the key", Foreign("SET {key} text"), &[WrongType]);
    a_list: lasts("a list under the key", Foreign("RPUSH {key} text"), &[WrongType]);
    a_hash: lasts("a hash under the key", Foreign("HSET {key} field text"), &[WrongType]);
}
