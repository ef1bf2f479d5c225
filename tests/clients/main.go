// The clients of Go: a row for each of their cases. See tests/clients.sh.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-retryablehttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

type empty = emptypb.Empty

var (
	address = os.Args[1]
	wrong   = 0
)

func row(protocol, client, asked, expected, got string) {
	fmt.Printf("| %s | %s | %s | %s |\n", protocol, client, asked, got)
	if got != expected {
		wrong = 1
		fmt.Fprintf(os.Stderr, "tests/clients.sh: %s, %s: %s; expected %s\n", client, asked, got, expected)
	}
}

func version(path, shown string) string {
	info, _ := debug.ReadBuildInfo()
	for _, it := range info.Deps {
		if it.Path == path {
			return shown + " " + strings.TrimPrefix(it.Version, "v")
		}
	}
	return shown
}

// When it was called again: first since the admitted request, then since the call before, in the
// seconds that are expected, unless a call is earlier, or later by 2 s: of a busy machine.
func again(path, expected string, admitted bool) string {
	answer, err := http.Get("http://" + address + "/seen/" + path)
	if err != nil {
		return err.Error()
	}
	var at []float64
	if err := json.NewDecoder(answer.Body).Decode(&at); err != nil {
		return err.Error()
	}
	if admitted {
		at = slices.Delete(at, 1, 2)
	}
	expected, _, _ = strings.Cut(expected, ":")
	wanted := regexp.MustCompile(`\d+`).FindAllString(expected, -1)
	var waits []string
	for i := 1; i < len(at); i++ {
		wait := at[i] - at[i-1]
		shown := fmt.Sprint(int(wait))
		if i <= len(wanted) {
			seconds, _ := strconv.ParseFloat(wanted[i-1], 64)
			if wait >= seconds-0.1 && wait < seconds+2 {
				shown = wanted[i-1]
			}
		}
		waits = append(waits, shown)
	}
	if waits == nil {
		return "not again"
	}
	return "again after " + strings.Join(waits, ", ") + " s"
}

const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

func grpcGo() {
	channel, err := grpc.NewClient(address, grpc.WithDefaultServiceConfig(config),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	said := func(path string, seconds time.Duration) string {
		ctx, stop := context.Background(), func() {}
		if seconds > 0 {
			ctx, stop = context.WithTimeout(ctx, seconds*time.Second)
		}
		defer stop()
		var fields metadata.MD
		err := channel.Invoke(ctx, path, &empty{}, &empty{}, grpc.Trailer(&fields))
		if err == nil {
			return "OK"
		}
		return fmt.Sprintf("status %d, `retry-after` %s", status.Code(err), cmp.Or(strings.Join(fields["retry-after"], " "), "none"))
	}
	for _, it := range []struct {
		asked, route string
		deadline     time.Duration
		expected     string
	}{
		{"2 s, deadline 5 s", "grpc-2s", 5, "again after 2 s: OK"},
		{"2 s, no deadline", "grpc-2s", 0, "again after 2 s: OK"},
		{"2 s, deadline 1 s", "grpc-2s", 1, "not again: status 8, `retry-after` 2"},
		{"1 h, no deadline", "grpc-1h", 0, "not again: status 8, `retry-after` 3600"},
		{"no decision", "grpc-down", 9, "again after 1, 1, 1 s: status 14, `retry-after` none"},
	} {
		path := "grpc-go-" + strings.NewReplacer(" ", "-", ",", "").Replace(it.asked)
		admitted := it.route != "grpc-down"
		if admitted {
			said("/"+it.route+"/"+path, 5)
		}
		last := said("/"+it.route+"/"+path, it.deadline)
		row("gRPC", version("google.golang.org/grpc", "grpc-go"), it.asked, it.expected, again(path, it.expected, admitted)+": "+last)
	}
}

func connectGo() {
	get := []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	for _, it := range []struct {
		asked, expected string
		options         []connect.ClientOption
	}{
		{"POST", "resource_exhausted, `retry-after` 3600", nil},
		{"GET", "resource_exhausted, `retry-after` 3600", get},
		{"STREAM", "resource_exhausted, `retry-after` 3600", nil},
	} {
		url := "http://" + address + "/connect/connect-go-" + it.asked + "/calls.Calls/Call"
		client := connect.NewClient[empty, empty](http.DefaultClient, url, it.options...)
		said := func() string {
			ctx, err := context.Background(), error(nil)
			if it.asked == "STREAM" {
				stream, failed := client.CallServerStream(ctx, connect.NewRequest(&empty{}))
				for err = failed; err == nil && stream.Receive(); {
				}
				if err == nil {
					err = stream.Err()
				}
			} else {
				_, err = client.CallUnary(ctx, connect.NewRequest(&empty{}))
			}
			var told *connect.Error
			if !errors.As(err, &told) {
				return fmt.Sprint(err)
			}
			return fmt.Sprintf("%s, `retry-after` %s", told.Code(), cmp.Or(told.Meta().Get("Retry-After"), "none"))
		}
		said()
		row("Connect", version("connectrpc.com/connect", "connect-go"), it.asked+", 1 h", it.expected, said())
	}
}

func retryable() {
	for _, it := range []struct {
		asked, route string
		deadline     time.Duration
		expected     string
	}{
		{"2 s", "plain-2s", 60, "again after 2 s: OK"},
		{"1 h, deadline 3 s", "plain", 3, "not again: context deadline exceeded"},
	} {
		path := "retryable-" + it.route
		said := func() string {
			ctx, stop := context.WithTimeout(context.Background(), it.deadline*time.Second)
			defer stop()
			url := "http://" + address + "/" + it.route + "/" + path
			request, _ := retryablehttp.NewRequestWithContext(ctx, "GET", url, nil)
			client := retryablehttp.NewClient()
			client.Logger = nil
			answer, err := client.Do(request)
			if err != nil {
				return fmt.Sprint(cmp.Or(errors.Unwrap(err), err))
			}
			return http.StatusText(answer.StatusCode)
		}
		said()
		last := said()
		row("`retry-after`", version("github.com/hashicorp/go-retryablehttp", "go-retryablehttp"), it.asked, it.expected, again(path, it.expected, true)+": "+last)
	}
}

func main() {
	grpcGo()
	connectGo()
	retryable()
	os.Exit(wrong)
}
