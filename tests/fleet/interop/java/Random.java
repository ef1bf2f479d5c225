import java.util.SplittableRandom;

/** Threads that make calls at random, and log each of them. */
final class Random {
  /** Longer than any pause of a busy machine, and what those who are killed cost the others. */
  private static final int LEASE = 10_000;

  private final Calls calls;
  private final SplittableRandom random;
  private final int thread;
  private int left;

  private Random(Calls calls, int seed, int thread, int left) {
    this.calls = calls;
    this.random = new SplittableRandom(seed * 1_000L + thread);
    this.thread = thread;
    this.left = left;
  }

  static void run(Calls calls, int seed, int threads, int calledByEach) throws Exception {
    Thread[] all = new Thread[threads];
    for (int at = 0; at < threads; at++) {
      Random one = new Random(calls, seed, at, calledByEach);
      all[at] = new Thread(one::run);
      all[at].start();
    }
    for (Thread thread : all) {
      thread.join();
    }
  }

  private void run() {
    while (left > 0) {
      switch (random.nextInt(8)) {
        case 0, 1, 2 -> lock("plain" + random.nextInt(2));
        case 3 -> lock("{plain}2");
        case 4 -> wildLock(random.nextBoolean() ? "wild" : "{wild}1");
        case 5, 6 -> limiter(new String[] {"all", "{all}1", "each"}[random.nextInt(3)]);
        default -> wildLimiter(random.nextBoolean() ? "free" : "{free}1");
      }
    }
  }

  /** A lock that nobody loses: at times taken again by its holder. */
  private void lock(String name) {
    String taken =
        switch (random.nextInt(5)) {
          case 0 -> call("lock", name);
          case 1 -> call("lockFor", name, LEASE);
          case 2 -> call("tryLock", name);
          case 3 -> call("tryLockFor", name, 1 + random.nextInt(100));
          default -> call("tryLockForLease", name, 1 + random.nextInt(100), LEASE);
        };
    if (taken.equals("no")) {
      return;
    }
    int depth = 1;
    while (random.nextInt(4) == 0 && depth < 3) {
      call("lock", name);
      depth++;
    }
    call("count", name);
    Contend.pause(random.nextInt(1_000));
    for (; depth > 0; depth--) {
      call("unlock", name);
    }
  }

  /** One that is lost at times: its lease ends, or somebody takes it away. */
  private void wildLock(String name) {
    switch (random.nextInt(4)) {
      case 0 -> call("forceUnlock", name);
      case 1 -> call("isLocked", name);
      default -> {
        if (!call("tryLockForLease", name, 50, 10 + random.nextInt(30)).equals("no")) {
          Contend.pause(random.nextInt(40_000));
          call("unlock", name);
        }
      }
    }
  }

  private void limiter(String name) {
    int permits = 1 + random.nextInt(3);
    switch (random.nextInt(6)) {
      case 0 -> call("available", name);
      case 1 -> call("tryAcquireFor", name, permits, random.nextInt(60));
      case 2 -> call("acquire", name, permits);
      default -> call("tryAcquire", name, permits);
    }
  }

  /** One whose rate comes and goes. */
  private void wildLimiter(String name) {
    int rate = 3 + random.nextInt(20);
    int interval = 20 + random.nextInt(100);
    switch (random.nextInt(12)) {
      case 0, 1 -> call("trySetRate", name, random.nextInt(2), rate, interval);
      case 2 -> call("setRate", name, random.nextInt(2), rate, interval);
      case 3 -> call("updateRate", name, random.nextInt(2), rate, interval);
      case 4 -> call("delete", name);
      case 5 -> call("expire", name, 1 + random.nextInt(100));
      case 6 -> call("release", name, 1 + random.nextInt(3));
      case 7 -> call("available", name);
      case 8 -> call("tryAcquireFor", name, 1 + random.nextInt(3), random.nextInt(60));
      default -> call("tryAcquire", name, 1 + random.nextInt(3));
    }
  }

  private String call(String call, String name, long... numbers) {
    left--;
    String line = Driver.logged(calls, call, name, numbers);
    Driver.say(thread + "\t" + line);
    return line.substring(line.lastIndexOf('\t') + 1);
  }
}
