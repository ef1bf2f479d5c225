//! A client as the Java one, on the same limiter.

use std::time::Duration;

use kit::limiter_monitor::Monitor;
use kit::random::Random;
use redis::Script;
use tidegate::limiter::{Rate, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::{connect, limiter};

/// What the Java client's third generation does, written anew from its description; by the server's
/// time.
const JAVA: &str = r"
local rate = redis.call('HGET', KEYS[1], 'rate')
local interval = redis.call('HGET', KEYS[1], 'interval')
local kind = redis.call('HGET', KEYS[1], 'type')
assert(rate and interval and kind == '0', 'no rate')
rate, interval = tonumber(rate), tonumber(interval)
local n, id = tonumber(ARGV[1]), ARGV[2]
assert(n <= rate, 'more than the rate')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function used(members)
  local sum = 0
  for _, member in ipairs(members) do
    local _, permits = struct.unpack('Bc0I', member)
    sum = sum + permits
  end
  return sum
end
local left = redis.call('GET', KEYS[2])
if left then
  left = tonumber(left)
  local gone = used(redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval))
  if gone > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], 0, now - interval)
    if left + gone > rate then
      left = rate - used(redis.call('ZRANGE', KEYS[3], 0, -1))
    else
      left = left + gone
    end
    redis.call('SET', KEYS[2], left)
  end
  if left < n then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    return 3 + interval - (now - tonumber(first[2]))
  end
else
  redis.call('SET', KEYS[2], rate)
end
redis.call('ZADD', KEYS[3], now, struct.pack('Bc0I', #id, id, n))
redis.call('DECRBY', KEYS[2], n)
local life = redis.call('PTTL', KEYS[1])
if life > 0 then
  redis.call('PEXPIRE', KEYS[2], life)
  redis.call('PEXPIRE', KEYS[3], life)
end
return false
";

pub(crate) struct Java {
    script: Script,
    connection: redis::aio::MultiplexedConnection,
}

impl Java {
    pub(crate) async fn connect(server: &kit::Redis) -> Self {
        Self {
            script: Script::new(JAVA),
            connection: kit::async_connection(&server.url).await,
        }
    }

    /// Whether permits were granted, or the milliseconds until one should ask again.
    pub(crate) async fn acquire(&mut self, permits: u64, random: &mut Random) -> Result<(), u64> {
        let id: Vec<u8> = (0..16).map(|_| random.below(256) as u8).collect();
        let mut call = self.script.prepare_invoke();
        call.key("partner")
            .key("{partner}:value")
            .key("{partner}:permits");
        call.arg(permits).arg(id);
        let wait: Option<u64> = call
            .invoke_async(&mut self.connection)
            .await
            .expect("no error");
        wait.map_or(Ok(()), Err)
    }
}

/// Both ask at random, waiting as they are told to: together never more than the rate, and neither
/// of them starves.
#[tokio::test]
async fn together_never_more_than_the_rate() {
    for (rate, interval) in [(1, 60), (5, 50), (10, 200), (50, 300)] {
        let server = kit::Redis::start();
        let redis = connect(&server).await;
        let limiter = limiter(&redis, rate, interval).await;
        let monitor = Monitor::start(&server.url);
        let until = Instant::now() + Duration::from_secs(2);
        // A reservation comes before all that ask later: only without any does everybody have a
        // chance.
        let fair_until = Instant::now() + Duration::from_secs(1);
        let most = u64::min(rate, 4);
        let ours = (0..3).map(|seed| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut random = Random::new(seed + 10);
                let mut granted = 0;
                while Instant::now() < until {
                    let permits = 1 + random.below(most);
                    let short = Duration::from_millis(interval + random.below(interval));
                    let asked = match random.below(4) {
                        0 | 1 => limiter.try_acquire(permits).await,
                        2 if Instant::now() < fair_until => {
                            let fair = limiter.clone().fair();
                            fair.try_acquire_for(permits, short).await
                        }
                        _ => limiter.try_acquire_for(permits, short).await,
                    };
                    granted += u64::from(asked.expect("an answer"));
                    sleep(Duration::from_millis(random.below(interval / 2))).await;
                }
                granted
            })
        });
        let ours: Vec<_> = ours.collect();
        let mut theirs = Vec::new();
        for seed in 0..3 {
            let mut java = Java::connect(&server).await;
            theirs.push(tokio::spawn(async move {
                let mut random = Random::new(seed + 20);
                let mut granted = 0;
                while Instant::now() < until {
                    let permits = 1 + random.below(most);
                    match java.acquire(permits, &mut random).await {
                        Ok(()) => {
                            granted += 1;
                            sleep(Duration::from_millis(random.below(interval / 2))).await;
                        }
                        Err(wait) => sleep(Duration::from_millis(wait)).await,
                    }
                }
                granted
            }));
        }
        let (mut by_us, mut by_them) = (0, 0);
        for task in ours {
            by_us += task.await.expect("no panic");
        }
        for task in theirs {
            by_them += task.await.expect("no panic");
        }
        let grants = &monitor.grants(&server.url)["{partner}:permits"];
        grants.assert_stamps(false);
        let fullest = grants.fullest(interval * 1_000);
        println!("{rate}/{interval}: {by_us} and {by_them}, at most {fullest}");
        assert!(fullest <= rate, "{fullest} of {rate} in {interval} ms");
        // Of a single permit, who asks first gets it, and they come back 3 ms later than told.
        let is_shared = by_them > 0 || rate == 1;
        assert!(by_us > 0 && is_shared, "{by_us} and {by_them}");
    }
}

/// What they grant while we are idle counts, and they get all that there is: nothing of it expires.
#[tokio::test]
async fn they_get_all_that_there_is_while_we_are_idle() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = RateLimiter::new(&redis, "partner").shared_with_redisson();
    let rate = Rate::overall(10, Duration::from_millis(400)).expect("valid");
    limiter.try_set_rate(rate).await.expect("is set");
    let mut java = Java::connect(&server).await;
    let mut random = Random::new(1);
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let began = Instant::now();
    let mut late = 0;
    while began.elapsed() < Duration::from_millis(3_600) {
        match java.acquire(1, &mut random).await {
            Ok(()) if began.elapsed() > Duration::from_millis(2_000) => late += 1,
            Ok(()) => {}
            Err(wait) => sleep(Duration::from_millis(wait)).await,
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(late >= 20, "{late} of 40 in the last four intervals");
}

/// A value that is too low for what is granted, as such a loss leaves it, is mended by us when all
/// has left.
#[tokio::test]
async fn a_value_that_is_too_low_is_mended() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 10, 500).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let _: () =
        redis::Commands::set(&mut server.connection(), "{partner}:value", 0).expect("is set");
    // Who asks for one at a time, now and then, is never denied, and still it is seen.
    for _ in 0..4 {
        sleep(Duration::from_millis(600)).await;
        assert!(limiter.try_acquire(1).await.expect("an answer"));
    }
    assert_eq!(limiter.available_permits().await.expect("an answer"), 9);
}
