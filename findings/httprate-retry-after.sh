#!/usr/bin/env bash
# httprate says two times in one 429, and a request is granted at neither.
#
# Expected: Retry-After is what is left of the window, as X-RateLimit-Reset says.
# Seen: Retry-After is always the whole window, X-RateLimit-Reset the end of the current one. The
#   counts of the last window weigh on, so a request is granted later than the reset and earlier
#   than Retry-After.
# With: github.com/go-chi/httprate v0.16.1; 27 November 2026
# Matters: who obeys the reset is denied again; who obeys Retry-After waits up to a window too long.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'END'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/go-chi/httprate"
)

func main() {
	limit := httprate.LimitAll(4, 6*time.Second)
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	ask := func() *http.Response {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		return answer.Result()
	}
	begin := time.Now()
	for i := 0; i < 4; i++ {
		ask()
	}
	time.Sleep(time.Until(begin.Add(4*time.Second + 100*time.Millisecond)))
	denied, from := ask(), time.Now()
	reset, _ := strconv.ParseInt(denied.Header.Get("X-RateLimit-Reset"), 10, 64)
	left := time.Unix(reset, 0).Sub(from)
	fmt.Println("denied after 4.1 s of a window of 6 s:", denied.StatusCode)
	fmt.Println("Retry-After:", denied.Header.Get("Retry-After"))
	fmt.Println("X-RateLimit-Reset is 2 s away at most:", left <= 2*time.Second)
	for ask().StatusCode != 200 {
		time.Sleep(100 * time.Millisecond)
	}
	wait := time.Since(from)
	fmt.Println("granted again later than that, and before 5 s:", wait > left && wait < 5*time.Second)
}
END
go mod init finding >/dev/null 2>&1
go get github.com/go-chi/httprate@v0.16.1 >/dev/null 2>&1
go run . | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
denied after 4.1 s of a window of 6 s: 429
Retry-After: 6
X-RateLimit-Reset is 2 s away at most: true
granted again later than that, and before 5 s: true
END
