//! What tonic's own client shows of this crate's answers, on tonic's server and on axum's.

mod outgoing;

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body as AxumBody;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use axum::serve;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use tidegate::callback::Problem;
use tidegate::rule::{Lockout, Policy};
use tidegate::{
    Denied, FailOpen, Header, KeyExtractor, Limits, MemoryStore, PeerIp, Quota, RateLimitLayer,
    Rule,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::Bytes;
use tonic::codegen::http::{Request, Response as HttpResponse, StatusCode};
use tonic::service::{LayerExt, Routes};
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_types::{QuotaViolation, StatusExt};
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::{Layer, ServiceBuilder};
use tracing_subscriber::util::SubscriberInitExt;

const WINDOW: Duration = Duration::from_secs(60);

/// How many checks of "guess" there were.
static GUESSES: AtomicUsize = AtomicUsize::new(0);

/// A check of "slow" has begun.
static SLOW: Notify = Notify::const_new();

/// Answers a check, unless the name of the service is "full", "guess" or "slow", and sends three
/// messages to a watcher.
struct Service;

#[tonic::async_trait]
impl Health for Service {
    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match &*request.into_inner().service {
            "full" => Err(Status::resource_exhausted("the disk is full")),
            "guess" => {
                GUESSES.fetch_add(1, Ordering::Relaxed);
                Err(Status::unauthenticated("a wrong password"))
            }
            "slow" => {
                SLOW.notify_one();
                std::future::pending().await
            }
            _ => Ok(Response::new(serving())),
        }
    }

    type WatchStream = tokio_stream::Iter<std::vec::IntoIter<Result<HealthCheckResponse, Status>>>;

    async fn watch(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let messages = vec![Ok(serving()); 3];
        Ok(Response::new(tokio_stream::iter(messages)))
    }
}

fn serving() -> HealthCheckResponse {
    let status = ServingStatus::Serving.into();
    HealthCheckResponse { status }
}

fn service() -> HealthServer<Service> {
    HealthServer::new(Service)
}

fn one() -> RateLimitLayer {
    RateLimitLayer::new("health", WINDOW, 1)
}

fn none() -> RateLimitLayer {
    RateLimitLayer::new("health", WINDOW, 0)
}

/// A free port that a server is to listen on.
async fn listen() -> (TcpListenerStream, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (TcpListenerStream::new(listener), address)
}

/// Serves with the layer around the whole server.
async fn start(layer: RateLimitLayer) -> SocketAddr {
    let (incoming, address) = listen().await;
    let server = Server::builder().layer(layer).add_service(service());
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

/// A client whose own address is `from`.
async fn connect_from(from: &str, address: SocketAddr) -> HealthClient<Channel> {
    let from: IpAddr = from.parse().expect("an address");
    let endpoint = Endpoint::new(format!("http://{address}")).expect("a valid url");
    let channel = endpoint.local_address(Some(from)).connect().await;
    HealthClient::new(channel.expect("a server"))
}

async fn connect(address: SocketAddr) -> HealthClient<Channel> {
    connect_from("127.0.0.1", address).await
}

/// The status of a call that is not answered.
async fn failed(client: &mut HealthClient<Channel>) -> Status {
    status(client.check(request("")).await)
}

async fn answered(client: &mut HealthClient<Channel>) -> Response<HealthCheckResponse> {
    client.check(request("")).await.expect("an answer")
}

async fn client_of(layer: RateLimitLayer) -> HealthClient<Channel> {
    connect(start(layer).await).await
}

fn request(service: &str) -> tonic::Request<HealthCheckRequest> {
    let service = service.to_owned();
    tonic::Request::new(HealthCheckRequest { service })
}

/// The status of a call without an answer.
fn status<T>(answered: Result<Response<T>, Status>) -> Status {
    match answered {
        Ok(_) => panic!("it was answered"),
        Err(status) => status,
    }
}

fn field<'a>(status: &'a Status, name: &str) -> &'a str {
    let value = status.metadata().get(name);
    value.map_or("", |value| value.to_str().expect("printable"))
}

fn is_quota_exceeded(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message() == "quota exceeded: health"
}

#[tokio::test]
async fn unary() {
    let mut client = client_of(one()).await;
    let allowed = answered(&mut client).await;
    let ratelimit = allowed.metadata().get("ratelimit").expect("a field");
    assert_eq!(ratelimit, "\"health\";r=0;t=60");
    assert_eq!(allowed.into_inner(), serving());

    let denied = failed(&mut client).await;
    assert!(is_quota_exceeded(&denied), "{denied:?}");
    let retry_after: u64 = field(&denied, "retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&retry_after));
    let ratelimit = format!("\"health\";r=0;t={retry_after}");
    assert_eq!(field(&denied, "ratelimit"), ratelimit);
    assert_eq!(field(&denied, "ratelimit-policy"), "\"health\";q=1;w=60");
    assert_eq!(retry_info(&denied), Some(Duration::from_secs(retry_after)));
}

/// What the details of a status say of when to come again, as OpenTelemetry's exporters read it.
fn retry_info(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The quotas that the details name, and nobody's key.
fn quotas(status: &Status) -> Vec<String> {
    let details = status.check_error_details().expect("they can be read");
    let violations = details.quota_failure().map(|it| it.violations.clone());
    let names = violations.into_iter().flatten().map(|violation| {
        let named = QuotaViolation {
            subject: String::new(),
            ..violation.clone()
        };
        assert_eq!(
            format!("{named:?}"),
            format!("{violation:?}"),
            "nobody's key"
        );
        assert_eq!(violation.quota_id, violation.description);
        violation.quota_id
    });
    names.collect()
}

/// In all ways to be denied the details agree with the fields.
#[tokio::test]
async fn the_details_say_when_to_come_again() {
    let shown = Policy::new("a", Quota::per_hour(1));
    let hidden = Policy::new("b", Quota::per_minute(1)).hidden();
    let rule = Rule::with_policies("health", [shown, hidden]).expect("valid");
    let exhausted =
        async |_: Denied| Status::resource_exhausted("caf\u{e9}, 5 %").into_http::<AxumBody>();
    for (layer, names) in [
        (one(), "health"),
        (one().degrade(Problem), "health"),
        (one().degrade(exhausted), "health"),
        (RateLimitLayer::from_rule(rule), "a"),
    ] {
        let mut client = client_of(layer).await;
        answered(&mut client).await;
        let denied = failed(&mut client).await;
        let seconds = field(&denied, "retry-after").parse().expect("seconds");
        assert_eq!(retry_info(&denied), Some(Duration::from_secs(seconds)));
        assert_eq!(quotas(&denied), [names]);
        let status = tonic_types::Status::decode(denied.details()).expect("a status");
        assert_eq!(status.message, denied.message());
        assert_eq!(status.code, Code::ResourceExhausted as i32);
    }
    // No time helps, and other codes are no denials.
    let later = async |_: Denied| Status::unavailable("later").into_http::<AxumBody>();
    let never = failed(&mut client_of(none()).await).await;
    assert_eq!(
        (retry_info(&never), quotas(&never)),
        (None, vec!["health".to_owned()])
    );
    let unavailable = failed(&mut client_of(none().degrade(later)).await).await;
    assert!(unavailable.details().is_empty());
}

/// While a charge may come back, the fields say one second, and so do the details.
#[tokio::test]
async fn details_while_a_charge_may_come_back() {
    let refunded = || one().refund_if(|response| response.status.is_server_error());
    for layer in [refunded(), refunded().degrade(Problem)] {
        let address = start(layer).await;
        let mut slow = connect(address).await;
        let slow = tokio::spawn(async move { slow.check(request("slow")).await });
        SLOW.notified().await;
        let denied = failed(&mut connect(address).await).await;
        assert_eq!(field(&denied, "retry-after"), "1");
        assert_eq!(retry_info(&denied), Some(Duration::from_secs(1)));
        slow.abort();
    }
}

/// A method that is limited by code answers as a layer does.
#[tokio::test]
async fn details_of_a_refused_call() {
    let limits = Limits::new([Rule::new("orders", [Quota::per_minute(1)]).expect("valid")]);
    limits
        .check("orders", "anna")
        .await
        .expect("one is allowed");
    let refused = limits.check("orders", "anna").await.expect_err("used up");
    let status = Status::from_header_map(&refused.into_grpc_fields()).expect("a status");
    assert_eq!(retry_info(&status), Some(WINDOW));
    assert_eq!(quotas(&status), ["orders"]);
}

/// A stream that is denied never begins.
#[tokio::test]
async fn server_stream() {
    let mut client = client_of(one()).await;
    let messages = client.watch(request("")).await.expect("a stream");
    let mut messages = messages.into_inner();
    for _ in 0..3 {
        let message = messages.message().await.expect("no error");
        assert_eq!(message, Some(serving()));
    }
    assert_eq!(messages.message().await.expect("no error"), None);
    let denied = status(client.watch(request("")).await);
    assert!(is_quota_exceeded(&denied), "{denied:?}");
    assert!(!field(&denied, "retry-after").is_empty());
}

#[tokio::test]
async fn all_codes() {
    let tenant = Header::new("x-tenant");
    let undecided = one().store(Arc::new(MemoryStore::with_max_keys(0)));
    for (layer, code) in [
        (undecided.clone(), Code::Unavailable),
        (one().key(tenant), Code::InvalidArgument),
        // Nobody says where tonic's peers are.
        (one().key(PeerIp), Code::Internal),
        (one().cost(|_| panic!("no cost")), Code::Internal),
    ] {
        let mut client = client_of(layer).await;
        let failed = failed(&mut client).await;
        assert_eq!(failed.code(), code, "{failed:?}");
        assert_eq!(status(client.watch(request("")).await).code(), code);
    }
    let mut client = client_of(undecided.on_error(FailOpen)).await;
    answered(&mut client).await;
}

#[tokio::test]
async fn a_status_of_the_handler_is_its_own() {
    let mut client = client_of(one()).await;
    let full = status(client.check(request("full")).await);
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert_eq!(full.message(), "the disk is full");
    assert!(field(&full, "retry-after").is_empty());
}

#[tokio::test]
async fn a_callback_answers_with_a_status_of_tonic() {
    let later = async |_: Denied| Status::unavailable("later").into_http::<AxumBody>();
    let denied = failed(&mut client_of(none().degrade(later)).await).await;
    let (code, message) = (denied.code(), denied.message());
    assert_eq!((code, message), (Code::Unavailable, "later"));
}

/// Each address has its own limit.
async fn has_limit_for_each_peer(address: SocketAddr) {
    for from in ["127.0.0.1", "127.0.0.2"] {
        let mut client = connect_from(from, address).await;
        answered(&mut client).await;
        // A new connection is no new client.
        let mut client = connect_from(from, address).await;
        assert!(is_quota_exceeded(&failed(&mut client).await));
    }
}

#[tokio::test]
async fn peers() {
    let key = PeerIp.peer(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
    has_limit_for_each_peer(start(one().key(key)).await).await;

    let rule = "[rules.health]\nmax-count = 1\nwindow = \"1m\"\nkey = ";
    let rules = [
        format!("{rule}\"peer-ip\""),
        format!("client-ip.trusted = []\n{rule}\"client-ip\""),
    ];
    for file in rules {
        let limits = Limits::from_toml(&file).expect("valid");
        let limits = limits.peer(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
        has_limit_for_each_peer(start(limits.layer("health")).await).await;
    }
}

/// This package has no feature `test-util`: a mock is as in production, where all clients are one.
#[test]
fn a_mocked_peer_is_warned_of_once() {
    let (mut lines, writer) = std::io::pipe().expect("a pipe");
    let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(writer));
    let log = subscriber.finish().set_default();
    let (mut head, ()) = Request::new(()).into_parts();
    let mock = MockConnectInfo(SocketAddr::from(([203, 0, 113, 9], 1)));
    head.extensions.insert(mock);
    for _ in 0..3 {
        let key = PeerIp.extract(&head).expect("an address");
        assert_eq!(key.as_str(), "203.0.113.9");
    }
    drop(log);
    let mut text = String::new();
    lines.read_to_string(&mut text).expect("text");
    let is_told = text.contains("WARN") && text.contains("into_make_service_with_connect_info");
    assert!(is_told && text.lines().count() == 1, "{text}");
}

#[tokio::test]
async fn one_service_alone() {
    let (incoming, address) = listen().await;
    let server = Server::builder().add_service(none().named_layer(service()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = connect(address).await;
    assert!(is_quota_exceeded(&failed(&mut client).await));

    // What is not of this service is not limited.
    let other = post(address, "other.Service/Method", "application/grpc").await;
    assert_eq!(other.headers()["grpc-status"], "12");
}

/// On one port, with routes of HTTP.
#[tokio::test]
async fn an_axum_router() {
    let routes = Routes::new(service()).into_axum_router();
    let app = routes
        .route("/id", get(async || "1"))
        .layer(one().key(PeerIp));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { serve(listener, app).await });

    has_limit_for_each_peer(address).await;
    let request = "GET /id HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let head = http_1(address, request).await;
    let expected = [
        "HTTP/1.1 429 Too Many Requests\r\n",
        "\"violated-policies\":[\"health\"]",
    ];
    assert!(head.starts_with(expected[0]), "{head}");
    assert!(head.contains(expected[1]), "{head}");
}

/// Behind tonic's translation and in front of it.
#[tokio::test]
async fn grpc_web() {
    let server = || Server::builder().accept_http1(true);
    let (incoming, behind) = listen().await;
    let mut translated = server().layer(GrpcWebLayer::new()).layer(one());
    let translated = translated.add_service(service());
    tokio::spawn(translated.serve_with_incoming(incoming));
    let (incoming, in_front) = listen().await;
    let mut translated = server().layer(one()).layer(GrpcWebLayer::new());
    let translated = translated.add_service(service());
    tokio::spawn(translated.serve_with_incoming(incoming));
    for address in [behind, in_front] {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let client = ServiceBuilder::new()
            .layer(GrpcWebClientLayer::new())
            .service(client);
        let origin = format!("http://{address}").parse().expect("a url");
        let mut client = HealthClient::with_origin(client, origin);
        let allowed = client.check(request("")).await.expect("an answer");
        assert_eq!(allowed.into_inner(), serving());
        for denied in [
            status(client.check(request("")).await),
            status(client.watch(request("")).await),
        ] {
            assert!(is_quota_exceeded(&denied), "{denied:?}");
            assert!(!field(&denied, "retry-after").is_empty());
        }
    }
}

/// The layer around a client: the third call waits, or is denied without leaving.
#[tokio::test]
async fn a_channel_that_paces_its_own_calls() {
    let address = start(RateLimitLayer::new("health", WINDOW, 4)).await;
    let endpoint = Endpoint::new(format!("http://{address}")).expect("a valid url");
    let channel = endpoint.connect().await.expect("a server");
    let paced = |window| {
        let layer = RateLimitLayer::new("partner", window, 2).wait(Duration::from_secs(5));
        HealthClient::new(layer.layer(channel.clone()))
    };
    let window = Duration::from_millis(500);
    let (mut client, began) = (paced(window), Instant::now());
    for _ in 0..3 {
        client.check(request("")).await.expect("an answer");
    }
    assert!(began.elapsed() >= window);

    let mut client = paced(WINDOW);
    client.check(request("")).await.expect("an answer");
    // The server denies the fifth call that reaches it. The one after that does not leave.
    for by in ["health", "partner"] {
        let denied = status(client.check(request("")).await);
        assert_eq!(denied.code(), Code::ResourceExhausted);
        assert_eq!(denied.message(), format!("quota exceeded: {by}"));
    }
}

/// The details of a denial for good: its message and its quota, and no time.
const DETAILS: &str = "grpc-status-details-bin: CAgSFnF1b3RhIGV4Y2VlZGVkOiBoZWFsdGgaQQ\
     ordHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlF1b3RhRmFpbHVyZRISChASBmhlYWx0aCoGaGVhbHRo";

/// The bytes of a denial over HTTP/1, as a proxy in front of browsers sees them.
#[tokio::test]
async fn bytes_of_grpc_web() {
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .accept_http1(true)
        .layer(none())
        .add_service(service());
    tokio::spawn(server.serve_with_incoming(incoming));
    let request = "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nhost: a\r\n\
         content-type: application/grpc-web-text+proto\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n";
    let answer = http_1(address, request).await;
    let (answer, date) = answer.split_once("date: ").expect("a date");
    assert_eq!(
        answer,
        format!(
            "HTTP/1.1 200 OK\r\n\
         content-type: application/grpc-web-text+proto\r\n\
         grpc-status: 8\r\n\
         grpc-message: quota exceeded: health\r\n\
         ratelimit-policy: \"health\";q=0;w=60\r\n\
         ratelimit: \"health\";r=0;t=60\r\n\
         {DETAILS}\r\n\
         grpc-retry-pushback-ms: -1\r\n\
         connection: close\r\n\
         content-length: 0\r\n"
        )
    );
    assert!(date.ends_with("GMT\r\n\r\n"), "no body: {date:?}");
}

/// One frame with all fields, which ends the stream.
#[tokio::test]
async fn head_over_http_2() {
    let address = start(none()).await;
    let path = "grpc.health.v1.Health/Check";
    let response = post(address, path, "application/grpc+proto").await;
    assert_eq!(response.status(), StatusCode::OK);
    let fields = response.headers().iter();
    let fields = fields.filter(|(name, _)| *name != "date");
    let fields = fields.map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")));
    let fields: Vec<_> = fields.collect();
    assert_eq!(
        fields,
        [
            "content-type: application/grpc+proto",
            "grpc-status: 8",
            "grpc-message: quota exceeded: health",
            "ratelimit-policy: \"health\";q=0;w=60",
            "ratelimit: \"health\";r=0;t=60",
            DETAILS,
            "grpc-retry-pushback-ms: -1",
        ]
    );
    let body = response.into_body();
    assert!(axum::body::HttpBody::is_end_stream(&body));
    let body = body.collect().await.expect("a whole body");
    assert!(body.trailers().is_none() && body.to_bytes().is_empty());
}

/// tonic looks at no content type: a guess is one under each of them.
#[tokio::test]
async fn guesses_of_all_content_types() {
    let lockout = Lockout::after(5).hold([WINDOW]).on(["401", "grpc-16"]);
    let rule = Rule::new("health", [Quota::per_minute(1_000)]).expect("a rule");
    let rule = rule.with_key(Header::new("x-user")).with_lockout(lockout);
    let limits = Limits::new([rule.expect("it makes sense")]);
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(limits.layer("health"))
        .add_service(service());
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).build_http::<Full<Bytes>>();
    let kinds = [
        &["application/grpc"][..],
        &["application/grpc+proto"],
        &["application/grpc-web"],
        &["application/grpc-web-text+proto"],
        &["application/grpcx"],
        &["application/octet-stream"],
        &["application/json"],
        &["application/connect+json"],
        &["application/connect+proto"],
        &["text/plain"],
        &[],
        &["application/json", "application/grpc"],
    ];
    let mut seen = Vec::new();
    for kind in kinds.iter().cycle().take(36) {
        let uri = format!("http://{address}/grpc.health.v1.Health/Check");
        let request = Request::post(uri).header("x-user", "ada");
        let request = kind.iter().fold(request, |request, kind| {
            request.header("content-type", *kind)
        });
        let body = Full::new(Bytes::from_static(b"\0\0\0\0\x07\x0a\x05guess"));
        let request = request.body(body).expect("a valid request");
        let answer = client.request(request).await.expect("an answer");
        seen.push(format!("{} {:?}", answer.status(), answer.headers()));
    }
    assert_eq!(GUESSES.load(Ordering::Relaxed), 5, "{seen:#?}");
}

/// A POST over HTTP/2.
async fn post(address: SocketAddr, path: &str, content_type: &str) -> HttpResponse<Incoming> {
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).build_http::<Empty<Bytes>>();
    let uri = format!("http://{address}/{path}");
    let request = Request::post(uri).header("content-type", content_type);
    let request = request.body(Empty::new()).expect("a valid request");
    client.request(request).await.expect("an answer")
}

/// The answer to a request over HTTP/1.
async fn http_1(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a server");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}
