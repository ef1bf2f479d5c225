# What the scripts of the three tiers share; they source it. It runs steps one after the other, goes
# on after one that failed, and ends with a table of their seconds.
#
#   step NAME COMMAND...       runs a command, and notes how long it took and whether it passed
#   skipped NAME WHY           notes a step that cannot run here
#   finish                     prints the table; fails if a step has failed
#   need PROGRAM=PACKAGE...    installs what is missing: with apt-get as root or by sudo, or with brew

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
    END {
      printf "tidegate was built %d times; ignored tests: %d (processes that other tests start, and what has a script of its own)\n", built, ignored
      printf "%d passed, %d failed\n", passed, failed
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

say_what_to_install() {
  cat >&2 <<TEXT
$0: not found on the PATH: ${missing[*]}. $1
Install what is missing, and start again. On Debian and Ubuntu: apt-get install ${packages[*]}
${install_elsewhere:-}
TEXT
  exit 1
}

need() {
  local missing=() packages=() one as_root=()
  for one in "$@"; do
    if ! PATH=$PATH:/usr/sbin command -v "${one%%=*}" >/dev/null; then
      missing+=("${one%%=*}")
      # A package may be wanted by several programs; more of them stand behind commas.
      packages+=($(tr , ' ' <<<"${one#*=}"))
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  if command -v apt-get >/dev/null; then
    if [ "$(id -u)" -ne 0 ]; then
      command -v sudo >/dev/null ||
        say_what_to_install "Installing needs root, and there is no sudo."
      as_root=(sudo)
    fi
    echo "$0: installing ${packages[*]}" >&2
    # The tests start servers of their own: none has to run beside them.
    ${as_root[@]+"${as_root[@]}"} apt-get update -q &&
      ${as_root[@]+"${as_root[@]}"} env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -yq --no-install-recommends "${packages[@]}" ||
      say_what_to_install "Installing with apt-get failed."
  elif command -v brew >/dev/null; then
    # shellcheck disable=SC2086
    brew install ${brew_packages:-${packages[*]}} ||
      say_what_to_install "Installing with brew failed."
  else
    say_what_to_install "This script installs with apt-get or brew, and there is neither."
  fi
}

need_cargo() {
  if ! command -v cargo >/dev/null; then
    echo "$0: no cargo on the PATH; install Rust 1.88 or later, and start again:" >&2
    echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
    exit 1
  fi
}
