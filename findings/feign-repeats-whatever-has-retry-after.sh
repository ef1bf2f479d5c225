#!/usr/bin/env bash
# Feign repeats whatever has a Retry-After four times, POST and 401 too, and never waits so long.
#
# Expected: as the field is named, a GET that got 429 or 503 is repeated after the seconds that it
#   says, or not at all where they are many; POST and 401 are sent once.
# Seen: with the field each of them is sent five times, a second apart where it says a second or
#   more (a day, too), at once where it says 0. Without the field each is sent once.
# With: io.github.openfeign:feign-core 13.6; 29 November 2026
# Matters: whoever tells clients when to come back is asked five times in four seconds by one that
#   is denied for a day, and once if nothing is told. `.retryer(Retryer.NEVER_RETRY)` ends it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -DoutputDirectory=. \
  -Dartifact=io.github.openfeign:feign-core:13.6 &>log || { cat log; exit 2; }
cat >Ask.java <<'END'
import com.sun.net.httpserver.HttpServer;
import feign.*;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.*;
import java.util.concurrent.*;

class Ask {
  interface Api {
    @RequestLine("GET /")
    String get();

    @RequestLine("POST /")
    String post(String body);
  }

  static String ask(String method, int status, String field) throws Exception {
    List<Long> arrivals = Collections.synchronizedList(new ArrayList<>());
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", exchange -> {
      arrivals.add(System.nanoTime());
      exchange.getRequestBody().readAllBytes();
      if (field != null) exchange.getResponseHeaders().set("Retry-After", field);
      exchange.sendResponseHeaders(status, -1);
      exchange.close();
    });
    server.start();
    String error = "none";
    try {
      String address = "http://127.0.0.1:" + server.getAddress().getPort();
      Api api = Feign.builder().target(Api.class, address);
      if (method.equals("GET")) api.get(); else api.post("a");
    } catch (FeignException failed) {
      error = failed.getClass().getSimpleName();
    }
    server.stop(0);
    double seconds = (arrivals.get(arrivals.size() - 1) - arrivals.get(0)) / 1e9;
    return String.format("%s, %d, %s: %d sent%s, %s", method, status,
        field == null ? "no field" : "retry-after: " + field, arrivals.size(),
        arrivals.size() == 1 ? "" : seconds < 2 ? " at once" : seconds < 12 ? " in 4 s" : " later",
        error);
  }

  public static void main(String[] none) throws Exception {
    Object[][] forms = {
      {"GET", 429, null}, {"GET", 429, "1"}, {"GET", 429, "86400"}, {"GET", 429, "0"},
      {"POST", 429, "60"}, {"POST", 429, null}, {"GET", 401, "60"}, {"GET", 401, null},
      {"POST", 503, "60"}, {"POST", 503, null},
    };
    ask("GET", 429, "0"); // loads the classes
    ExecutorService each = Executors.newFixedThreadPool(forms.length);
    List<Future<String>> lines = new ArrayList<>();
    for (Object[] form : forms)
      lines.add(each.submit(() -> ask((String) form[0], (Integer) form[1], (String) form[2])));
    for (Future<String> line : lines) System.out.println(line.get());
    each.shutdown();
  }
}
END
java -cp "$(echo *.jar)" Ask.java | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
GET, 429, no field: 1 sent, TooManyRequests
GET, 429, retry-after: 1: 5 sent in 4 s, RetryableException
GET, 429, retry-after: 86400: 5 sent in 4 s, RetryableException
GET, 429, retry-after: 0: 5 sent at once, RetryableException
POST, 429, retry-after: 60: 5 sent in 4 s, RetryableException
POST, 429, no field: 1 sent, TooManyRequests
GET, 401, retry-after: 60: 5 sent in 4 s, RetryableException
GET, 401, no field: 1 sent, Unauthorized
POST, 503, retry-after: 60: 5 sent in 4 s, RetryableException
POST, 503, no field: 1 sent, ServiceUnavailable
END
