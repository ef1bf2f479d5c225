# Counts instructions; scripts source it.
#
#   has_callgrind              fails without valgrind
#   counted FILE PROGRAM...    prints the instructions of each call of the program's function `counted`,
#                              a line a call; what the program prints goes to the file

has_callgrind() {
  command -v valgrind >/dev/null
}

counted() {
  local printed=$1 dumps
  shift
  dumps=$(mktemp -d)
  # The function toggles the counting, and at its end the counts go to a file of their own.
  valgrind -q --tool=callgrind --callgrind-out-file="$dumps/out" \
    --toggle-collect='*::counted' --dump-after='*::counted' "$@" >"$printed"
  find "$dumps" -name 'out.*' | sort -V | xargs sed -n 's/^totals: *//p' | { grep -vx 0 || true; }
  rm -r "$dumps"
}
