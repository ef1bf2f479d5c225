module miniredis

go 1.25.0

require github.com/alicebob/miniredis/v2 v2.40.0
