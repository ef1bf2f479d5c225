//! Rates that change, are deleted and expire under those who wait.

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
}

const CHANGES: [Change; 6] = [
    Change::Set,
    Change::Keep,
    Change::Delete,
    Change::DeleteAndSet,
    Change::Expire,
    Change::DeletedByHand,
];

async fn make(change: Change, by: &RateLimiter, server: &Server) {
    let more = overall(1_000, LONG);
    match change {
        Change::Set => by.sets(more).await,
        Change::Keep => by.replaces(more).await,
        Change::Delete => assert!(by.delete().await.expect("an answer")),
        Change::DeleteAndSet => {
            assert!(by.delete().await.expect("an answer"));
            assert!(by.sets_first(more).await);
        }
        Change::Expire => assert!(by.expire(millis(1)).await.expect("an answer")),
        Change::DeletedByHand => run(server, &format!("DEL {}", by.name())),
    }
}

fn is_right(change: Change, answer: Option<LimiterErrorKind>) -> bool {
    match change {
        Change::Delete | Change::Expire | Change::DeletedByHand => {
            answer == Some(LimiterErrorKind::UnknownLimiter)
        }
        // Who asks in between is told.
        Change::DeleteAndSet => matches!(answer, None | Some(LimiterErrorKind::UnknownLimiter)),
        _ => answer.is_none(),
    }
}

/// Law 14: sleepers hear of a change by their own process at once, and of any other within a
/// second; a newcomer does not stand behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sleeps_through_a_change() {
    let (server, _proxy, home) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let cases = CHANGES
        .into_iter()
        .flat_map(|change| [(change, false), (change, true)]);
    let cases = cases.map(async |(change, is_foreign)| {
        let name = format!("{change:?}-{is_foreign}");
        let limiter = limiter(&home, &name, 1, LONG).await;
        assert!(limiter.takes(1).await);
        let mut sleepers = sleepers(&limiter, 6);
        sleep(millis(300)).await;
        assert!(sleepers.try_join_next().is_none(), "{name}: one is served");
        let by = RateLimiter::new(if is_foreign { &abroad } else { &home }, &*name);
        make(change, &by, &server).await;
        sleep(millis(5)).await;
        let newcomer = limiter.try_acquire(1);
        let newcomer = timeout(2 * SECOND, newcomer).await.expect("at once");
        assert!(is_right(change, kind(newcomer)), "{name}: a newcomer");
        // Expiry and deletion by hand are changes that this process did not make.
        let is_known = !is_foreign && !matches!(change, Change::DeletedByHand | Change::Expire);
        let within = if is_known { millis(700) } else { millis(1_700) };
        let heard = timeout(within, async {
            while let Some(answer) = sleepers.join_next().await {
                let answer = answer.expect("no panic");
                assert!(is_right(change, answer), "{name}: {answer:?}");
            }
        });
        let in_time = heard.await.is_ok();
        (name.clone(), in_time)
    });
    let heard = join_all(cases).await;
    let late: Vec<_> = heard.iter().filter(|(_, in_time)| !in_time).collect();
    assert!(late.is_empty(), "late: {late:?}");
}
