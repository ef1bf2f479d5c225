//! Calls to partners over TCP, through real clients: an API that answers as GitHub does, and services
//! of tonic, whose status is in the head or in the trailers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse;
use tidegate::limits::OutgoingService;
use tonic_types::ErrorDetails;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Two processes that share a store.
fn processes() -> [Limits; 2] {
    let store = Arc::new(MemoryStore::new());
    let rule = || Rule::new("partner", [Quota::per_minute(1_000)]).and_then(Rule::with_outgoing);
    [(); 2].map(|()| Limits::new([rule().expect("one subject")]).store(store.clone()))
}

/// For how many seconds these processes get no turn, rounded up.
async fn held(processes: &[Limits; 2]) -> Option<u64> {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    let mut times = Vec::new();
    for limits in processes {
        let refused = limits
            .outgoing("partner")
            .ready(tidegate::Key::default())
            .await;
        let time = refused.err().and_then(|refused| refused.retry_after());
        times.push(time.map(|time| time.as_secs_f64().ceil() as u64));
    }
    assert_eq!(times[0].is_some(), times[1].is_some(), "{times:?}");
    times[1]
}

/// The fields that GitHub documents, with a `Date` of hyper's.
async fn github(Path(path): Path<String>) -> HttpResponse<AxumBody> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let reset = (now.expect("after 1970").as_secs() + 1_800).to_string();
    let (status, remaining, retry_after) = match &*path {
        "primary" => (403, "0", None),
        "primary-429" => (429, "0", None),
        "secondary" => (403, "4978", Some("60")),
        "last" => (200, "0", None),
        "not-yours" => (403, "4978", None),
        _ => (200, "4978", None),
    };
    let answer = HttpResponse::builder().status(status);
    let answer = answer.header("x-ratelimit-remaining", remaining);
    let answer = answer.header("x-ratelimit-reset", reset);
    let answer = match retry_after {
        Some(seconds) => answer.header("retry-after", seconds),
        None => answer,
    };
    answer.body("{}".into()).expect("valid")
}

#[tokio::test]
async fn an_api_that_answers_as_github_does() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = async move |path: Path<String>| {
        counted.fetch_add(1, Ordering::Relaxed);
        github(path).await.into_response()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new().route("/{path}", get(handler));
    tokio::spawn(async move { serve(listener, app).await });

    for (path, expected) in [
        ("user", None),
        ("not-yours", None),
        ("primary", Some(1_799..=1_801)),
        ("primary-429", Some(1_799..=1_801)),
        ("secondary", Some(59..=60)),
        ("last", Some(1_799..=1_801)),
    ] {
        let (processes, before) = (processes(), calls.load(Ordering::Relaxed));
        let clients = processes.each_ref().map(|limits| {
            let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
            limits.outgoing("partner").layer(client)
        });
        let request = || {
            let request = Request::get(format!("http://{address}/{path}"));
            request.body(Empty::new()).expect("valid")
        };
        let [mut first, mut second] = clients;
        let answer = tower::Service::call(&mut first, request()).await;
        let body = answer.expect("the partner's").into_body().collect().await;
        assert_eq!(body.expect("a whole body").to_bytes(), "{}");
        let time = held(&processes).await;
        assert_eq!(time.is_some(), expected.is_some(), "{path}: {time:?}");
        if let (Some(time), Some(expected)) = (time, &expected) {
            assert!(expected.contains(&time), "{path}: {time}");
        }
        // Who would be refused again does not ask.
        let sent = tower::Service::call(&mut second, request()).await.is_ok();
        assert_eq!(sent, expected.is_none(), "{path}");
        let expected = if sent { 2 } else { 1 };
        assert_eq!(calls.load(Ordering::Relaxed) - before, expected, "{path}");
    }
}

/// Refuses a watcher after its first message, and every check, for as long as the request says.
struct Busy;

fn busy(seconds: &str) -> Status {
    let time = seconds.parse().map(Duration::from_secs);
    let details = ErrorDetails::with_retry_info(time.ok());
    match seconds {
        "" => Status::resource_exhausted("the disk is full"),
        "unavailable" => {
            let details = ErrorDetails::with_retry_info(Some(HOUR / 2));
            Status::with_error_details(Code::Unavailable, "restarting", details)
        }
        "internal" => {
            let details = ErrorDetails::with_retry_info(Some(HOUR / 2));
            Status::with_error_details(Code::Internal, "broken", details)
        }
        _ => Status::with_error_details(Code::ResourceExhausted, "too many", details),
    }
}

#[tonic::async_trait]
impl Health for Busy {
    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Err(busy(&request.into_inner().service))
    }

    type WatchStream = tokio_stream::Iter<std::vec::IntoIter<Result<HealthCheckResponse, Status>>>;

    async fn watch(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let messages = vec![Ok(serving()), Err(busy(&request.into_inner().service))];
        Ok(Response::new(tokio_stream::iter(messages)))
    }
}

/// A client of the service at this address, whose calls are those of the process.
async fn client(limits: &Limits, address: SocketAddr) -> HealthClient<OutgoingService<Channel>> {
    let endpoint = Endpoint::new(format!("http://{address}")).expect("a valid url");
    let channel = endpoint.connect().await.expect("a server");
    HealthClient::new(limits.outgoing("partner").layer(channel))
}

#[tokio::test]
async fn retry_info_in_the_head_and_in_the_trailers() {
    let (incoming, address) = listen().await;
    let server = Server::builder().add_service(HealthServer::new(Busy));
    tokio::spawn(server.serve_with_incoming(incoming));
    for (says, expected) in [
        ("600", Some(600)),
        ("unavailable", Some(1_800)),
        // What nobody may hold for longer than.
        ("315576000000", Some(3_600)),
        ("0", None),
        ("", None),
        ("internal", None),
    ] {
        let limits = processes();
        let refused = client(&limits[0], address).await.check(request(says)).await;
        assert!(refused.is_err());
        let is_expected = |time: Option<u64>| match (time, expected) {
            (Some(time), Some(expected)) => (expected - 9..=expected).contains(&time),
            (time, expected) => time == expected,
        };
        let time = held(&limits).await;
        assert!(is_expected(time), "{says} in the head: {time:?}");

        let limits = processes();
        let stream = client(&limits[0], address).await.watch(request(says)).await;
        let mut stream = stream.expect("it begins").into_inner();
        assert_eq!(stream.message().await.expect("no error"), Some(serving()));
        assert_eq!(held(&limits).await, None, "the trailers have not come");
        assert!(stream.message().await.is_err());
        let time = held(&limits).await;
        assert!(is_expected(time), "{says} in the trailers: {time:?}");
    }
}

/// A layer of this crate in front of the partner: its callers obey what it says.
#[tokio::test]
async fn our_own_denials() {
    let address = start(one()).await;
    let limits = processes();
    for is_answered in [true, false] {
        let answer = client(&limits[0], address).await.check(request("")).await;
        assert_eq!(answer.is_ok(), is_answered);
        let time = held(&limits).await;
        assert!(
            time.is_some_and(|time| (50..=60).contains(&time)),
            "{time:?}"
        );
        let reset = limits[0].reset("partner", tidegate::Key::default()).await;
        assert!(reset.expect("an answer"));
    }
}
