import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * The limiter of any release of Redisson since 3.10: only calls that all of them have. It is started
 * and spoken to as the driver of `java/`, with the modes "serve" and "saturate".
 */
public final class Driver {
  private static final TimeUnit MILLIS = TimeUnit.MILLISECONDS;

  private Driver() {}

  public static void main(String[] args) throws Exception {
    Config config = new Config();
    // The codecs that early releases have by default do not run on a recent Java.
    config.setCodec(new StringCodec());
    config.useSingleServer().setAddress(args[1]);
    RedissonClient redisson = Redisson.create(config);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    // Everything is loaded before the clocks run.
    call(redisson.getRateLimiter("warm"), "tryAcquire", 1, 0);
    System.out.println("ready");
    if (args[0].equals("serve")) {
      serve(redisson, input);
    } else {
      input.readLine();
      saturate(redisson.getRateLimiter(args[2]), Integer.parseInt(args[3]), Integer.parseInt(args[4]));
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  /** Lines "call name number number" until the input ends; the answers are lines, too. */
  private static void serve(RedissonClient redisson, BufferedReader input) throws Exception {
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      RRateLimiter limiter = redisson.getRateLimiter(words[1]);
      long begin = System.nanoTime();
      String answer =
          call(limiter, words[0], Long.parseLong(words[2]), Long.parseLong(words[3]));
      System.out.println("answer " + (System.nanoTime() - begin) / 1_000_000 + " " + answer);
    }
  }

  /** What goes wrong is an answer. */
  private static String call(RRateLimiter limiter, String call, long first, long second) {
    try {
      return ""
          + switch (call) {
            case "trySetRate" ->
                limiter.trySetRate(
                    RateType.OVERALL, first, second, RateIntervalUnit.MILLISECONDS);
            case "tryAcquire" -> limiter.tryAcquire(first);
            // A time-out of 0 waits for ever in 3.10.
            default -> limiter.tryAcquire(first, Math.max(second, 1), MILLIS);
          };
    } catch (Exception error) {
      return "error " + error.getMessage();
    }
  }

  /** Threads that ask for more than there is, for a while. */
  private static void saturate(RRateLimiter limiter, int threads, int millis) throws Exception {
    AtomicLong granted = new AtomicLong();
    AtomicInteger errors = new AtomicInteger();
    AtomicReference<String> first = new AtomicReference<>("none");
    long end = System.nanoTime() + MILLIS.toNanos(millis);
    Thread[] all = new Thread[threads];
    for (int at = 0; at < threads; at++) {
      all[at] =
          new Thread(
              () -> {
                for (long left = millis; left > 0; left = (end - System.nanoTime()) / 1_000_000) {
                  String answer = call(limiter, "tryAcquireFor", 1, left);
                  if (answer.equals("true")) {
                    granted.incrementAndGet();
                  } else if (answer.startsWith("error")) {
                    errors.incrementAndGet();
                    first.compareAndSet("none", answer.replaceAll("\\s+", " "));
                  }
                }
              });
      all[at].start();
    }
    for (Thread thread : all) {
      thread.join(millis + 5_000);
    }
    System.out.println("granted " + granted);
    System.out.println("errors " + errors);
    System.out.println("first " + first);
  }
}
