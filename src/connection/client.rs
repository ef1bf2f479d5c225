//! How every TCP connection of this crate is configured.

use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, RedisResult};

/// TCP probes an idle connection this often. A connection that does not answer a few probes is
/// closed.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// TCP closes a connection whose sent bytes stay unacknowledged for this long.
#[cfg(target_os = "linux")]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// A client that speaks RESP3: with it, an idle connection that is closed is noticed at once, and
/// messages of channels arrive on the connection of the questions.
pub(super) fn client(info: ConnectionInfo) -> RedisResult<Client> {
    let settings = info.redis_settings().clone();
    client_as_is(info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
}

/// A client that speaks the protocol version that `info` names.
pub(super) fn client_as_is(info: ConnectionInfo) -> RedisResult<Client> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(MAX_UNACKNOWLEDGED);
    let info = info.set_tcp_settings(tcp);
    #[cfg(feature = "tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // If the application has installed a provider before, this fails and that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::open(info)
}

/// A connection without time limits of its own: every caller limits the time of the whole
/// operation.
///
/// The client's own limits would be a second timeout beside ours. Its response timeout counts for
/// each request, and ends a pipeline whose replies are still under way.
pub(super) fn unbounded() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}
