//! The calls of a [`RateLimiter`].

use super::*;

/// More than a test acquires.
const PERMITS: u64 = 100;

fn rate() -> Rate {
    Rate::overall(PERMITS, HOUR).expect("a valid rate")
}

async fn ready(client: &Client, name: &str) -> RateLimiter {
    let limiter = RateLimiter::new(&client.redis, name);
    assert!(limiter.try_set_rate(rate()).await.expect("an answer"));
    limiter
}

/// All keys of a limiter that calls of any kind may look at.
fn keys(name: &str) -> Vec<String> {
    let parts = ["value", "permits", "waiting", "waiting_clients"];
    let parts = parts.map(|part| format!("{{{name}}}:{part}"));
    [name.to_owned()].into_iter().chain(parts).collect()
}

/// A call of a limiter that has been used.
async fn case<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    name: &'static str,
    adds: i64,
    ask: impl Fn(RateLimiter) -> F + Send + Sync + 'static,
) -> Case {
    let limiter = ready(client, name).await;
    // More than is released.
    let acquired = limiter.try_acquire(SPARE as u64 + 5).await;
    assert!(acquired.expect("an answer"));
    let ask = move |client: Client, _| ask(RateLimiter::new(&client.redis, name));
    let count = move || {
        let limiter = limiter.clone();
        async move {
            let free = limiter.available_permits().await.expect("an answer");
            vec![(PERMITS - free).cast_signed()]
        }
    };
    Case::new(name, [adds], |_| keys(name), ask, count).that_gives_back([true])
}

/// A permit that can be had at once, without an order and in the order of those who ask.
async fn acquiring<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    ask: impl Fn(RateLimiter) -> F + Copy + Send + Sync + 'static,
) -> Vec<Case> {
    let fair = move |limiter: RateLimiter| ask(limiter.fair());
    let plain = case(client, "rate-victim", 1, ask).await;
    vec![plain, case(client, "rate-victim-fair", 1, fair).await]
}

pub(crate) async fn try_acquire(client: &Client) -> Vec<Case> {
    acquiring(client, |limiter| async move {
        is("granted", limiter.try_acquire(1).await?)
    })
    .await
}

pub(crate) async fn try_acquire_for(client: &Client) -> Vec<Case> {
    acquiring(client, |limiter| async move {
        is("granted", limiter.try_acquire_for(1, millis(100)).await?)
    })
    .await
}

pub(crate) async fn acquire(client: &Client) -> Vec<Case> {
    acquiring(
        client,
        |limiter| async move { Ok(limiter.acquire(1).await?) },
    )
    .await
}

pub(crate) async fn release(client: &Client) -> Vec<Case> {
    let released = case(client, "rate-victim", -1, |limiter| async move {
        is("released", limiter.release(1).await? == 1)
    });
    // What is released is not taken back.
    vec![released.await.that_gives_back([])]
}

pub(crate) async fn available(client: &Client) -> Vec<Case> {
    let looks = case(client, "rate-victim", 0, |limiter| async move {
        Ok(limiter.available_permits().await.map(drop)?)
    });
    vec![looks.await]
}

fn new(number: usize) -> String {
    format!("rate-victim-{number}")
}

/// Each call sets the rate of a new limiter.
pub(crate) async fn set_rate(client: &Client) -> Vec<Case> {
    let ask = |client: Client, number| {
        let limiter = RateLimiter::new(&client.redis, new(number));
        async move { Ok(limiter.set_rate(rate()).await.map(drop)?) }
    };
    let redis = client.redis.clone();
    let count = move || {
        let all = (0..SPARE).map(|number| RateLimiter::new(&redis, new(number)));
        let exist = join_all(all.map(async |limiter| limiter.exists().await.expect("an answer")));
        async move { vec![exist.await.into_iter().map(i64::from).sum()] }
    };
    let keys = |number| keys(&new(number));
    vec![Case::new("a new rate", [1], keys, ask, count)]
}
