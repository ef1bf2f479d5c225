#!/usr/bin/env bash
# Bucket4j: a bucket of five gives six tokens to who waits, and never to who only asks.
#
# Expected: an IllegalArgumentException for more than the capacity, as for zero.
# Seen: tryConsume answers false, its probe tells a wait of Long.MAX_VALUE ns (292 years), and
#   asBlocking().tryConsume of the same six succeeds as soon as the sixth was refilled.
# With: com.bucket4j:bucket4j_jdk17-core 8.14.0; 27 November 2026
# Matters: a Retry-After that is computed from the probe is a number of ten digits, for a request
#   that a waiting caller gets at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -DoutputDirectory=. \
  -Dartifact=com.bucket4j:bucket4j_jdk17-core:8.14.0 &>log || { cat log; exit 2; }
cat >Ask.java <<'END'
import io.github.bucket4j.Bucket;
import java.time.Duration;

class Ask {
  static Bucket full() {
    return Bucket.builder()
        .addLimit(limit -> limit.capacity(5).refillGreedy(5, Duration.ofSeconds(10)))
        .build();
  }

  public static void main(String[] none) throws InterruptedException {
    try {
      full().tryConsume(0);
    } catch (IllegalArgumentException error) {
      System.out.println("0 of 5: IllegalArgumentException");
    }
    System.out.println("6 of 5: " + full().tryConsume(6));
    long wait = full().tryConsumeAndReturnRemaining(6).getNanosToWaitForRefill();
    System.out.println("wait for 6 of 5: Long.MAX_VALUE is " + (wait == Long.MAX_VALUE));
    Bucket bucket = full();
    long began = System.nanoTime();
    boolean granted = bucket.asBlocking().tryConsume(6, Duration.ofSeconds(30));
    long seconds = Math.round((System.nanoTime() - began) / 1e9);
    System.out.println("6 of 5, asBlocking() and 30 s: " + granted + " after " + seconds + " s");
  }
}
END
java -cp "$(echo *.jar)" Ask.java | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
0 of 5: IllegalArgumentException
6 of 5: false
wait for 6 of 5: Long.MAX_VALUE is true
6 of 5, asBlocking() and 30 s: true after 2 s
END
