module clients

go 1.25.0

require (
	connectrpc.com/connect v1.21.1
	github.com/hashicorp/go-retryablehttp v0.7.8
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
