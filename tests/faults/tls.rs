//! Certificates that do not fit, and ports that speak something else. `openssl` makes the
//! certificates.

use kit::certificates::{Certificates, HERE};
use tidegate::store::StoreErrorKind::{Timeout, Unavailable};

use crate::fault::Fault;
use crate::*;

/// A server with a plain port and one for TLS.
struct Server {
    redis: Redis,
    tls_url: String,
    certificates: Certificates,
}

impl Server {
    fn start() -> Self {
        let certificates = Certificates::make();
        let (redis, tls_url) = certificates.server("good", "authority", "no");
        Self {
            redis,
            tls_url,
            certificates,
        }
    }

    /// From now on it shows this certificate to who comes.
    fn shows(&self, name: &str) {
        let [certificate, key] =
            ["crt", "key"].map(|it| self.certificates.path(&format!("{name}.{it}")));
        let set = format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}");
        run(&self.redis, &set);
    }

    /// A store that trusts the authority, and nobody else.
    fn store(&self, url: &str) -> RedisStore {
        let address = self.certificates.address(url, "authority.crt");
        RedisStore::connect_lazy(address).expect("a valid address")
    }
}

/// The server shows such a certificate, and then a good one.
async fn shown(name: &'static str, authority: &str, host: &str, days: &str) {
    let server = Server::start();
    server.certificates.certify("bad", authority, host, days);
    server.shows("bad");
    let store = server.store(&server.tls_url);
    let fault = Fault::before(name, store).gives(&[Unavailable]);
    fault.lasts(WHILE).await;
    server.shows("good");
    fault.ends().await;
}

kit::cases! {
    an_expired_certificate: shown("TLS: expired", "authority", HERE, "-1");
    a_certificate_for_another_host:
        shown("TLS: another host's", "authority", "DNS:other.example", "10");
    a_certificate_by_an_unknown_authority: shown("TLS: unknown authority", "unknown", HERE, "10");
}

/// The server waits for the end of what it takes for a command, so the client gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_port_addressed_with_tls() {
    let server = Server::start();
    let proxy = Proxy::start(&server.redis.url).await;
    let store = server.store(&proxy.url.replace("redis", "rediss"));
    let fault = Fault::before("TLS: rediss:// on a plain port", store);
    let fault = fault.gives(&[Timeout, Unavailable]);
    fault.lasts(WHILE).await;
    proxy.lead_to(&server.tls_url);
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_port_addressed_without() {
    let server = Server::start();
    let proxy = Proxy::start(&server.tls_url).await;
    let store = RedisStore::connect_lazy(&proxy.url).expect("a valid address");
    let fault = Fault::before("TLS: redis:// on a TLS port", store);
    let fault = fault.gives(&[Unavailable]);
    fault.lasts(WHILE).await;
    proxy.lead_to(&server.redis.url);
    fault.ends().await;
}
