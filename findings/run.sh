#!/usr/bin/env bash
# Runs all findings, or those named (`bash findings/run.sh redis-clock-in-scripts`), and prints a
# table of them. Fails if one has changed or could not run.
set -uo pipefail
cd "$(dirname "$0")"

names=("$@")
[ $# -gt 0 ] || for script in *.sh; do [ "$script" = run.sh ] || names+=("${script%.sh}"); done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
table=$'name\tversion\tresult\n'
failed=0
for name in "${names[@]}"; do
  echo "== $name"
  result=holds
  if ! timeout 600 bash "$name.sh" </dev/null >"$log" 2>&1; then
    result="did not run"
    ! grep -q '^changed:' "$log" || result=changed
    cat "$log"
    failed=1
  fi
  # The lines of the header from "With:" to "Matters:", without the day.
  version=$(sed -n '/^# With: /,/^# Matters: /{/^# Matters: /d;s/^# *\(With: \)\?//;p}' "$name.sh" |
    tr '\n' ' ' | sed 's/;.*//')
  table+="$name"$'\t'"$version"$'\t'"$result"$'\n'
done
printf '%s' "$table" | column -t -s $'\t'
exit "$failed"
