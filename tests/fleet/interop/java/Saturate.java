import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/** Threads that ask a limiter for more than there is, for a while: how much they were granted. */
final class Saturate {
  private Saturate() {}

  static void run(RedissonClient redisson, String name, int threads, int millis) throws Exception {
    AtomicLong granted = new AtomicLong();
    long end = System.nanoTime() + millis * 1_000_000L;
    Thread[] all = new Thread[threads];
    for (int at = 0; at < threads; at++) {
      all[at] =
          new Thread(
              () -> {
                RRateLimiter limiter = redisson.getRateLimiter(name);
                for (long left = end - System.nanoTime();
                    left > 0;
                    left = end - System.nanoTime()) {
                  if (limiter.tryAcquire(1, Duration.ofNanos(left))) {
                    granted.incrementAndGet();
                  }
                }
              });
      all[at].start();
    }
    for (Thread thread : all) {
      thread.join();
    }
    Driver.say("granted " + granted);
  }
}
