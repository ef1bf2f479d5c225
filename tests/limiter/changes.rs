//! Law 14: rates that change, are deleted and expire under those who wait, and permits that come
//! back.

use crate::*;

const LONG: Duration = Duration::from_secs(30);

/// What happens while callers sleep for half a minute.
#[derive(Debug, Clone, Copy)]
enum Change {
    Set,
    Keep,
    Delete,
    DeleteAndSet,
    Expire,
    DeletedByHand,
    GiveBack,
    Release,
}
use Change::*;

/// In memory as well; what another process can do, too, comes first.
const CHANGES: [Change; 7] = [Set, Keep, Delete, DeleteAndSet, Expire, GiveBack, Release];

fn is_right(change: Change, answer: Option<LimiterErrorKind>) -> bool {
    match change {
        Delete | Expire | DeletedByHand => answer == Some(LimiterErrorKind::UnknownLimiter),
        // Who asks in between is told.
        DeleteAndSet => matches!(answer, None | Some(LimiterErrorKind::UnknownLimiter)),
        _ => answer.is_none(),
    }
}

/// Sleepers hear of a change by their own process at once, and of any other within a second; a
/// newcomer does not stand behind them.
async fn is_heard_of(home: &Home, change: Change, abroad: Option<&Redis>) {
    let name = &*format!("{change:?}-by-another-{}", abroad.is_some());
    let limiter = RateLimiter::new(home, name);
    let by = abroad.map_or_else(|| limiter.clone(), |redis| RateLimiter::new(redis, name));
    limiter.sets(overall(4, LONG)).await;
    let permit = limiter.acquire_permit(4).await.expect("a permit");
    let mut sleepers = JoinSet::new();
    for at in 0..if matches!(change, GiveBack | Release) {
        2
    } else {
        6
    } {
        let limiter = limiter.fair_if(at % 2 == 0);
        sleepers.spawn(async move { kind(limiter.acquire(1).await) });
    }
    sleep(millis(100)).await;
    assert!(sleepers.try_join_next().is_none(), "{name}: one is served");
    let (more, watch) = (overall(1_000, LONG), home.watch());
    match change {
        Set => by.sets(more).await,
        Keep => by.replaces(more).await,
        Delete => assert!(by.delete().await.expect("an answer")),
        DeleteAndSet => {
            assert!(by.delete().await.expect("an answer"));
            assert!(by.sets_first(more).await);
        }
        Expire => assert!(by.expire(millis(1)).await.expect("an answer")),
        DeletedByHand => run(
            home.server.as_ref().expect("on Redis"),
            &format!("DEL {name}"),
        ),
        GiveBack => assert_eq!(by.gives_back(4).await, 4),
        Release => assert_eq!(permit.release().await.expect("an answer"), 4),
    }
    sleep(millis(5)).await;
    let newcomer = timeout(2 * SECOND, limiter.try_acquire(1)).await;
    let newcomer = kind(newcomer.expect("at once"));
    assert!(is_right(change, newcomer), "{name}: a newcomer");
    // Expiry and deletion by hand are changes that this process did not make.
    let is_known = abroad.is_none() && !matches!(change, DeletedByHand | Expire);
    if is_known && newcomer.is_none() {
        limiter.waits(1).await;
    }
    while let Some(answer) = sleepers.join_next().await {
        let answer = answer.expect("no panic");
        assert!(is_right(change, answer), "{name}: {answer:?}");
    }
    // They would ask each second anyway.
    let within = if is_known { millis(600) } else { millis(1_700) };
    let waited = watch.waited();
    assert!(waited < within, "{name}: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn are_heard_of_in_memory() {
    let home = Home::in_memory();
    let cases = CHANGES.map(|change| is_heard_of(&home, change, None));
    timeout(PATIENT, join_all(cases)).await.expect("all hear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_heard_of_on_redis() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let (on, server) = ((&redis).into(), Some(server));
    let home = Home { on, server };
    let ours = CHANGES.into_iter().chain([DeletedByHand]);
    let ours = ours.map(|change| is_heard_of(&home, change, None));
    let theirs = CHANGES[..5].iter().chain(&[DeletedByHand]);
    let theirs = theirs.map(|change| is_heard_of(&home, *change, Some(&abroad)));
    let all = async { tokio::join!(join_all(ours), join_all(theirs)) };
    timeout(PATIENT, all).await.expect("all hear");
}
