//! Certificates that do not fit, and ports that speak something else. `openssl` makes the
//! certificates.

use redis_test::utils::get_random_available_port;
use tidegate::redis::RedisAddress;
use tidegate::store::StoreErrorKind::{Timeout, Unavailable};

use crate::fault::Fault;
use crate::*;

/// Where the server is.
const HERE: &str = "IP:127.0.0.1";

/// A server with a plain port and one for TLS.
struct Server {
    redis: Redis,
    tls_url: String,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for authority in ["authority", "unknown"] {
            certify_authority(folder.path(), authority);
        }
        certify(folder.path(), "good", "authority", HERE, "10");
        let port = get_random_available_port().to_string();
        let file = |name| folder.path().join(name).display().to_string();
        let [authority, certificate, key] = ["authority.crt", "good.crt", "good.key"].map(file);
        let redis = Redis::start_with(&words(&format!(
            "--tls-port {port} --tls-auth-clients no --tls-ca-cert-file {authority} \
             --tls-cert-file {certificate} --tls-key-file {key}"
        )));
        Self {
            redis,
            tls_url: format!("rediss://127.0.0.1:{port}"),
            folder,
        }
    }

    /// From now on it shows this certificate to who comes.
    fn shows(&self, name: &str) {
        let file = self.folder.path().join(name).display().to_string();
        let set = "CONFIG SET tls-cert-file";
        run(
            &self.redis,
            &format!("{set} {file}.crt tls-key-file {file}.key"),
        );
    }

    /// A store that trusts the authority, and nobody else.
    fn store(&self, url: &str) -> RedisStore {
        let authority = std::fs::read(self.folder.path().join("authority.crt")).expect("a file");
        let address = RedisAddress::from_url(url).expect("a valid address");
        let address = address.authority(authority).expect("a certificate");
        RedisStore::connect_lazy(address).expect("a valid address")
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(done.expect("openssl runs").success(), "{arguments}");
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn certify_authority(folder: &Path, name: &str) {
    let files = format!("-keyout {name}.key -out {name}.crt -days 10 -subj /CN={name}");
    openssl(folder, &format!("req -x509 {NEW_KEY} {files}"));
}

/// A certificate by this authority for this host and so many days.
fn certify(folder: &Path, name: &str, authority: &str, host: &str, days: &str) {
    let extensions = format!("subjectAltName={host}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(folder.join("extensions"), extensions).expect("a file");
    let files = format!("-keyout {name}.key -out {name}.csr -subj /CN={name}");
    openssl(folder, &format!("req {NEW_KEY} {files}"));
    let by = format!("-CA {authority}.crt -CAkey {authority}.key -CAcreateserial");
    let files = format!("-in {name}.csr -out {name}.crt -extfile extensions");
    openssl(folder, &format!("x509 -req {files} {by} -days {days}"));
}

/// The server shows such a certificate, and then a good one.
async fn shown(name: &'static str, authority: &str, host: &str, days: &str) {
    let server = Server::start();
    certify(server.folder.path(), "bad", authority, host, days);
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
