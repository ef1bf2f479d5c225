#!/usr/bin/env bash
# Provokes the errors of a real redis-server, and prints each reply as
#     version <tab> kind that the crate has to see in it <tab> reply
# for crates/base/src/connection/error_replies.txt. The server is the one on the PATH, or the one named by the
# first argument. Takes about ten seconds.
set -euo pipefail

server=${1:-redis-server}
name=$("$server" --version | sed 's/ .*//' | tr '[:upper:]' '[:lower:]')
version=$name-$("$server" --version | sed 's/.* v=\([0-9.]*\).*/\1/')
folder=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do
    kill -9 "$pid" && wait "$pid" || true
  done 2>/dev/null
  rm -rf "$folder"
}
trap end EXIT
port=$((10000 + RANDOM % 20000))

# start OPTIONS..: another server, on $port
start() {
  port=$((port + 1))
  # Since version 7 some settings can be changed only where this is said.
  local protected=()
  [[ $version == redis-6* ]] || protected=(--enable-protected-configs yes --enable-debug-command yes)
  "$server" "${protected[@]}" --port "$port" --dir "$folder" --dbfilename "$port.rdb" --daemonize no --save '' "$@" \
    >"$folder/$port.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 100); do
    redis-cli -p "$port" ping 2>&1 | grep -qE 'PONG|NOAUTH|LOADING' && return
    sleep 0.05
  done
  cat "$folder/$port.log" >&2
  exit 1
}

cli() { redis-cli -p "$port" "$@" >/dev/null 2>&1; }

# record KIND COMMAND..: the error with which the server answers
record() {
  local kind=$1 reply
  shift
  reply=$(redis-cli -p "$port" "$@" 2>&1 | grep -v '^$' | head -n 1 | sed 's/^(error) //')
  printf '%s\t%s\t%s\n' "$version" "$kind" "$reply"
}

WRITE="return redis.call('SET', KEYS[1], 1)"

start
cli set text 1
record WrongType eval "return redis.call('ZCARD', KEYS[1])" 1 text
record WrongType zcard text
record Configuration cluster slots
record Protocol eval 'return no_such_variable' 0
record Protocol eval 'this is no Lua' 0
cli config set maxmemory 1
record OutOfMemory eval "$WRITE" 1 text
record OutOfMemory set text 1
cli config set maxmemory 0
cli config set min-replicas-to-write 1
record ReadOnly eval "$WRITE" 1 text
record ReadOnly set text 1
cli config set min-replicas-to-write 0
cli acl setuser keys on '>s' '~mine*' '+@all'
cli acl setuser calls on '>s' '~*' '+@all' '-set'
cli acl setuser scripts on '>s' '~*' '+@all' '-eval' '-evalsha'
record Refused --no-auth-warning --user keys --pass s eval "return redis.call('SET', 'other', 1)" 0
record Refused --no-auth-warning --user keys --pass s eval "$WRITE" 1 other
record Refused --no-auth-warning --user calls --pass s eval "$WRITE" 1 text
record Refused --no-auth-warning --user scripts --pass s eval "$WRITE" 1 text
cli config set busy-reply-threshold 10 || cli config set lua-time-limit 10
redis-cli -p "$port" eval 'while true do end' 0 >/dev/null 2>&1 &
sleep 0.5
record Unavailable eval "$WRITE" 1 text
cli script kill

start --requirepass secret
record Refused eval "$WRITE" 1 text
record Refused auth wrong

start
master=$port
start --replicaof 127.0.0.1 "$master"
sleep 1.5
record ReadOnly eval "$WRITE" 1 text
record ReadOnly set text 1
cli config set replica-serve-stale-data no
cli replicaof 127.0.0.1 1
record Unavailable eval "$WRITE" 1 text

# The folder of a snapshot that fails is gone.
start
mkdir "$folder/gone" && cli config set dir "$folder/gone" && rmdir "$folder/gone"
cli config set save '3600 1'
cli bgsave
sleep 0.5
record ReadOnly eval "$WRITE" 1 text
record ReadOnly set text 1

start
cli debug populate 100000 key 200
cli save
rdb=$port
cli shutdown nosave || true
port=$((port + 1))
"$server" --port "$port" --dir "$folder" --dbfilename "$rdb.rdb" --save '' --key-load-delay 1000 >"$folder/$port.log" 2>&1 &
pids+=($!)
sleep 3
record Unavailable eval "$WRITE" 1 text

start --maxclients 1
exec 3<>"/dev/tcp/127.0.0.1/$port"
sleep 0.2
record Unavailable ping
exec 3>&-

address=$(hostname -I | cut -d ' ' -f 1)
start --protected-mode yes
record Refused -h "$address" ping

start --cluster-enabled yes --cluster-config-file "$folder/nodes.conf"
record Unavailable eval "$WRITE" 1 text
# shellcheck disable=SC2046
cli cluster addslots $(seq 0 16383)
sleep 1
record Configuration eval 'return 1' 2 a b
cli config set cluster-allow-reads-when-down yes
cli cluster delslots 0
sleep 1
record Unavailable eval "$WRITE" 1 text

start --rename-command EVAL '' --rename-command EVALSHA ''
record Configuration EVAL 'return 1' 0
record Configuration EVALSHA 0 0
if [[ $name == valkey ]]; then
  start
  cli acl setuser one on '>s' '~*' '+@all' db=0
  record Refused --no-auth-warning --user one --pass s select 1
  start --enable-module-command yes
  cli module unload lua
  record Configuration EVAL 'return 1' 0
fi
