import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RLock;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

/** The calls that both languages know by the same names; results are equal texts. */
final class Calls {
  private final RedissonClient redisson;

  Calls(RedissonClient redisson) {
    this.redisson = redisson;
  }

  /** "no rate" and "not held" are answers; all else that goes wrong is thrown. */
  String call(String call, String name, long[] numbers) throws Exception {
    try {
      return isOfLimiter(call) ? limiter(call, name, numbers) : lock(call, name, numbers);
    } catch (IllegalMonitorStateException error) {
      return "not held";
    } catch (Exception error) {
      if (String.valueOf(error.getMessage()).contains("is not initialized")) {
        return "no rate";
      }
      throw error;
    }
  }

  private static boolean isOfLimiter(String call) {
    return switch (call) {
      case "trySetRate", "setRate", "updateRate", "tryAcquire", "tryAcquireFor", "acquire",
              "available", "release", "expire", "delete" ->
          true;
      default -> false;
    };
  }

  private String limiter(String call, String name, long[] numbers) throws Exception {
    RRateLimiter limiter = redisson.getRateLimiter(name);
    return switch (call) {
      case "trySetRate" ->
          yes(limiter.trySetRate(type(numbers), numbers[1], Duration.ofMillis(numbers[2])));
      case "setRate" -> {
        limiter.setRate(type(numbers), numbers[1], Duration.ofMillis(numbers[2]));
        yield "ok";
      }
      case "updateRate" -> update(limiter, numbers);
      case "tryAcquire" -> yes(limiter.tryAcquire(numbers[0]));
      case "tryAcquireFor" ->
          yes(limiter.tryAcquire(numbers[0], Duration.ofMillis(numbers[1])));
      case "acquire" -> {
        limiter.acquire(numbers[0]);
        yield "ok";
      }
      case "available" -> "" + limiter.availablePermits();
      case "release" -> {
        limiter.release(numbers[0]);
        yield "ok";
      }
      case "expire" -> yes(limiter.expire(Duration.ofMillis(numbers[0])));
      default -> yes(limiter.delete());
    };
  }

  /** Only releases of Redisson that are newer than 3.52 have it. */
  private static String update(RRateLimiter limiter, long[] numbers) throws Exception {
    try {
      Class<?> kind = Class.forName("org.redisson.api.ratelimiter.RateLimiterArgs");
      Object rate =
          kind.getMethod("of", RateType.class, long.class, Duration.class)
              .invoke(null, type(numbers), numbers[1], Duration.ofMillis(numbers[2]));
      Object updated = RRateLimiter.class.getMethod("updateRate", kind).invoke(limiter, rate);
      return yes((boolean) updated);
    } catch (ClassNotFoundException missing) {
      return "no such call";
    } catch (InvocationTargetException error) {
      throw (Exception) error.getCause();
    }
  }

  private String lock(String call, String name, long[] numbers) throws Exception {
    RLock lock = redisson.getLock(name);
    TimeUnit millis = TimeUnit.MILLISECONDS;
    return switch (call) {
      case "lock" -> {
        lock.lock();
        yield "ok";
      }
      case "lockFor" -> {
        lock.lock(numbers[0], millis);
        yield "ok";
      }
      case "lockOnce" -> lockOnce(name);
      case "tryLock" -> yes(lock.tryLock());
      case "tryLockFor" -> yes(lock.tryLock(numbers[0], millis));
      case "tryLockForLease" -> yes(lock.tryLock(numbers[0], numbers[1], millis));
      case "unlock" -> {
        lock.unlock();
        yield "ok";
      }
      case "forceUnlock" -> yes(lock.forceUnlock());
      case "isLocked" -> yes(lock.isLocked());
      case "count" -> "" + lock.getHoldCount();
      default -> throw new IllegalArgumentException(call);
    };
  }

  /** Only releases of Redisson that are newer than 3.52 have it. */
  private String lockOnce(String name) throws Exception {
    try {
      Object lock =
          RedissonClient.class.getMethod("getNonReentrantLock", String.class).invoke(redisson, name);
      ((RLock) lock).lock();
      return "ok";
    } catch (NoSuchMethodException missing) {
      return "no such call";
    }
  }

  private static RateType type(long[] numbers) {
    return numbers[0] == 0 ? RateType.OVERALL : RateType.PER_CLIENT;
  }

  private static String yes(boolean answer) {
    return answer ? "yes" : "no";
  }
}
