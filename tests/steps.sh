# What the scripts of the three tiers share; they source it. It runs steps one after the other, goes
# on after one that failed, and ends with a table of their seconds.
#
#   step NAME COMMAND...       runs a command, and notes how long it took and whether it passed
#   skipped NAME WHY           notes a step that cannot run here
#   finish                     prints the table; fails if a step has failed

source tests/need.sh

steps=()
steps_failed=0
steps_log=$(mktemp)
trap 'rm -f "$steps_log"' EXIT

step() {
  local name=$1 began=$SECONDS outcome=passed
  shift
  printf '\n== %d:%02d %s: %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$name" "$*"
  # What a command prints is kept for the sums at the end.
  if ! "$@" 2>&1 | tee -a "$steps_log"; then
    outcome=FAILED
    steps_failed=1
    echo "$0: this step failed: $name" >&2
  fi
  steps+=("$name|$((SECONDS - began))|$outcome")
}

skipped() {
  printf '\n== skipped: %s: %s\n' "$1" "$2"
  steps+=("$1|0|skipped: $2")
}

# The tests that ran, as cargo's lines say it, and how often the crate was built.
sums() {
  awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
    / (Compiling|Checking) tidegate v/ { built++ }
    /^failed beside others, passed alone: / { again = again $0 "\n" }
    END {
      printf "tidegate was built %d times; ignored tests: %d (processes that other tests start, and what has a script of its own)\n", built, ignored
      printf "%d passed, %d failed\n%s", passed, failed, again
    }' "$steps_log"
}

finish() {
  printf '\n| step | seconds | |\n|---|--:|---|\n'
  local one rest
  for one in "${steps[@]}"; do
    rest=${one#*|}
    printf '| %s | %d | %s |\n' "${one%%|*}" "${rest%%|*}" "${rest#*|}"
  done
  printf '| all | %d | |\n' "$SECONDS"
  sums
  return $steps_failed
}
