import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One process of Java clients, played as the Rust test says: a mode and the server's address, and
 * what the mode wants. It prints "ready", begins with the first line on its input, and prints its
 * results, one line each.
 */
public final class Driver {
  private Driver() {}

  public static void main(String[] args) throws Exception {
    Config config = new Config();
    config.setLockWatchdogTimeout(10_000);
    String[] parts = args[1].split("://|/");
    String[] nodes = parts[1].split(",");
    String[] addresses = Arrays.stream(nodes).map(node -> "redis://" + node).toArray(String[]::new);
    switch (parts[0]) {
      case "redis-cluster" -> config.useClusterServers().addNodeAddress(addresses);
      case "redis-sentinel" ->
          config.useSentinelServers().setMasterName(parts[2]).addSentinelAddress(addresses);
      default -> config.useSingleServer().setAddress(args[1]);
    }
    RedissonClient redisson = Redisson.create(config);
    Calls calls = new Calls(redisson);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    // Everything is loaded before the clocks run.
    calls.call("lock", "app:warm", new long[0]);
    calls.call("unlock", "app:warm", new long[0]);
    calls.call("available", "app:warm", new long[0]);
    say("ready");
    switch (args[0]) {
      case "serve" -> serve(calls, input);
      case "contend" -> {
        input.readLine();
        Contend.run(redisson, args[2], number(args[3]), number(args[4]), number(args[5]));
      }
      case "saturate" -> {
        input.readLine();
        Saturate.run(redisson, args[2], number(args[3]), number(args[4]));
      }
      case "random" -> {
        input.readLine();
        Random.run(calls, number(args[2]), number(args[3]), number(args[4]));
      }
      default -> throw new IllegalArgumentException(args[0]);
    }
    // Not waiting for the pools of an idle client.
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  /** Lines "thread call name numbers..." until the input ends; calls of a thread run in order. */
  private static void serve(Calls calls, BufferedReader input) throws Exception {
    Map<String, ExecutorService> threads = new HashMap<>();
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      threads
          .computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
          .execute(() -> say(words[0] + "\t" + logged(calls, words[1], words[2], rest(words))));
    }
  }

  /** Makes a call: "from until call name numbers result", times in microseconds since 1970. */
  static String logged(Calls calls, String call, String name, long... numbers) {
    long from = micros();
    String result;
    try {
      result = calls.call(call, name, numbers);
    } catch (Exception error) {
      result = "error " + error;
    }
    long until = micros();
    StringBuilder text = new StringBuilder();
    for (long number : numbers) {
      text.append(text.isEmpty() ? "" : ",").append(number);
    }
    return String.join(
        "\t", "" + from, "" + until, call, name, text, result.replaceAll("\\s+", " "));
  }

  private static long[] rest(String[] words) {
    long[] numbers = new long[words.length - 3];
    for (int at = 0; at < numbers.length; at++) {
      numbers[at] = Long.parseLong(words[at + 3]);
    }
    return numbers;
  }

  static long micros() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }

  static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static int number(String text) {
    return Integer.parseInt(text);
  }
}
