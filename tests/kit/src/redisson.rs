//! A client of Redisson, on the same limiter.

use redis::Script;

use crate::random::Random;

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

pub struct Java {
    script: Script,
    connection: redis::aio::MultiplexedConnection,
}

impl Java {
    pub async fn connect(server: &crate::Redis) -> Self {
        Self {
            script: Script::new(JAVA),
            connection: crate::async_connection(&server.url).await,
        }
    }

    /// Whether permits were granted, or the milliseconds until one should ask again.
    pub async fn acquire(&mut self, permits: u64, random: &mut Random) -> Result<(), u64> {
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

    /// Permits that are free.
    pub async fn takes(&mut self, permits: u64, random: &mut Random) {
        let granted = self.acquire(permits, random).await;
        assert_eq!(granted, Ok(()), "{permits} are free");
    }
}
