# Counts instructions and lines of code; scripts source it.
#
#   has_callgrind              fails without valgrind
#   counted FILE PROGRAM...    prints the instructions of each call of the function `counted` of the
#                              program, a line a call; what it prints goes to the file
#   counted_lines N FILE PROGRAM...    prints behind them how many different lines of code, of 64
#                              bytes, run at least N times in the call, and how many of them are
#                              this crate's, by the names of their functions

has_callgrind() {
  command -v valgrind >/dev/null
}

counted() {
  counted_lines 1 "$@" | cut -d '|' -f 1
}

counted_lines() {
  local times=$1 printed=$2 dumps dump of
  shift 2
  # The crate has functions of that name, too.
  for of in '*::support' instructions subject; do
    set -- --toggle-collect="$of::counted" --dump-after="$of::counted" "$@"
  done
  dumps=$(mktemp -d)
  # The function toggles the counting, and at its end the counts go to a file of their own.
  valgrind -q --tool=callgrind --callgrind-out-file="$dumps/out" --dump-instr=yes --dump-line=no \
    --compress-strings=no --compress-pos=no \
    "$@" >"$printed"
  for dump in $(find "$dumps" -name 'out.*' | sort -V); do
    awk -v times="$times" '
      /^ob=/ { program = $0 }
      /^fn=/ { is_own = /tidegate(_base|_redisson)?::/ }
      # Behind it stands what the function runs that is called.
      /^calls=/ { getline; next }
      # A line has four times sixteen bytes.
      /^0x/ && $2 >= times {
        digits = length($1) - 2
        line = program substr($1, 1, digits) \
          int((index("0123456789abcdef", substr($1, digits + 1, 1)) - 1) / 4)
        if (!(line in all)) { all[line]; number++ }
        if (is_own && !(line in own)) { own[line]; owned++ }
      }
      /^totals:/ { total = $2 }
      END { if (total > 0) printf "%d|%d|%d\n", total, number, owned }' "$dump"
  done
  rm -r "$dumps"
}
