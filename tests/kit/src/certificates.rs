//! Certificates that `openssl` makes, and servers that show them.

use std::path::Path;
use std::process::{Command, Stdio};

use redis_test::utils::get_random_available_port;
use tempfile::TempDir;
use tidegate::redis::RedisAddress;

use crate::{Redis, words};

/// Where servers are.
pub const HERE: &str = "IP:127.0.0.1";

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// A folder of certificates and keys, `NAME.crt` and `NAME.key`: `authority` and `unknown`, which
/// sign others, and `good`, which the first of them signed for this machine.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub fn make() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let all = Self { folder };
        for name in ["authority", "unknown"] {
            all.sign_itself(name, "");
        }
        all.certify("good", "authority", HERE, "10");
        all
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.current_dir(self.folder()).args(words(arguments));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.expect("openssl runs").success(), "{arguments}");
    }

    /// A certificate that signs itself, with more options.
    pub fn sign_itself(&self, name: &str, more: &str) {
        let files = format!("-keyout {name}.key -out {name}.crt -days 10 -subj /CN={name}");
        self.openssl(&format!("req -x509 {NEW_KEY} {files} {more}"));
    }

    /// A certificate by this authority for this host and so many days.
    pub fn certify(&self, name: &str, authority: &str, host: &str, days: &str) {
        let extensions = format!("subjectAltName={host}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(self.path("extensions"), extensions).expect("a file");
        let files = format!("-keyout {name}.key -out {name}.csr -subj /CN={name}");
        self.openssl(&format!("req {NEW_KEY} {files}"));
        let by = format!("-CA {authority}.crt -CAkey {authority}.key -CAcreateserial");
        let files = format!("-in {name}.csr -out {name}.crt -extfile extensions");
        self.openssl(&format!("x509 -req {files} {by} -days {days}"));
    }

    /// A server that shows this certificate at a port for TLS, and its URL there. It wants to see
    /// its client's by this authority, if `clients` is `yes`.
    pub fn server(&self, shown: &str, authority: &str, clients: &str) -> (Redis, String) {
        let port = get_random_available_port().to_string();
        let file = |name: &str, kind: &str| self.path(&format!("{name}.{kind}"));
        let server = Redis::start_with(&words(&format!(
            "--tls-port {port} --tls-auth-clients {clients} --tls-ca-cert-file {} \
             --tls-cert-file {} --tls-key-file {}",
            file(authority, "crt"),
            file(shown, "crt"),
            file(shown, "key")
        )));
        (server, format!("rediss://127.0.0.1:{port}"))
    }

    /// An address of a server whose certificate is to be by this authority.
    pub fn address(&self, url: &str, authority: &str) -> RedisAddress {
        let address = RedisAddress::from_url(url).expect("an address");
        let address = address.authority(self.read(authority));
        address.expect("a certificate")
    }
}
