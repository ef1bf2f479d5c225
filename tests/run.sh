#!/usr/bin/env bash
# The first tier: the tests of every law and feature, with all features, against real redis-server
# processes that they start themselves; and the examples in the docs. Within five minutes on two
# cores. It ends with a table of its steps.
#
#   bash tests/run.sh                          # laws, behaviour, examples in docs
#   bash tests/run.sh --hostile                # what attacks them: proxies, wall clocks, aborts, fleets
#   bash tests/run.sh --test lock -- watchdog  # options of `cargo test`: only what they name runs
#
# Installs redis-server, and openssl for the certificates of one of them, where they are missing and
# it may do so: with apt-get as root or by sudo, or with brew. Else it says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/steps.sh

need_cargo
install_elsewhere='Fedora, RHEL: dnf install redis openssl. Alpine: apk add redis openssl. macOS: brew install
redis openssl. The tests need Redis 7.0 or later (they use more of it than the crate does), and openssl for TLS.'
brew_packages="redis openssl"
need redis-server=redis-server redis-cli=redis-tools openssl=openssl
redis-server --version

# Snapshots are compared, never written.
export INSTA_UPDATE=no

# All with the same packages and features: then the crate and its dependencies are built once.
packages=(-p tidegate -p tidegate-base -p tidegate-redisson -p tidegate-tests --all-features)
test=(cargo test "${packages[@]}" --no-fail-fast)

# Each argument is a line of options; their tests run simultaneously, and what they say is shown one
# after the other. Most tests wait for servers and clocks most of the time, so they share two cores
# well. The build comes first, for all.
simultaneously() {
  local folder pids=() failed=0 at
  folder=$(mktemp -d)
  for at in $(seq $#); do
    # shellcheck disable=SC2086
    "${test[@]}" ${!at} >"$folder/$at" 2>&1 &
    pids+=($!)
  done
  for at in $(seq $#); do
    wait "${pids[at - 1]}" || failed=$?
    cat "$folder/$at"
  done
  if [ $failed -ne 0 ] && once_more "$folder" "$@"; then failed=0; fi
  rm -r "$folder"
  return $failed
}

# Up to three tests that failed beside others run once more, alone, and count by that. The last lines
# of the tier name them: each is a defect, of the crate or of the test, that only a busy machine shows.
once_more() {
  local folder=$1 names ended binaries
  shift
  mapfile -t names < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$folder"/* | sort -u)
  # A binary that crashed has no result.
  ended=$(cat "$folder"/* | grep -c '^test result:')
  mapfile -t binaries < <(printf '%s\n' "$*" | grep -oE -- '--(test=[a-z_]+|lib)')
  if [ ${#names[@]} -eq 0 ] || [ ${#names[@]} -gt 3 ] || [ "$ended" -lt ${#binaries[@]} ]; then return 1; fi
  printf 'once more, alone: %s\n' "${names[@]}"
  "${test[@]}" "${binaries[@]}" -- --test-threads=1 --exact "${names[@]}" 2>&1 | tee "$folder/again" &&
    [ "$(grep -c '^test .* \.\.\. ok$' "$folder/again")" -ge ${#names[@]} ] &&
    printf 'failed beside others, passed alone: %s\n' "${names[@]}"
}

case "${1:-}" in
  "")
    echo "tests/run.sh: the tests of laws and behaviour: about five minutes on two cores"
    binaries=(structure laws histories store layer limiter lock topologies)
    # Some tests start them. In the profile of the tests, as the crate is built once then.
    examples=(web_app plans joint login_failures shutdown budgets turns)
    step "examples" cargo build --profile test "${packages[@]}" -p tidegate-web-app \
      "${examples[@]/#/--example=}"
    step "build" "${test[@]}" --no-run --lib "${binaries[@]/#/--test=}"
    step "tests" simultaneously \
      "--lib --test=structure --test=laws --test=histories" \
      "--test=store" \
      "--test=layer" \
      "--test=limiter --test=lock --test=topologies -- --test-threads=3"
    step "examples in docs" "${test[@]}" --doc
    finish
    ;;
  --hostile)
    brew_packages=nginx
    need nginx=nginx-light
    # `mutants`: that each mistake of the list can still be made; the nightly makes them.
    binaries=(hostile_faults hostile_store hostile_layer hostile_limiter hostile_lock hostile_topologies)
    alone=(faults fleet mutants)
    step "build what is hostile" "${test[@]}" --no-run "${binaries[@]/#/--test=}" "${alone[@]/#/--test=}"
    # They wait for servers and proxies most of the time. More of them would disturb each other.
    step "hostile tests" simultaneously \
      "--test=hostile_faults --test=hostile_layer -- --test-threads=4" \
      "--test=hostile_store --test=hostile_limiter --test=hostile_lock --test=hostile_topologies -- --test-threads=4"
    # Alone: these tests say how long callers waited, under load.
    # The nightly runs the fleets that take minutes.
    step "faults and fleets" simultaneously \
      "${alone[*]/#/--test=} -- --skip soak:: --skip starved::"
    finish
    ;;
  *) exec "${test[@]}" "$@" ;;
esac
