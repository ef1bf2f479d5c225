#!/usr/bin/env bash
# Checks what operators look at, with the programs that they look with: promtool reads the metrics
# of a real run, the alerts and the queries of the dashboard, and tests the alerts, in both majors
# of Prometheus, whose ranges differ. Installs Prometheus 2 where promtool is missing and it may do
# so: with apt-get as root or by sudo. Else it says what to install. Prometheus 3 is fetched into
# target/servers/, unless it is on the PATH as prometheus-3 and promtool-3.
set -euo pipefail
cd "$(dirname "$0")/.."

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
  cargo test --quiet -p tidegate -p tidegate-tests --all-features --test layer -- --ignored \
    promtool first_failures
  echo "promtool reads /metrics of the web app, and Prometheus sees the first failures"
}

check_alerts() {
  local promtool
  for promtool in promtool promtool-3; do
    "$promtool" --version
    "$promtool" check rules docs/metrics/alerts.yml
    "$promtool" test rules docs/metrics/alerts_test.yml
  done
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

source tests/need.sh
install_elsewhere='Others: https://prometheus.io/download'
need promtool=prometheus
source tests/servers.sh
server_of_debian prometheus-3 forky prometheus prometheus
server_of_debian promtool-3 forky promtool promtool
PATH=$PATH:$PWD/target/servers
check_metrics
check_web_app
check_alerts
check_dashboard
