#!/usr/bin/env bash
# connect-go drops the header fields of a 429 that is not in Connect's own form.
#
# Expected: an error "unavailable" whose Meta() holds the fields of the response.
# Seen: "unavailable", the code of what may be repeated, with an empty Meta(): no Retry-After. The
#   same body as application/json, which is the form of Connect, keeps code and fields.
# With: connectrpc.com/connect v1.21.1; 27 November 2026
# Matters: a limiter in front of a Connect service has to answer in Connect's own form, or its
#   clients repeat without knowing when.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Type", r.Header.Get("X-Type"))
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"code":"resource_exhausted"}`)
	}))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](
		http.DefaultClient, server.URL+"/a.B/C")
	for _, content := range []string{"application/json", "application/problem+json"} {
		request := connect.NewRequest(&emptypb.Empty{})
		request.Header().Set("X-Type", content)
		_, err := client.CallUnary(context.Background(), request)
		var failed *connect.Error
		errors.As(err, &failed)
		fmt.Printf("%s: %s, %d fields, Retry-After %q\n", content, failed.Code(),
			len(failed.Meta()), failed.Meta().Get("Retry-After"))
	}
}
END
go mod init finding >/dev/null 2>&1
go get connectrpc.com/connect@v1.21.1 >/dev/null 2>&1
go run . | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
application/json: resource_exhausted, 4 fields, Retry-After "7"
application/problem+json: unavailable, 0 fields, Retry-After ""
END
