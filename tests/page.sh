#!/usr/bin/env bash
# Tests the pages of the example web app in Chromium without a window, driven by WebDriver. Its own
# page: three things to try, a burst is shown as denied within two seconds, an edited file changes
# the shown limit, a mistake in it is explained. The page of the limits: a flood is seen by name, a
# customer is let through, another one blocked, a key is reset, processes come and go. Installs
# Chromium and its driver where they are missing and it may do so: with apt-get as root or by sudo.
# Else it says what to install.
# --screenshots FOLDER writes pictures of both pages instead, in three minutes; --readme writes
# docs/web_app.png.
set -euo pipefail
cd "$(dirname "$0")/.."

pictures=
case "${1:-}" in
  "") ;;
  --screenshots) pictures=${2:?the folder for the pictures} ;;
  --readme) pictures=$(mktemp -d); trap 'rm -rf "$pictures"' EXIT ;;
  *) echo "usage: bash tests/page.sh [--screenshots FOLDER | --readme]" >&2; exit 1 ;;
esac

source tests/need.sh
install_elsewhere='Fedora: dnf install chromium chromedriver. Alpine: apk add chromium chromium-chromedriver.
macOS: brew install --cask chromium chromedriver.'
need chromedriver=chromium,chromium-driver,fonts-dejavu-core
chromedriver --version

# The tests start the example as a process of its own, on default features.
cargo build --example web_app
cargo test -p tidegate -p tidegate-tests --all-features --test layer --no-run

# Whatever hangs is ended.
limit=()
if command -v timeout >/dev/null; then limit=(timeout 300); fi
tests=(web_app::page web_app::limits_page)
if [ -n "$pictures" ]; then
  mkdir -p "$pictures"
  TIDEGATE_SCREENSHOTS=$(cd "$pictures" && pwd)
  export TIDEGATE_SCREENSHOTS
  tests=(web_app::page::screenshots web_app::limits_page::screenshots)
fi
# One after the other: the tests measure how soon something is shown.
${limit[@]+"${limit[@]}"} cargo test -p tidegate -p tidegate-tests --all-features --test layer -- \
  --ignored --test-threads 1 "${tests[@]}"

if [ -n "$pictures" ]; then
  for picture in "$pictures"/*.png.base64; do
    base64 --decode <"$picture" >"${picture%.base64}"
    rm "$picture"
  done
fi
if [ "${1:-}" = --readme ]; then
  cp "$pictures/web_app.png" docs/web_app.png
fi
