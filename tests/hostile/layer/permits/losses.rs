//! Answers that are lost or late, and what stands in the way of a permit.

use super::*;

/// Not so short that a busy machine exceeds it often: a test may then lose more answers than meant.
const TIMEOUT: Duration = millis(300);

/// Asks while the link is in this mode; what was decided by then is nobody's.
async fn lose(mode: Mode) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let limits = limits(at_a_time(4), store_at(&proxy.url, TIMEOUT).await);
    for _ in 0..3 {
        drop(check(&limits, "k").await);
        proxy.present(mode);
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(tokio::spawn(limits.check("p", "k").into_future()));
            sleep(millis(1)).await;
        }
        sleep(TIMEOUT).await;
        drop(done(asked).await);
        sleep(2 * TIMEOUT).await;
        proxy.all(Mode::Pass);
        until_held(&server, 0).await;
    }
    until_free(&limits, "k", 4).await;
}

/// Replies that come after the time-out, or questions that arrive after it.
fn slow(calls: u64, replies: u64) -> Mode {
    let (calls, replies) = (millis(calls), millis(replies));
    Mode::Delay { calls, replies }
}

kit::cases! {
    replies_that_never_come: lose(Mode::LoseReplies(2));
    a_link_that_is_dead: lose(Mode::BlackHole);
    replies_that_are_slow: lose(slow(0, 700));
    questions_that_are_slow: lose(slow(500, 0));
    a_link_that_is_cut_in_a_reply: lose(Mode::CutAfter(3));
    a_link_that_is_reset: lose(Mode::Reset);
    a_link_that_says_nonsense: lose(Mode::Garbage(b"+what\r\n"));
}

/// Holders that end while nothing gets through give back their permits once it does again.
#[tokio::test]
async fn releases_while_nothing_gets_through() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    for mode in [
        Mode::BlackHole,
        Mode::Hold,
        Mode::Reset,
        Mode::LoseReplies(3),
    ] {
        let limits = limits(at_a_time(8), store_at(&proxy.url, TIMEOUT).await);
        let all = hold(&limits, "k", 8).await;
        assert_eq!(permits_held(&server), 8);
        proxy.all(mode);
        drop(all);
        sleep(5 * TIMEOUT).await;
        proxy.all(Mode::Pass);
        until_held(&server, 0).await;
        until_free(&limits, "k", 8).await;
    }
}

/// A string under the name of a key's permits is that key's trouble alone, and only while it is
/// there: neither other keys nor the releases of what runs fail by it.
#[tokio::test]
async fn a_foreign_type_under_the_permits_of_a_key() {
    let server = Redis::start();
    let limits = limits(with_quota(1_000, 2), store_at(&server.url, PATIENT).await);
    let one = admitted(&limits, "bad").await;
    let names = kit::keys(&server, "*~permits");
    assert_eq!(names.len(), 1, "{names:?}");
    run(&server, &format!("SET {} foreign", names[0]));
    for _ in 0..20 {
        let (bad, good) = tokio::join!(check(&limits, "bad"), check(&limits, "good"));
        drop(good.expect("another key"));
        if let Err(refused) = bad {
            assert!(refused.decision().is_none(), "no 429: {refused:?}");
            assert!(refused.error().is_some(), "{refused:?}");
        }
    }
    drop(one);
    sleep(millis(50)).await;
    run(&server, &format!("DEL {}", names[0]));
    until_free(&limits, "bad", 2).await;
    until_held(&server, 0).await;
}

/// A user who may not publish or subscribe: releases count all the same, and who waits looks once
/// a second. A rule without permits needs neither.
#[tokio::test]
async fn a_user_who_may_not_publish() {
    for forbidden in ["-publish", "-subscribe"] {
        let server = Redis::start();
        let line = format!("ACL SETUSER default on nopass ~* &* +@all {forbidden}");
        run(&server, &line);
        let limits = limits(at_a_time(1), store_at(&server.url, PATIENT).await);
        let Ok(first) = check(&limits, "k").await else {
            // An error, and nothing held, would do.
            assert_eq!(permits_held(&server), 0, "{forbidden}");
            continue;
        };
        let second = waits(&limits, "k");
        sleep(millis(50)).await;
        drop(first);
        let second = second.await.expect("no panic");
        drop(second.unwrap_or_else(|refused| panic!("{forbidden}: {refused:?}")));
        until_held(&server, 0).await;
        until_free(&limits, "k", 1).await;
    }
}
