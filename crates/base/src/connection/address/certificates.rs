use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::connection::errors::invalid_address;
use crate::error::StoreError;

/// Which authority a TLS connection trusts, and which certificate it shows.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    authority: Option<Vec<u8>>,
    /// The certificate to show, and its private key.
    client: Option<(Vec<u8>, Vec<u8>)>,
    /// An address that carries both, as the Redis client has read them.
    parsed: Option<ConnectionAddr>,
}

impl Certificates {
    /// Sets the trusted authority, from PEM.
    pub(super) fn set_authority(&mut self, authority: &[u8]) -> Result<(), StoreError> {
        // The client accepts a text without certificates, and then trusts no server.
        check_certificates(authority)?;
        self.authority = Some(authority.into());
        self.parse()
    }

    /// Sets the certificate to show and its private key, from PEM.
    pub(super) fn set_client(&mut self, certificate: &[u8], key: &[u8]) -> Result<(), StoreError> {
        // The client accepts a text without them, and fails when it connects.
        check_certificates(certificate)?;
        PrivateKeyDer::from_pem_slice(key).map_err(|_| unreadable())?;
        self.client = Some((certificate.into(), key.into()));
        self.parse()
    }

    /// Has the Redis client read both. It can only do so for a whole address.
    fn parse(&mut self) -> Result<(), StoreError> {
        let client_tls = self.client.clone();
        let client_tls = client_tls.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        });
        let certificates = TlsCertificates {
            client_tls,
            root_cert: self.authority.clone(),
        };
        let client = Client::build_with_tls("rediss://localhost", certificates);
        let client = client.map_err(|_| unreadable())?;
        self.parsed = Some(client.get_connection_info().addr().clone());
        Ok(())
    }

    /// The address with these certificates, if its connections use TLS.
    pub(super) fn apply(&self, info: ConnectionInfo) -> ConnectionInfo {
        let (Some(ConnectionAddr::TcpTls { tls_params, .. }), ConnectionAddr::TcpTls { .. }) =
            (&self.parsed, info.addr())
        else {
            return info;
        };
        let mut addr = info.addr().clone();
        if let ConnectionAddr::TcpTls {
            tls_params: params, ..
        } = &mut addr
        {
            params.clone_from(tls_params);
        }
        info.set_addr(addr)
    }
}

/// Checks that there is at least one certificate, and that each can be read.
fn check_certificates(pem: &[u8]) -> Result<(), StoreError> {
    let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
    let is_some = certificates.peek().is_some();
    let are_readable = certificates.all(|certificate| certificate.is_ok_and(|it| !it.is_empty()));
    (is_some && are_readable)
        .then_some(())
        .ok_or_else(unreadable)
}

/// The error does not repeat the text: it may hold a private key.
fn unreadable() -> StoreError {
    invalid_address("expected certificates, and keys with them, as PEM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_an_error_that_does_not_repeat_it() {
        for garbage in ["", "s3cret", "-----BEGIN CERTIFICATE-----\ns3cret"] {
            let error = Certificates::default().set_authority(garbage.as_bytes());
            let error = error.expect_err("no certificate").to_string();
            assert!(error.contains("expected certificates"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
            let error = Certificates::default().set_client(garbage.as_bytes(), b"s3cret");
            assert!(!error.expect_err("no key").to_string().contains("s3cret"));
        }
    }
}
