//! The calls that both languages know by the same names; results are equal texts.

use tidegate::Redis;
use tidegate::limiter::RateType;
use tidegate::lock::LockError;

use crate::*;

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
            Ok(None) => self.limiter(call, name, numbers).await,
            Ok(Some(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        answer.or_else(|error| {
            let lock = error.downcast_ref::<LockError>().map(LockError::kind);
            let limiter = error.downcast_ref::<LimiterError>().map(LimiterError::kind);
            match (lock, limiter) {
                (Some(LockErrorKind::NotHeld), _) => Ok("not held".to_owned()),
                (_, Some(LimiterErrorKind::UnknownLimiter)) => Ok("no rate".to_owned()),
                _ => Err(error),
            }
        })
    }

    async fn limiter(&self, call: &str, name: &str, numbers: &[u64]) -> Result<String, Failure> {
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
            "setRate" => ok(limiter.set_rate(rate()).await?),
            "updateRate" => {
                let exists = limiter.exists().await?;
                if exists {
                    limiter.set_rate(rate()).await?;
                }
                yes(exists)
            }
            "tryAcquire" => yes(limiter.try_acquire(numbers[0]).await?),
            "tryAcquireFor" => {
                let granted = limiter.try_acquire_for(numbers[0], millis(numbers[1]));
                yes(granted.await?)
            }
            "acquire" => ok(limiter.acquire(numbers[0]).await?),
            "available" => limiter.available_permits().await?.to_string(),
            "release" => ok(limiter.release(numbers[0]).await?),
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
    ) -> Result<Option<String>, Failure> {
        let lock = Lock::new(&self.redis, name).lease(millis(10_000));
        let lock = lock.by(&self.owner);
        let held = self.held.entry(name.to_owned()).or_default();
        let taken = match call {
            "lock" => Some(lock.lock().await?),
            "lockFor" => Some(lock.lock_for(millis(numbers[0])).await?),
            "tryLock" => lock.try_lock().await?,
            "tryLockFor" => lock.try_lock_for(millis(numbers[0])).await?,
            "tryLockForLease" => {
                let taken = lock.lock_for(millis(numbers[1]));
                let taken = tokio::time::timeout(millis(numbers[0]), taken).await;
                taken.ok().transpose()?
            }
            "unlock" => {
                return Ok(Some(match held.pop() {
                    Some(guard) => ok(guard.release().await?),
                    None => "not held".to_owned(),
                }));
            }
            "forceUnlock" => return Ok(Some(yes(lock.force_unlock().await?))),
            "isLocked" => return Ok(Some(yes(lock.is_locked().await?))),
            "count" => return Ok(Some(lock.hold_count(&self.owner).await?.to_string())),
            _ => return Ok(None),
        };
        let is_taken = taken.is_some();
        held.extend(taken);
        Ok(Some(match call {
            "lock" | "lockFor" => ok(()),
            _ => yes(is_taken),
        }))
    }
}

/// Makes a call: "from until call name numbers result", times in microseconds since 1970.
pub(crate) async fn logged(calls: &mut Calls, call: &str, name: &str, numbers: &[u64]) -> String {
    let from = unix_micros();
    let result = calls.call(call, name, numbers).await;
    let result = result.unwrap_or_else(|error| format!("error {error}"));
    let until = unix_micros();
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    let numbers = numbers.join(",");
    format!("{from}\t{until}\t{call}\t{name}\t{numbers}\t{result}")
}

fn ok<T>(_: T) -> String {
    "ok".to_owned()
}

fn yes(answer: bool) -> String {
    if answer { "yes" } else { "no" }.to_owned()
}
