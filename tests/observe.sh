#!/usr/bin/env bash
# Checks what operators look at, with the programs that they look with: promtool reads the metrics
# of a real run, the alerts and the queries of the dashboard, and tests the alerts. Installs
# Prometheus where promtool is missing and it may do so: with apt-get as root or by sudo. Else it
# says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

say_what_to_install() {
  cat >&2 <<EOF
tests/observe.sh: promtool is not on the PATH. $1
Install it, and start again:
  Debian, Ubuntu   apt-get install prometheus
  macOS            brew install prometheus
  others           https://prometheus.io/download
EOF
  exit 1
}

install_promtool() {
  local as_root=()
  command -v apt-get >/dev/null || say_what_to_install "This script installs with apt-get."
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || say_what_to_install "Installing needs root, and there is no sudo."
    as_root=(sudo)
  fi
  echo "tests/observe.sh: installing prometheus, for promtool" >&2
  # No server has to start.
  ${as_root[@]+"${as_root[@]}"} apt-get update -q &&
    ${as_root[@]+"${as_root[@]}"} env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
      apt-get install -yq --no-install-recommends prometheus ||
    say_what_to_install "Installing with apt-get failed."
}

check_metrics() {
  local text
  text=$(cargo run --quiet --all-features --example metrics)
  # promtool is content with nothing at all.
  grep -q '^tidegate_denials_total{rule="search",quota="quick"} 2$' <<<"$text" ||
    { echo "tests/observe.sh: the example shows other metrics: $text" >&2; exit 1; }
  promtool check metrics <<<"$text"
  echo "promtool reads the metrics of a real run"
}

check_web_app() {
  cargo build --quiet --example web_app
  cargo test --quiet -p tidegate -p tidegate-tests --all-features --test layer promtool -- --ignored
  echo "promtool reads /metrics of the web app"
}

check_alerts() {
  promtool check rules docs/metrics/alerts.yml
  promtool test rules docs/metrics/alerts_test.yml
}

# Each query of the dashboard as a rule, with values in place of Grafana's variables.
check_dashboard() {
  local rules
  rules=$(mktemp)
  # shellcheck disable=SC2064
  trap "rm '$rules'" EXIT
  sed -n 's/^ *"expr": "\(.*\)",$/\1/p' docs/metrics/dashboard.json |
    sed 's/\\"/"/g; s/\$__rate_interval/5m/g; s/\$rule/.*/g' |
    awk 'BEGIN { print "groups:\n  - name: dashboard\n    rules:" }
      { print "      - record: dashboard:query" NR "\n        expr: |\n          " $0 }' >"$rules"
  promtool check rules "$rules"
}

command -v promtool >/dev/null || install_promtool
check_metrics
check_web_app
check_alerts
check_dashboard
