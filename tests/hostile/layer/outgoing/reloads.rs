//! Rules that become outgoing, or cease to be, while calls wait; and rules that cannot be.

use tidegate::rule::{Quotas, Subject};
use tidegate::{Header, Quota, Rules};
use tokio::time::{Instant, sleep};

use super::*;

/// From outgoing to not and back, while calls wait for the end of a hold.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_outgoing_no_more() {
    let limits = limits(50);
    let partner = limits.outgoing("partner").wait(HOUR);
    limits
        .hold("partner", "us", 1_000 * SECOND)
        .await
        .expect("held");
    let begun = Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let partner = partner.clone();
            tokio::spawn(async move { partner.ready("us").await.map(drop) })
        })
        .collect();
    sleep(5 * SECOND).await;
    assert!(calls.iter().all(|it| !it.is_finished()));
    limits
        .rules()
        .replace(Rules::from([per_minute("partner", 50)]));
    for call in calls {
        call.await.expect("no panic").expect("a turn");
    }
    // As under every rule, a call that waits goes on under the rule that it came with.
    assert!(begun.elapsed() <= 1_001 * SECOND, "{:?}", begun.elapsed());
    // What is heard now holds nothing, and says so as an error.
    assert!(limits.hold("partner", "them", HOUR).await.is_err());
    let turn = partner.ready("them").await.expect("a turn");
    limits.rules().replace(Rules::from([super::partner(50)]));
    assert_eq!(held(&limits, "them").await, None);
    // A turn of before is heard under the rule of now, or not at all; it breaks nothing.
    turn.heard(
        StatusCode::TOO_MANY_REQUESTS,
        &fields(&[("retry-after", b"60")]),
    );
    settle().await;
    limits
        .hold("partner", "them", 120 * SECOND)
        .await
        .expect("held");
    assert_eq!(held(&limits, "them").await, Some(120 * SECOND));
}

/// The rule goes and comes back while a call runs.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_gone() {
    let limits = limits(50);
    let partner = limits.outgoing("partner");
    let turn = partner.ready("us").await.expect("a turn");
    limits.rules().replace(Rules::default());
    turn.heard(
        StatusCode::TOO_MANY_REQUESTS,
        &fields(&[("retry-after", b"60")]),
    );
    settle().await;
    // No rule limits nothing: law 16.
    drop(partner.ready("us").await.expect("a turn"));
    assert!(limits.hold("partner", "us", SECOND).await.is_err());
    limits.rules().replace(Rules::from([super::partner(50)]));
    let turn = partner.ready("again").await.expect("a turn");
    turn.heard(
        StatusCode::TOO_MANY_REQUESTS,
        &fields(&[("retry-after", b"60")]),
    );
    settle().await;
    assert_eq!(held(&limits, "again").await, Some(60 * SECOND));
}

/// In any order, in code and in files, what does not fit is an error.
#[test]
fn what_an_outgoing_rule_cannot_have() {
    let plain = || per_minute("partner", 5);
    let permits = || plain().with_max_concurrent(4);
    assert!(permits().expect("valid").with_outgoing().is_err());
    assert!(partner(5).with_max_concurrent(4).is_err());
    assert!(partner(5).with_lease(millis(50)).is_err());
    let leased = plain().with_lease(millis(50)).expect("valid");
    assert!(leased.with_outgoing().is_err());
    let user = |name| {
        let quota = Quota::new(SECOND, 5).expect("valid");
        Subject::new(name, Header::new("x-user")).limit(quota)
    };
    let joint = Rule::joint("partner", [user("a"), user("b")]).expect("valid");
    assert!(joint.with_outgoing().is_err());
    let concurrent = Quotas::with_policies([tidegate::rule::Policy::concurrent(4)]);
    if let Ok(quotas) = concurrent {
        assert!(partner(5).with_plan("pro", quotas).is_err());
    }
}

#[test]
fn what_a_file_cannot_say() {
    let start = "[rules.partner]\noutgoing = true\n";
    for text in [
        "max-count = 5\nwindow = \"1s\"\nhold-at-most = \"-1s\"",
        "max-count = 5\nwindow = \"1s\"\nhold-at-most = 60",
        "max-count = 5\nwindow = \"1s\"\npace = true",
        "max-count = 5\nwindow = \"1s\"\npace = \"even\"\nsub-windows = 4",
        "max-count = 5\nwindow = \"1s\"\npace = \"even\"\nalgorithm = \"fixed-window\"",
        "max-count = 5\nwindow = \"1s\"\nkey = [\"header:x-user\"]\nmax-concurrent = 4",
        "quotas = [{ max-count = 5, window = \"1s\", key = \"header:x-user\" }, \
         { max-count = 5, window = \"1s\", key = \"everyone\" }]",
        "max-count = 5\nwindow = \"1s\"\nlease = \"50ms\"\npace = \"even\"",
        "max-count = 5\nwindow = \"1s\"\n[rules.partner.plans.pro]\nmax-count = 5\nwindow = \"1s\"\n\
         max-concurrent = 5",
    ] {
        let answer = Rules::from_toml(&format!("{start}{text}"));
        assert!(answer.is_err(), "{text}: it is taken");
    }
}

/// Nothing, and more than fits: no panic, and the bound holds.
#[tokio::test(start_paused = true)]
async fn extreme_bounds() {
    let bounded = |bound| Limits::new([partner(50).with_hold_at_most(bound)]);
    for (bound, time, expected) in [
        (Duration::ZERO, HOUR, Duration::ZERO),
        (Duration::from_nanos(1), HOUR, Duration::ZERO),
        (millis(1), Duration::MAX, millis(1)),
        (Duration::MAX, Duration::MAX, Quota::MAX_WINDOW),
        (HOUR, Duration::from_micros(1), Duration::from_micros(1)),
    ] {
        let limits = bounded(bound);
        let found = limits.hold("partner", "us", time).await.expect("an answer");
        let is_near = found >= expected && found <= expected + Duration::from_micros(1);
        assert!(is_near, "{bound:?} {time:?}: {found:?}");
        sleep(millis(2)).await;
        let left = held(&limits, "us").await;
        assert_eq!(
            left.is_some(),
            expected > millis(2),
            "{bound:?} {time:?}: {left:?}"
        );
    }
}
