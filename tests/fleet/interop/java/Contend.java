import java.util.concurrent.atomic.AtomicLong;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Threads that take one lock again and again for a while: how often, and the longest wait. */
final class Contend {
  private Contend() {}

  static void run(RedissonClient redisson, String name, int threads, int millis, int holdMicros)
      throws Exception {
    AtomicLong holds = new AtomicLong();
    AtomicLong longest = new AtomicLong();
    long end = System.nanoTime() + millis * 1_000_000L;
    Thread[] all = new Thread[threads];
    for (int at = 0; at < threads; at++) {
      all[at] =
          new Thread(
              () -> {
                RLock lock = redisson.getLock(name);
                while (System.nanoTime() < end) {
                  long asked = System.nanoTime();
                  lock.lock();
                  long waited = (System.nanoTime() - asked) / 1_000;
                  longest.accumulateAndGet(waited, Math::max);
                  holds.incrementAndGet();
                  pause(holdMicros);
                  lock.unlock();
                }
              });
      all[at].start();
    }
    for (Thread thread : all) {
      thread.join();
    }
    Driver.say("holds " + holds);
    Driver.say("longest " + longest);
  }

  static void pause(int micros) {
    if (micros > 0) {
      java.util.concurrent.locks.LockSupport.parkNanos(micros * 1_000L);
    }
  }
}
