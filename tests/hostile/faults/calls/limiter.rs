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
async fn case(
    client: &Client,
    name: &'static str,
    adds: i64,
    ask: impl Fn(RateLimiter) -> Answer<Told> + Send + Sync + 'static,
) -> Case {
    let limiter = ready(client, name).await;
    // More than is released.
    let acquired = limiter.try_acquire(SPARE as u64 + 5).await;
    assert!(acquired.expect("an answer"));
    let ask = move |client: Client, _| ask(RateLimiter::new(&client.redis, name));
    let count = move || -> Answer<_> {
        let limiter = limiter.clone();
        Box::pin(async move {
            let free = limiter.available_permits().await.expect("an answer");
            vec![(PERMITS - free).cast_signed()]
        })
    };
    Case::new(name, [adds], |_| keys(name), ask, count).that_gives_back([true])
}

/// Permits that can be had at once, without an order and in the order of those who ask.
pub(crate) async fn try_acquire(client: &Client) -> Vec<Case> {
    let plain = case(client, "rate-victim", 1, |limiter| {
        Box::pin(async move { is("granted", limiter.try_acquire(1).await?) })
    });
    let fair = case(client, "rate-victim-fair", 1, |limiter| {
        let limiter = limiter.fair();
        Box::pin(async move { is("granted", limiter.try_acquire(1).await?) })
    });
    vec![plain.await, fair.await]
}

/// The same for a caller that waits up to a bound.
pub(crate) async fn try_acquire_for(client: &Client) -> Vec<Case> {
    let plain = case(client, "rate-victim", 1, |limiter| {
        Box::pin(async move { is("granted", limiter.try_acquire_for(1, millis(100)).await?) })
    });
    let fair = case(client, "rate-victim-fair", 1, |limiter| {
        let limiter = limiter.fair();
        Box::pin(async move { is("granted", limiter.try_acquire_for(1, millis(100)).await?) })
    });
    vec![plain.await, fair.await]
}

/// The same for a caller that waits without a bound.
pub(crate) async fn acquire(client: &Client) -> Vec<Case> {
    let plain = case(client, "rate-victim", 1, |limiter| {
        Box::pin(async move { limiter.acquire(1).await.map_err(Into::into) })
    });
    let fair = case(client, "rate-victim-fair", 1, |limiter| {
        let limiter = limiter.fair();
        Box::pin(async move { limiter.acquire(1).await.map_err(Into::into) })
    });
    vec![plain.await, fair.await]
}

pub(crate) async fn release(client: &Client) -> Vec<Case> {
    let released = case(client, "rate-victim", -1, |limiter| {
        Box::pin(async move { is("released", limiter.release(1).await? == 1) })
    });
    let mut released = released.await;
    // What is released is not taken back.
    released.gives_back.clear();
    vec![released]
}

pub(crate) async fn available(client: &Client) -> Vec<Case> {
    let looks = case(client, "rate-victim", 0, |limiter| {
        Box::pin(async move {
            limiter
                .available_permits()
                .await
                .map(drop)
                .map_err(Into::into)
        })
    });
    vec![looks.await]
}

async fn exist(redis: &Redis) -> Vec<i64> {
    let exist = (0..SPARE).map(|number| async move {
        let limiter = RateLimiter::new(redis, new(number));
        limiter.exists().await.expect("an answer")
    });
    let exist = join_all(exist).await.into_iter().filter(|exists| *exists);
    vec![i64::try_from(exist.count()).expect("few")]
}

fn new(number: usize) -> String {
    format!("rate-victim-{number}")
}

/// Each call sets the rate of a new limiter.
pub(crate) async fn set_rate(client: &Client) -> Vec<Case> {
    let ask = |client: Client, number| -> Answer<_> {
        let limiter = RateLimiter::new(&client.redis, new(number));
        Box::pin(async move { limiter.set_rate(rate()).await.map_err(Into::into) })
    };
    let redis = client.redis.clone();
    let count = move || -> Answer<_> {
        let redis = redis.clone();
        Box::pin(async move { exist(&redis).await })
    };
    vec![Case::new(
        "a new rate",
        [1],
        |number| keys(&new(number)),
        ask,
        count,
    )]
}
