#!/usr/bin/env bash
# bucket4j-spring-boot-starter: two limits of a filter are one bucket where their keys are equal.
#
# Expected: with strategy: all, a limit of ten and one of four, both without a cache-key, admit
#   four, as when their cache-keys differ.
# Seen: five. The bucket is named by the filter's url and the key's value, so both limits share the
#   first one's ten, which each request takes from twice; the limit of four is unused.
# With: bucket4j-spring-boot-starter 0.12.10, Spring Boot 3.4.5; 29 November 2026
# Matters: a limit that is stricter under an execute-condition, or a second one for all, needs a
#   cache-key of its own value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.springframework.boot</groupId>
    <artifactId>spring-boot-starter-parent</artifactId>
    <version>3.4.5</version>
    <relativePath/>
  </parent>
  <groupId>a</groupId>
  <artifactId>a</artifactId>
  <version>1</version>
  <properties><java.version>17</java.version></properties>
  <dependencies>
    <dependency>
      <groupId>org.springframework.boot</groupId>
      <artifactId>spring-boot-starter-web</artifactId>
    </dependency>
    <dependency>
      <groupId>org.springframework.boot</groupId>
      <artifactId>spring-boot-starter-cache</artifactId>
    </dependency>
    <dependency>
      <groupId>org.springframework.boot</groupId>
      <artifactId>spring-boot-starter-validation</artifactId>
    </dependency>
    <dependency>
      <groupId>com.giffing.bucket4j.spring.boot.starter</groupId>
      <artifactId>bucket4j-spring-boot-starter</artifactId>
      <version>0.12.10</version>
    </dependency>
    <dependency>
      <groupId>com.github.ben-manes.caffeine</groupId>
      <artifactId>caffeine</artifactId>
    </dependency>
    <dependency>
      <groupId>com.github.ben-manes.caffeine</groupId>
      <artifactId>jcache</artifactId>
    </dependency>
  </dependencies>
</project>
END
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath \
  -Dmdep.outputFile=classpath &>log || { cat log; exit 2; }
cat >application.yml <<'END'
server: { port: 0 }
logging: { level: { root: error } }
spring:
  main: { banner-mode: "off" }
  cache:
    type: jcache
    cache-names: [ buckets ]
    jcache: { provider: com.github.benmanes.caffeine.jcache.spi.CaffeineCachingProvider }
bucket4j:
  enabled: true
  filters:
  - cache-name: buckets
    url: /together
    strategy: all
    rate-limits:
    - bandwidths: [ { capacity: 10, time: 1, unit: hours } ]
    - bandwidths: [ { capacity: 4, time: 1, unit: hours } ]
  - cache-name: buckets
    url: /apart
    strategy: all
    rate-limits:
    - { cache-key: "'ten'", bandwidths: [ { capacity: 10, time: 1, unit: hours } ] }
    - { cache-key: "'four'", bandwidths: [ { capacity: 4, time: 1, unit: hours } ] }
END
cat >App.java <<'END'
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

@EnableCaching
@EnableAutoConfiguration
@RestController
public class App {
  @GetMapping({"/together", "/apart"})
  public String hello() {
    return "hello";
  }

  public static void main(String[] none) throws Exception {
    try (var context = SpringApplication.run(App.class)) {
      String port = context.getEnvironment().getProperty("local.server.port");
      for (String path : new String[] {"together", "apart"}) {
        int admitted = 0;
        for (int at = 0; at < 12; at++) {
          var uri = URI.create("http://127.0.0.1:" + port + "/" + path);
          var request = HttpRequest.newBuilder(uri).build();
          var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
          admitted += answer.statusCode() == 200 ? 1 : 0;
        }
        System.out.println(path + ": " + admitted + " of 12");
      }
    }
  }
}
END
javac -parameters -cp "$(cat classpath)" App.java
java -cp ".:$(cat classpath)" App | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
together: 5 of 12
apart: 4 of 12
END
