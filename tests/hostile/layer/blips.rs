//! Redis stands still for a moment under load: nobody is sent away for longer than that is worth.

use super::*;

/// Two hundred requests a second of twenty customers, who have used one of five a day, one of two
/// an hour by GCRA, and little of a month, while Redis stands for 600 ms: whoever is denied comes
/// again within seconds, and nobody is told that nothing is left, or that a request can never fit.
#[tokio::test(flavor = "multi_thread")]
async fn a_blip_sends_nobody_away() {
    let mut server = Redis::start();
    let store = Resilient::redis(&*server.url, "shop").expect("a valid address");
    let store = store.processes(8).connect().await.expect("a server");
    let limits = Limits::from_toml(
        r#"
        [rules.day]
        max-count = 5
        window = "1d"
        key = "header:x-user"

        [rules.gcra]
        algorithm = "gcra"
        max-count = 2
        window = "1h"
        key = "header:x-user"

        [rules.month]
        max-count = 5000
        per = "month"
        key = "header:x-user"
        cost = 2000
        "#,
    );
    let limits = limits.expect("valid").store(store);
    let paths = ["day", "gcra", "month"];
    let world = World::with_layers(limits, &paths, |layer| layer);
    let send = async |at: usize| {
        let fields = format!("x-user: {}", at % 20);
        (at, world.ask(paths[at / 20 % 3], &fields).await)
    };
    join_all((0..60).map(send)).await;
    server.go_away(false);
    let asked = (0..240).map(async |at| {
        sleep(millis(5 * at as u64)).await;
        send(at).await
    });
    let (answers, ()) = tokio::join!(join_all(asked), async {
        sleep(millis(600)).await;
        server.come_back(false);
    });
    let by_fallback = answers.iter().filter(|(_, answer)| {
        let decision = answer.decision.as_ref();
        decision.is_some_and(|it| it.source() == Source::Fallback)
    });
    let (mut number, mut denied) = (0, 0);
    for (at, answer) in by_fallback {
        number += 1;
        assert_eq!(answer.field("ratelimit"), None, "{at}: {answer:?}");
        assert!(!answer.body.contains("never"), "{at}: {answer:?}");
        if answer.status == 429 {
            denied += 1;
            let told = answer.field("retry-after").map(str::parse::<u64>);
            let told = told.expect("a time").expect("a number");
            assert!((1..=6).contains(&told), "{at}: {answer:?}");
        }
    }
    assert!(number > 40 && denied > 15, "{number}, {denied}");
    // All is well again.
    let (_, answer) = send(1).await;
    assert_eq!(answer.decision().source(), Source::Redis);
}
