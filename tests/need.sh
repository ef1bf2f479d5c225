# Installs the programs that a script needs; scripts source it.
#
#   need PROGRAM=PACKAGE...    installs what is missing, by the names of Debian's packages: with apt-get
#                              as root or by sudo, or with brew; else it says what to install
#   need_cargo                 says how to install Rust
#
# `install_elsewhere` says what to install on other systems, `brew_packages` names brew's.

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
