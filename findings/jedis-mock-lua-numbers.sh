#!/usr/bin/env bash
# jedis-mock: string.format of large whole numbers is not that of Redis.
#
# Expected: "%.0f" and "%d" write all digits of a whole number up to 2^53.
# Seen: "%.0f" of microseconds since 1970 is written with an exponent; "%d" keeps the low 32 bits.
# With: com.github.fppt:jedis-mock 1.1.18 (Maven); 27 November 2026
# Matters: a limiter's script that writes a clock or a score this way stores wrong numbers without
#   an error, in tests alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >pom.xml <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>com.github.fppt</groupId><artifactId>jedis-mock</artifactId>
      <version>1.1.18</version></dependency>
  </dependencies>
</project>
END
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
  -DoutputDirectory=jars &>log || { cat log; exit 2; }
cat >Ask.java <<'END'
import com.github.fppt.jedismock.RedisServer;
import java.io.*;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

class Ask {
  public static void main(String[] none) throws IOException {
    RedisServer server = RedisServer.newRedisServer().start();
    try (Socket socket = new Socket(server.getHost(), server.getBindPort())) {
      OutputStream out = socket.getOutputStream();
      var in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
      for (String value : new String[] {"'%.0f', 1795141794256789", "'%d', 2^53", "'%d', 7"}) {
        String script = "return string.format(" + value + ")";
        out.write(("*3\r\n$4\r\nEVAL\r\n$" + script.length() + "\r\n" + script + "\r\n$1\r\n0\r\n")
            .getBytes(StandardCharsets.US_ASCII));
        String length = in.readLine();
        System.out.println(value + " -> " + (length.startsWith("$") ? in.readLine() : length));
      }
    }
    server.stop();
  }
}
END
java -cp "jars/*" Ask.java 2>/dev/null | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
'%.0f', 1795141794256789 -> 1.795141794256789E15
'%d', 2^53 -> 0
'%d', 7 -> 7
END
