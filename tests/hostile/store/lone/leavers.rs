//! Callers that leave: after the first poll, while the command is half written, and when the reply is
//! on its way or there. `store::direct` has those that never poll.

use super::*;

/// A caller alone leaves at a moment of the round trip; right behind it comes a bystander.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_each_moment_of_the_round_trip() {
    const ROUNDS: u64 = 300;
    let (_server, proxy, store, mut bystander) = beside_far(millis(4)).await;
    let steady = Steady::watch(&proxy).await;
    let rule = rule("gone", MAX, HOUR);
    let gone = take(&rule, "x").with_cost(7);
    for round in 0..ROUNDS {
        let patience = Duration::from_micros(round * 37 % 5_000);
        leave_after(Box::pin(store.take(&gone)), patience).await;
        if round % 3 > 0 {
            bystander.ask(&store).await;
        }
    }
    let charged = charged(&store, &gone).await;
    assert!((1..=ROUNDS * 7).contains(&charged), "{charged}");
    assert!(charged.is_multiple_of(7), "{charged}");
    steady.check();
}

/// Polled and dropped before the client's task has run, thousands of times: nothing is outstanding
/// that never gets a reply, so a connection that rests is not taken for a silent one.
#[tokio::test]
async fn before_the_client_has_written() {
    const ROUNDS: u64 = 3_000;
    let (_server, proxy, store, mut bystander) = beside(TIMEOUT).await;
    let gone = take(&rule("gone", MAX, HOUR), "x");
    let patient = store.clone().timeout(PATIENT);
    let steady = Steady::watch(&proxy).await;
    for _ in 0..ROUNDS {
        drop(polled_once(&store, &gone));
    }
    // Three times as long as a connection may be silent.
    sleep(millis(300)).await;
    for _ in 0..10 {
        bystander.ask(&patient).await;
        drop(polled_once(&store, &gone));
        sleep(millis(30)).await;
    }
    // Nothing was outstanding.
    steady.check();
    assert!(charged(&store, &gone).await <= ROUNDS + 10);
}

/// A command that fills the socket's buffers is half written when its caller leaves, or stops
/// polling: the rest of it is written all the same, and what comes behind is understood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_command_is_half_written() {
    let (server, proxy, store, mut bystander) = beside(PATIENT).await;
    let long = kit::per_hour("long", MAX).with_prefix("x".repeat(12 << 20));
    let long = Arc::new(long);
    // Not through the proxy, which holds what comes.
    let stalls = Stalls::watch(&[&server.url], millis(80)).await;
    for round in 0..4 {
        let begun = Instant::now();
        proxy.all(Mode::Hold);
        let pending = polled_once(&store, &take(&long, round));
        sleep(millis(150)).await;
        let kept = (round % 2 == 0).then_some(pending);
        let passes = async {
            sleep(millis(50)).await;
            proxy.all(Mode::Pass);
        };
        tokio::join!(bystander.ask_unless_stalled(&store, &stalls), passes);
        bystander.ask_unless_stalled(&store, &stalls).await;
        if let Some(kept) = kept {
            match kept.await {
                Ok(decision) => assert!(decision.is_allowed()),
                Err(error) => {
                    let lost = Lost::since(begun, error);
                    assert!(stalls.excuse(&lost, millis(1_000)), "{lost:?}");
                }
            }
        }
        let charged = charged(&store, &take(&long, round)).await;
        assert!(charged <= 1, "{charged}");
    }
    let commands = redis::cmd("PING").query::<String>(&mut server.connection());
    assert_eq!(commands.as_deref(), Ok("PONG"));
}

/// Decided in time, so the charge stays, once, whether the reply is on its way when the caller leaves
/// or there without a look at it; the reply belongs to nobody else.
#[tokio::test]
async fn once_it_is_decided() {
    let (server, proxy, store, mut bystander) = beside(PATIENT).await;
    let steady = Steady::watch(&proxy).await;
    let gone = take(&rule("gone", MAX, HOUR), "x").with_cost(5);
    for round in 1..=50 {
        let is_on_its_way = round <= 20;
        let (calls, replies) = (Duration::ZERO, millis(if is_on_its_way { 15 } else { 0 }));
        proxy.all(Mode::Delay { calls, replies });
        let pending = executed_once(&server, &store, &gone).await;
        if !is_on_its_way {
            sleep(millis(5)).await;
        }
        drop(pending);
        if is_on_its_way && round % 2 == 0 {
            // Together with another one that leaves.
            drop(polled_once(&store, &take(&rule("other", MAX, HOUR), "y")));
        }
        bystander.ask(&store).await;
        assert_eq!(charged(&store, &gone).await, round * 5);
    }
    steady.check();
}
