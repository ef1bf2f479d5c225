//! The calls that both languages know by the same names; results are equal texts.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tidegate::Redis;
use tidegate::limiter::{
    LimiterBackend, LimiterError, LimiterErrorKind, Rate, RateLimiter, RateType,
};
use tidegate::lock::{Lock, LockError, LockErrorKind, LockGuard, Owner};
use tidegate::test_util::ManualClock;

/// What a thread of Java is: an owner, and the holds that it has.
pub(crate) struct Calls {
    redis: Redis,
    owner: Owner,
    held: HashMap<String, Vec<LockGuard>>,
    /// What limiters go by, instead of the server's.
    clock: Option<ManualClock>,
}

/// What is no answer.
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Calls {
    pub(crate) fn new(redis: &Redis) -> Self {
        Self {
            redis: redis.clone(),
            owner: Owner::new(),
            held: HashMap::new(),
            clock: None,
        }
    }

    pub(crate) fn with_clock(redis: &Redis, clock: ManualClock) -> Self {
        Self {
            clock: Some(clock),
            ..Self::new(redis)
        }
    }

    /// "no rate" and "not held" are answers.
    pub(crate) async fn call(
        &mut self,
        call: &str,
        name: &str,
        numbers: &[u64],
    ) -> Result<String, Failure> {
        let answer = match self.lock(call, name, numbers).await {
            Some(answer) => answer.or_else(|error| match error.kind() {
                LockErrorKind::NotHeld => Ok("not held".to_owned()),
                _ => Err(error),
            })?,
            None => {
                self.limiter(call, name, numbers)
                    .await
                    .or_else(|error| match error.kind() {
                        LimiterErrorKind::UnknownLimiter => Ok("no rate".to_owned()),
                        _ => Err(error),
                    })?
            }
        };
        Ok(answer)
    }

    async fn limiter(
        &self,
        call: &str,
        name: &str,
        numbers: &[u64],
    ) -> Result<String, LimiterError> {
        // Java clients count here, too.
        let on = match &self.clock {
            Some(clock) => LimiterBackend::redis_with_clock(&self.redis, clock.clone()),
            None => (&self.redis).into(),
        };
        let limiter = RateLimiter::new(on, name).shared_with_redisson();
        let rate = || {
            let kind = match numbers[0] {
                0 => RateType::Overall,
                _ => RateType::PerClient,
            };
            Rate::new(kind, numbers[1], millis(numbers[2])).expect("valid")
        };
        Ok(match call {
            "trySetRate" => yes(limiter.try_set_rate(rate()).await?),
            "setRate" => {
                limiter.set_rate(rate()).await?;
                ok()
            }
            "updateRate" => {
                let exists = limiter.exists().await?;
                if exists {
                    limiter.set_rate(rate()).await?;
                }
                yes(exists)
            }
            "tryAcquire" => yes(limiter.try_acquire(numbers[0]).await?),
            "tryAcquireFor" => yes(limiter
                .try_acquire_for(numbers[0], millis(numbers[1]))
                .await?),
            "acquire" => {
                limiter.acquire(numbers[0]).await?;
                ok()
            }
            "available" => limiter.available_permits().await?.to_string(),
            "release" => {
                limiter.release(numbers[0]).await?;
                ok()
            }
            "expire" => yes(limiter.expire(millis(numbers[0])).await?),
            "delete" => yes(limiter.delete().await?),
            _ => panic!("{call}"),
        })
    }

    /// `None` if the call is not one of a lock's.
    async fn lock(
        &mut self,
        call: &str,
        name: &str,
        numbers: &[u64],
    ) -> Option<Result<String, LockError>> {
        let lock = Lock::new(&self.redis, name)
            .lease(Duration::from_secs(3))
            .by(&self.owner);
        let taken = match call {
            "lock" => lock.lock().await.map(Some),
            "lockFor" => lock.lock_for(millis(numbers[0])).await.map(Some),
            "tryLock" => lock.try_lock().await,
            "tryLockFor" => lock.try_lock_for(millis(numbers[0])).await,
            "tryLockForLease" => {
                let wait = millis(numbers[0]);
                match tokio::time::timeout(wait, lock.lock_for(millis(numbers[1]))).await {
                    Ok(guard) => guard.map(Some),
                    Err(_) => Ok(None),
                }
            }
            "unlock" => return Some(self.unlock(name).await),
            "forceUnlock" => return Some(lock.force_unlock().await.map(yes)),
            "isLocked" => return Some(lock.is_locked().await.map(yes)),
            "count" => {
                let count = lock.hold_count(&self.owner).await;
                return Some(count.map(|count| count.to_string()));
            }
            _ => return None,
        };
        let answer = taken.map(|guard| match guard {
            Some(guard) => {
                self.held.entry(name.to_owned()).or_default().push(guard);
                if call.starts_with("try") {
                    yes(true)
                } else {
                    ok()
                }
            }
            None => yes(false),
        });
        Some(answer)
    }

    async fn unlock(&mut self, name: &str) -> Result<String, LockError> {
        match self.held.get_mut(name).and_then(Vec::pop) {
            Some(guard) => guard.release().await.map(|()| ok()),
            None => Ok("not held".to_owned()),
        }
    }
}

/// Makes a call: "from until call name numbers result", times in microseconds since 1970.
pub(crate) async fn logged(calls: &mut Calls, call: &str, name: &str, numbers: &[u64]) -> String {
    let from = micros();
    let result = calls.call(call, name, numbers).await;
    let result = result.unwrap_or_else(|error| format!("error {error}"));
    let until = micros();
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    let numbers = numbers.join(",");
    format!("{from}\t{until}\t{call}\t{name}\t{numbers}\t{result}")
}

pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.expect("after 1970").as_micros();
    u64::try_from(micros).expect("before the year 500,000")
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn ok() -> String {
    "ok".to_owned()
}

fn yes(answer: bool) -> String {
    if answer { "yes" } else { "no" }.to_owned()
}
