#!/usr/bin/env bash
# Builds the first two programs of the README from its own text and asks them as clients do: five
# logins are allowed and the sixth is denied, another address is allowed; the second program runs
# twice behind a real nginx and shares one Redis, and a spoofed X-Forwarded-For gives no fresh limit.
# A third one, on a Unix socket behind two proxies, tells clients apart by the number of these. A
# fourth one blocks a key in another process, without the feature `page`.
# Installs nginx and redis-server where they are missing and it may do so, else it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

source tests/need.sh
need nginx=nginx-light redis-server=redis-server curl=curl
PATH=$PATH:/usr/sbin

folder=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap cleanup EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

first=$(free_port)
mkdir -p "$folder/src/bin"
awk -v folder="$folder/src/bin" '
  /^```rust,no_run$/ { number++; inside = number <= 2; next }
  /^```$/ { inside = 0 }
  inside { print >(folder "/program_" number ".rs") }
' README.md
# The port of the first program stands in its text.
sed -i.text "s/0\.0\.0\.0:3000/0.0.0.0:$first/" "$folder/src/bin/program_1.rs"
if cmp -s "$folder/src/bin/program_1.rs" "$folder/src/bin/program_1.rs.text"; then
  echo "tests/first_programs.sh: the first program of the README has another port than 3000" >&2
  exit 1
fi
# Not of the README: an app on a Unix socket, which knows the number of its proxies.
cat >"$folder/src/bin/program_3.rs" <<'EOF2'
use axum::{Router, routing::post};
use tidegate::{ClientIp, Limits, Quota, Rule};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = Rule::new("login", [Quota::per_minute(5)])?;
    let limits = Limits::new([rule]).key(ClientIp::behind_hops(2));
    let app = Router::new().route("/login", post("welcome").layer(limits.layer("login")));
    let socket = std::env::args().nth(1).ok_or("no path of a socket")?;
    Ok(axum::serve(tokio::net::UnixListener::bind(socket)?, app).await?)
}
EOF2
# Nor of the README: a process that obeys an operator, and one from which the operator blocks a key.
cat >"$folder/src/bin/program_4.rs" <<'EOF2'
use std::{env::args, time::Duration};
use tidegate::{Limits, Quota, RedisStore, Rule, decision::Source};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = RedisStore::connect_lazy(&std::env::var("REDIS_URL")?)?.prefix("ops:");
    let limits = Limits::new([Rule::new("chat", [Quota::per_minute(1_000)])?]).store(store);
    if args().nth(1).as_deref() == Some("block") {
        return Ok(limits.block("chat", "mallory", Duration::from_secs(60), "ops").await?);
    }
    limits.join_fleet();
    limits.check("chat", "mallory").await?;
    println!("admitted");
    loop {
        if let Err(refused) = limits.check("chat", "mallory").await {
            let source = refused.decision().map(|decision| decision.source());
            assert_eq!((source, limits.operator_keys().len()), (Some(Source::Operator), 1));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
EOF2
cat >"$folder/Cargo.toml" <<EOF2
[package]
name = "first-programs"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
tidegate = { path = "$PWD" }
axum = "0.8"
tokio = { version = "1", features = ["full"] }
EOF2
cp Cargo.lock "$folder/Cargo.lock"
# Built with the profile of this package, so that dependencies with equal features are there already.
CARGO_TARGET_DIR=$PWD/target CARGO_PROFILE_DEV_DEBUG=false \
  cargo build --quiet --manifest-path "$folder/Cargo.toml"
programs=$PWD/target/debug

start() {
  "$@" >"$folder/log" 2>&1 &
  pids+=($!)
}

# The status of a login from a loopback address, at a port.
login() {
  curl --silent --output "$folder/body" --dump-header "$folder/head" --write-out '%{http_code}' \
    --max-time 5 --request POST --interface "$1" "${@:3}" "http://127.0.0.1:$2/login" || true
}

until_listening() {
  for _ in $(seq 100); do
    if curl --silent --output /dev/null --max-time 1 "http://127.0.0.1:$1/"; then return; fi
    sleep 0.1
  done
  echo "tests/first_programs.sh: nothing listens on port $1" >&2
  cat "$folder/log" >&2
  exit 1
}

expect() {
  if [ "$2" != "$3" ]; then
    echo "tests/first_programs.sh: $1: $2, expected $3" >&2
    exit 1
  fi
  echo "$1: $2"
}

# Five logins from an address, the sixth, and one from another address.
check() {
  for number in 1 2 3 4 5; do
    expect "login $number" "$(login 127.0.0.2 "$1")" 200
  done
  expect "login 6" "$(login 127.0.0.2 "$1")" 429
  grep -qi '^retry-after: [1-9]' "$folder/head"
  grep -qi '^ratelimit: "login";r=0;t=' "$folder/head"
  grep -q '"violated-policies":\["login"\]' "$folder/body"
  expect "another address" "$(login 127.0.0.3 "$1")" 200
}

echo "== one process, in memory"
start "$programs/program_1"
until_listening "$first"
check "$first"

echo "== two processes behind nginx, on Redis"
redis=$(free_port)
start redis-server --port "$redis" --bind 127.0.0.1 --save "" --dir "$folder"
export REDIS_URL=redis://127.0.0.1:$redis
one=$(free_port)
PORT=$one start "$programs/program_2"
until_listening "$one"
two=$(free_port)
PORT=$two start "$programs/program_2"
until_listening "$two"
proxy=$(free_port)
front=$(free_port)
cat >"$folder/nginx.conf" <<EOF2
pid $folder/nginx.pid;
error_log $folder/nginx.log;
daemon off;
events {}
http {
  access_log off;
  client_body_temp_path $folder/body_temp;
  proxy_temp_path $folder/proxy_temp;
  fastcgi_temp_path $folder/fastcgi_temp;
  uwsgi_temp_path $folder/uwsgi_temp;
  scgi_temp_path $folder/scgi_temp;
  upstream shop { server 127.0.0.1:$one; server 127.0.0.1:$two; }
  server {
    listen 127.0.0.1:$proxy;
    location / {
      proxy_pass http://shop;
      proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;
    }
  }
  # The second one sees \`unix:\` in place of an address.
  server {
    listen 127.0.0.1:$front;
    location / {
      proxy_pass http://unix:$folder/inner.sock;
      proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;
    }
  }
  server {
    listen unix:$folder/inner.sock;
    location / {
      proxy_pass http://unix:$folder/app.sock;
      proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;
    }
  }
}
EOF2
start nginx -c "$folder/nginx.conf" -e "$folder/nginx.log" -p "$folder"
until_listening "$proxy"
# The programs connect to Redis in the background.
sleep 1
spoof() {
  for lie in "198.51.100.1" "198.51.100.2, 198.51.100.3" "127.0.0.1" "unix:" "garbage"; do
    expect "X-Forwarded-For: $lie" "$(login 127.0.0.2 "$1" --header "X-Forwarded-For: $lie")" 429
  done
}
check "$proxy"
spoof "$proxy"
# Those that `ready` asked about may still live for two seconds.
keys=$(redis-cli -p "$redis" --scan | { grep -v '~ready' || true; } | sort | paste -sd' ')
expect "keys" "$keys" "shop:CurrentLimiter:login:127.0.0.2 shop:CurrentLimiter:login:127.0.0.3"

echo "== an operator blocks a key in another process"
timeout 20 "$programs/program_4" obey >"$folder/obeys" &
obeys=$!
pids+=($obeys)
for _ in $(seq 100); do
  if grep -q admitted "$folder/obeys"; then break; fi
  sleep 0.1
done
"$programs/program_4" block
outcome=0
wait "$obeys" || outcome=$?
expect "before it is blocked" "$(cat "$folder/obeys")" admitted
expect "the outcome of the process that obeys" "$outcome" 0

echo "== on a Unix socket, behind nginx behind nginx"
start "$programs/program_3" "$folder/app.sock"
for _ in $(seq 100); do
  if [ -S "$folder/app.sock" ]; then break; fi
  sleep 0.1
done
# The workers of an nginx that root has started are another user.
chmod 711 "$folder"
chmod 666 "$folder/app.sock"
check "$front"
spoof "$front"
echo "the README's first programs do what it says"
