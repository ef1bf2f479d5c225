//! A tonic server with a limit for each client address, and a client that is denied: five answers,
//! and then the status `RESOURCE_EXHAUSTED` with the time to wait.
//!
//! `cargo run -p tidegate-grpc-example`

use std::time::Duration;

use tidegate::{PeerIp, RateLimitLayer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Request;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Each client address: at most five calls in any ten seconds. tonic puts the address into the
    // extensions of each request.
    let peer = PeerIp.peer(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
    let limited = RateLimitLayer::new("health", Duration::from_secs(10), 5).key(peer);

    // Any service does: this one answers whether the server is healthy.
    let (_reporter, service) = health_reporter();
    let server = Server::builder().layer(limited).add_service(service);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut client = HealthClient::new(Endpoint::new(url)?.connect().await?);
    for call in 1..=6 {
        let request = Request::new(HealthCheckRequest::default());
        match client.check(request).await {
            Ok(answer) => println!("call {call}: {:?}", answer.into_inner().status()),
            Err(status) => {
                let retry_after = status.metadata().get("retry-after");
                let seconds = retry_after.map_or("?", |value| value.to_str().unwrap_or("?"));
                let (code, message) = (status.code() as i32, status.message());
                println!("call {call}: status {code}, {message:?}, come back in {seconds} s");
            }
        }
    }
    Ok(())
}
