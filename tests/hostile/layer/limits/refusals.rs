//! `Refused`: the response that a layer would have given, and nothing that only the log may know.

use std::error::Error;

use super::*;

/// What `{}`, `{:?}`, `{:#?}` and the chain of sources say.
fn told(refused: &Refused) -> String {
    let mut told = format!("{refused}\n{refused:?}\n{refused:#?}");
    let mut source = refused.source();
    while let Some(error) = source {
        told = format!("{told}\n{error}\n{error:?}\n{error:#?}");
        source = error.source();
    }
    told
}

/// No key, no address of a server, no password, in whatever form a refusal is shown.
#[tokio::test]
async fn what_a_refusal_tells() {
    let ip: std::net::IpAddr = "198.51.100.77".parse().expect("an address");
    let keys = [
        Key::from("s3cret-alice"),
        Header::new("x-user").key("s3cret-alice"),
        Bearer.key("s3cret-alice"),
        Key::from(ip),
    ];
    let mut server = Redis::start();
    let url = server.url.replace("//", "//default:s3cret@");
    kit::run(&server, "CONFIG SET requirepass s3cret");
    let redis = RedisStore::connect(&*url).await.expect("the password");
    let redis: Arc<dyn Store> = Arc::new(redis.timeout(millis(300)));
    let limits = Limits::new([hourly("a", 0)]).store(redis);
    let address = server.url.clone();
    let (host, port) = address.rsplit_once(':').expect("a port");
    let host = host.trim_start_matches("redis://");
    let secrets = ["s3cret", "198.51.100.77", host, port];
    for is_up in [true, false] {
        if !is_up {
            server.kill();
        }
        for key in &keys {
            let refuse = async || limits.check("a", key.clone()).await.expect_err("nobody");
            let refused = refuse().await;
            // What a client is shown.
            let shown = format!("{refused}\n{}", seen(refuse().await.into_response()).await);
            for secret in secrets {
                assert!(!shown.contains(secret), "{is_up}: {secret} in {shown}");
            }
            let told = told(&refused);
            for secret in ["s3cret", "198.51.100.77", key.as_str()] {
                assert!(!told.contains(secret), "{is_up}: {secret} in {told}");
            }
        }
    }
}
