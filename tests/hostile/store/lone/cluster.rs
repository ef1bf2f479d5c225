//! Lone takes that a cluster redirects, and whose callers have left or do not poll by then.

use super::*;

async fn connect(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::connect(&*cluster.url()).await.expect("runs");
    let store = store.timeout(PATIENT);
    let takes = (0..40).map(|key| take(&rule("warm", MAX, HOUR), key));
    for take in takes {
        decide(&store, &take).await;
    }
    store
}

/// A caller whose question is redirected.
async fn redirected(store: &RedisStore, mine: &Take, round: usize) {
    let pending = polled_once(store, mine);
    match round % 3 {
        0 => {
            assert_eq!(spent_by(pending.await), 1);
        }
        1 => {
            sleep(millis(1)).await;
            drop(pending);
        }
        _ => {
            // Others about the same slot and node go first.
            let decision = decide(store, mine).await;
            assert!((1..=2).contains(&(MAX - decision.remaining())));
            assert!(pending.await.expect("a decision").is_allowed());
        }
    }
}

/// `MOVED`: a slot has gone to another master. `ASK`: a slot that is being moved, whose key is not
/// there any more. Whoever waits is answered from there; nobody is charged twice.
#[tokio::test]
async fn a_slot_that_moves() {
    let cluster = Cluster::start(&Plan::default());
    let store = connect(&cluster).await;
    let names = (0..6).map(|at| format!("bystander-{at}"));
    let mut bystanders: Vec<_> = names.map(|name| Bystander::new(&name)).collect();
    let (moved, stayed) = ((0..12).map(|it| (it, true)), (0..9).map(|it| (it, false)));
    for (round, has_moved) in moved.chain(stayed) {
        let path = format!("{{moved-{round}-{has_moved}}}");
        let mine = take(&rule(&path, MAX, HOUR), "x");
        let name = format!("CurrentLimiter:{path}:x");
        let (slot, from) = (cluster.slot(&name), cluster.owner(&name));
        let to = (from + 1) % 3;
        if has_moved {
            cluster.give_slot(slot, to);
        } else {
            for (at, what, of) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
                let id = cluster.id(of);
                cluster.nodes[at].run::<()>(&format!("CLUSTER SETSLOT {slot} {what} {id}"));
            }
        }
        redirected(&store, &mine, round).await;
        for bystander in &mut bystanders {
            bystander.ask(&store).await;
        }
        let charged = charged(&store, &mine).await;
        let expected = [1..=1, 0..=1, 2..=2];
        let is_right = expected[round % 3].contains(&charged);
        assert!(is_right, "round {round}, {has_moved}: {charged}");
        cluster.give_slot(slot, to);
    }
}
