//! Takes that begin at random instants, whether or not earlier ones are answered.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, Key, Quota, RedisStore, Rule, Store, Take};
use tokio::time::Instant;

use crate::Result;

/// So many takes a second for so long, of which this many begin together. Returns the median and
/// the 99th percentile of the time from the instant when a take should begin to its decision, in
/// microseconds.
pub fn run(redis: &str, rate: u64, seconds: u64, together: usize) -> Result<[f64; 2]> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = RedisStore::connect(redis)
            .await?
            .timeout(Duration::from_secs(1));
        let quota = Quota::new(Duration::from_secs(7 * 24 * 3_600), 1_000_000)?;
        let rule = Arc::new(Rule::new("open", [quota])?.with_algorithm(Algorithm::Gcra));
        let (began, mut next, mut random) =
            (Instant::now(), Duration::ZERO, 0x2545_f491_4f6c_dd1d_u64);
        let mut asked = Vec::new();
        while next < Duration::from_secs(seconds) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
            next += Duration::from_secs_f64(-(1.0 - uniform).ln() * together as f64 / rate as f64);
            let at = began + next;
            // The timer is too coarse for less than a millisecond.
            while Instant::now() < at {
                match at - Instant::now() {
                    left if left > Duration::from_millis(2) => tokio::time::sleep(left / 2).await,
                    _ => tokio::task::yield_now().await,
                }
            }
            for place in 0..together {
                let key = Key::from(format!("{}", (random as usize + place) % 100_000).as_str());
                let (store, take) = (store.clone(), Take::new(Arc::clone(&rule), key));
                asked.push(tokio::spawn(async move {
                    let answer = store.take(&take).await;
                    answer.map(|_| at.elapsed().as_secs_f64() * 1e6)
                }));
            }
        }
        let mut times = Vec::with_capacity(asked.len());
        for asked in asked {
            times.push(asked.await??);
        }
        times.sort_unstable_by(f64::total_cmp);
        Ok([50, 99].map(|percent| times[(times.len() - 1) * percent / 100]))
    })
}
