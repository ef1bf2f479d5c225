//! Where Redis is: one server, a cluster, or a master that sentinels look after, and the URLs of
//! these.
//!
//! An address is read and checked once, before anything connects; the credentials that a callback or
//! a file gives are read again for each attempt. It holds logins and private keys,
//! so no error, `Debug` or `Display` shows more of it than hosts, ports and the name of a master.

#[cfg(feature = "tls")]
mod certificates;
mod credentials;
mod url;

use std::fmt;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

#[cfg(feature = "tls")]
use self::certificates::Certificates;
pub use self::credentials::Credentials;
use self::credentials::CredentialsProvider;
pub(super) use self::credentials::Server;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use super::errors::invalid_address;
use crate::error::StoreError;

/// Where Redis is: one server, a cluster (feature `cluster`), or a master that sentinels look after
/// (feature `sentinel`).
///
/// Every address can be written as a URL, so that one setting of a service can name any of them:
///
/// | | URL |
/// |---|---|
/// | one server | `redis://[user:password@]host[:6379][/db]` |
/// | one server, over TLS (feature `tls`) | `rediss://[user:password@]host[:6379][/db]` |
/// | one server, by its socket | `unix:///path[?db=0&user=...&pass=...]` |
/// | a cluster: any of its nodes | `redis-cluster://[user:password@]host[:6379][,host[:6379]...]` |
/// | a master by its name, and its sentinels | `redis-sentinel://[user:password@]host[:26379][,host[:26379]...]/name[/db]` |
///
/// - `rediss-cluster://` and `rediss-sentinel://` use TLS for every connection, also for those to
///   the sentinels.
/// - The user, the password and the database are those of the servers that hold the data. Sentinels
///   that need a login get it as `?sentinel_username=...&sentinel_password=...`.
/// - Special characters are percent-encoded: `%40` for `@`, `%2F` for `/`, `%3F` for `?`, `%23` for
///   `#`.
/// - `valkey` may be written instead of `redis`, and `valkeys` instead of `rediss`.
/// - In a cluster only the database 0 works, also on Valkey 9 with `cluster-databases`.
///
/// `Debug` and `Display` show hosts and ports, and never a user or a password.
///
/// ```
/// use tidegate::redis::RedisAddress;
///
/// # fn main() -> Result<(), tidegate::StoreError> {
/// let address = RedisAddress::single("redis://limits.example:6379")?
///     .username("gate")
///     .password("s3cret");
/// assert_eq!(address.to_string(), "redis at limits.example:6379");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisAddress {
    pub(super) topology: Topology,
    /// The server, nodes of the cluster, or the sentinels.
    pub(super) seeds: Vec<ConnectionInfo>,
    /// User, password and database at the servers that hold the data.
    data: RedisConnectionInfo,
    /// Whether connections to the servers that hold the data use TLS.
    is_tls: bool,
    /// Gives the credentials for the servers that hold the data.
    credentials: Option<CredentialsProvider>,
    /// Gives those for the sentinels.
    #[cfg(feature = "sentinel")]
    sentinel_credentials: Option<CredentialsProvider>,
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    resolve: Option<Arc<Resolve>>,
    #[cfg(feature = "tls")]
    certificates: Certificates,
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
type Resolve = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

/// What the hosts of an address are.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Topology {
    Single,
    #[cfg(feature = "cluster")]
    Cluster,
    /// Sentinels of the master with this name.
    #[cfg(feature = "sentinel")]
    Sentinel(Box<str>),
}

impl RedisAddress {
    /// One server: `redis://[user:password@]host[:6379][/db]`, `unix:///path`, or with the feature
    /// `tls` `rediss://...`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// the URL makes no sense. The error repeats nothing of the URL: it may hold a password.
    pub fn single(url: impl AsRef<str>) -> Result<Self, StoreError> {
        let server = url::server(url.as_ref())?;
        Ok(Self::new(Topology::Single, vec![server]))
    }

    /// A cluster, by the URLs of some of its nodes, each as for [`single`](Self::single). The other
    /// nodes are found through any of these that answers.
    ///
    /// ```
    /// use tidegate::redis::RedisAddress;
    ///
    /// # fn main() -> Result<(), tidegate::StoreError> {
    /// let nodes = ["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"];
    /// let address = RedisAddress::cluster(nodes)?;
    /// assert_eq!(address.to_string(), "redis cluster at 10.0.0.1:7000, 10.0.0.2:7000");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// there is no URL, if one makes no sense, or if they differ in user, password, database or
    /// TLS.
    #[cfg(feature = "cluster")]
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, StoreError> {
        let nodes = url::servers_alike(urls)?;
        Ok(Self::new(Topology::Cluster, nodes))
    }

    /// A master, by its name and the URLs of its sentinels, each as for [`single`](Self::single).
    ///
    /// Users, passwords and TLS in these URLs apply to the sentinels only. Those of the master are
    /// set by [`username`](Self::username), [`password`](Self::password) and `tls`.
    ///
    /// ```
    /// use tidegate::redis::RedisAddress;
    ///
    /// # fn main() -> Result<(), tidegate::StoreError> {
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"];
    /// let address = RedisAddress::sentinel(sentinels, "limits")?.password("s3cret").db(2);
    /// assert_eq!(
    ///     address.to_string(),
    ///     "redis master limits of the sentinels at 10.0.0.1:26379, 10.0.0.2:26379"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// there is no URL, if one makes no sense, or if the name is empty.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: impl AsRef<str>,
    ) -> Result<Self, StoreError> {
        let master = master.as_ref();
        if master.is_empty() {
            return Err(invalid_address("the name of the master is missing"));
        }
        let sentinels = url::servers(urls)?;
        let mut address = Self::new(Topology::Sentinel(master.into()), sentinels);
        address.data = RedisConnectionInfo::default();
        address.is_tls = false;
        Ok(address)
    }

    /// An address with the login, the database and TLS of the first server.
    fn new(topology: Topology, seeds: Vec<ConnectionInfo>) -> Self {
        let first = seeds.first().expect("an address has at least one URL");
        let is_tls = matches!(first.addr(), ConnectionAddr::TcpTls { .. });
        Self {
            topology,
            data: first.redis_settings().clone(),
            is_tls,
            credentials: None,
            #[cfg(feature = "sentinel")]
            sentinel_credentials: None,
            #[cfg(any(feature = "cluster", feature = "sentinel"))]
            resolve: None,
            #[cfg(feature = "tls")]
            certificates: Certificates::default(),
            seeds,
        }
    }

    /// The user at the servers that hold the data. Default: that of the URL, or Redis's default
    /// user.
    #[must_use]
    pub fn username(mut self, username: impl AsRef<str>) -> Self {
        self.data = self.data.set_username(username);
        self
    }

    /// The password at the servers that hold the data. Default: that of the URL, or none.
    #[must_use]
    pub fn password(mut self, password: impl AsRef<str>) -> Self {
        self.data = self.data.set_password(password);
        self
    }

    /// The closure that is asked for the password at the servers that hold the data before each
    /// attempt to connect, for passwords that change: tokens of ElastiCache or Azure, secrets of
    /// Vault. Default: the password never changes.
    ///
    /// It may be asked for several connections at once, and up to eight times a second for a server
    /// that is away: what costs, keep in the closure. It has 1.5 seconds, and its future may be
    /// dropped. An error is a refused connection: a [`StoreError`] of the kind
    /// [`Refused`](crate::error::StoreErrorKind::Refused) that repeats its text, until a later
    /// attempt succeeds. A panic counts as an error.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tidegate::redis::{Credentials, RedisAddress};
    ///
    /// # async fn iam_token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # fn main() -> Result<(), tidegate::StoreError> {
    /// let address = RedisAddress::from_url("redis-cluster://limits.example")?
    ///     .username("gate")
    ///     .credentials(async || {
    ///         let until = Instant::now() + Duration::from_secs(15 * 60);
    ///         iam_token().await.map(|token| Credentials::new(token).until(until))
    ///     });
    /// # let _ = address;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn credentials<F, E>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.credentials = Some(CredentialsProvider::of(ask));
        self
    }

    /// The file that has the password at the servers that hold the data. It is read before each
    /// attempt to connect, so another process may replace it, and it may be missing at first; a
    /// line feed at its end is left out. What is wrong with it is an error as that of a
    /// [closure](Self::credentials), also that it is no regular file, or larger than 64 KiB; links
    /// are followed. Default: no file.
    #[must_use]
    pub fn password_file(mut self, path: impl AsRef<Path>) -> Self {
        self.credentials = Some(CredentialsProvider::from_file(path.as_ref()));
        self
    }

    /// The closure that is asked for the password at the sentinels, as by
    /// [`credentials`](Self::credentials). Default: those of the sentinels' URLs.
    #[cfg(feature = "sentinel")]
    #[must_use]
    pub fn sentinel_credentials<F, E>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.sentinel_credentials = Some(CredentialsProvider::of(ask));
        self
    }

    /// Where a server is reached that a cluster or sentinels name by this host and port, as behind
    /// a NAT or port-forwards. Hosts of the address itself are reached as they are. TLS checks the
    /// host that is returned. It is asked when a server is named first; after a panic that server
    /// is tried as it was named. Default: servers are reached as they are named.
    ///
    /// ```
    /// use tidegate::redis::RedisAddress;
    ///
    /// # fn main() -> Result<(), tidegate::StoreError> {
    /// let address = RedisAddress::from_url("redis-cluster://127.0.0.1:7000")?
    ///     .resolve(|_host, port| ("127.0.0.1".to_owned(), port));
    /// # let _ = address;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    #[must_use]
    pub fn resolve(
        mut self,
        resolve: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.resolve = Some(Arc::new(move |host, port| {
            let reached = catch_unwind(AssertUnwindSafe(|| resolve(host, port)));
            reached.unwrap_or_else(|_| (host.to_owned(), port))
        }));
        self
    }

    /// The database. Default: that of the URL, or 0. In a cluster only the database 0 works;
    /// connecting with another one fails.
    #[must_use]
    pub fn db(mut self, db: u32) -> Self {
        self.data = self.data.set_db(i64::from(db));
        self
    }

    /// Uses TLS for connections to the servers that hold the data. Default: as the URLs of the
    /// server or the nodes say; no TLS to a master that [sentinels](Self::sentinel) name.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    /// Trusts only these certificate authorities, one or more in PEM form, for all connections with
    /// TLS. Default: the authorities that the system trusts.
    ///
    /// This is the answer to a self-signed certificate, since no setting switches checks off. Give
    /// the certificate that signed the server's. A certificate that signed itself does if it names
    /// the host and says that it is no authority; `openssl req -x509` needs
    /// `-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:limits.example`, and
    /// else the error is `CaUsedAsEndEntity`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// the text contains no certificate.
    #[cfg(feature = "tls")]
    pub fn authority(mut self, certificate: impl AsRef<[u8]>) -> Result<Self, StoreError> {
        self.certificates.set_authority(certificate.as_ref())?;
        Ok(self.certified())
    }

    /// Shows this certificate to servers and sentinels, for all connections with TLS. The
    /// certificate and its private key are in PEM form. Default: none.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// the texts contain no certificate or no key.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Self, StoreError> {
        self.certificates
            .set_client(certificate.as_ref(), key.as_ref())?;
        Ok(self.certified())
    }

    /// The address with the certificates applied to its servers.
    #[cfg(feature = "tls")]
    fn certified(mut self) -> Self {
        let seeds = self.seeds.into_iter();
        self.seeds = seeds.map(|seed| self.certificates.apply(seed)).collect();
        self
    }

    /// The connection settings of a server that holds data.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(super) fn server(&self, host: &str, port: u16) -> Server {
        let resolve = self.resolve.as_ref();
        let reached = resolve.map(|resolve| resolve(host, port));
        let (host, port) = reached.unwrap_or_else(|| (host.to_owned(), port));
        self.data_server(ConnectionAddr::Tcp(host, port))
    }

    /// The connection settings of the servers in this address, as for servers that hold data. Not
    /// for sentinels.
    pub(super) fn servers(&self) -> impl Iterator<Item = Server> {
        let servers = self.seeds.iter();
        servers.map(|server| self.data_server(server.addr().clone()))
    }

    /// The connection settings of the sentinels.
    #[cfg(feature = "sentinel")]
    pub(super) fn sentinels(&self) -> impl Iterator<Item = Server> {
        self.seeds.iter().map(|seed| Server {
            info: seed.clone(),
            provider: self.sentinel_credentials.clone(),
        })
    }

    /// The connection settings of the server at `addr`, with the login, the database, TLS and the
    /// certificates of this address.
    fn data_server(&self, addr: ConnectionAddr) -> Server {
        let addr = match addr {
            ConnectionAddr::Tcp(host, port) if self.is_tls => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            addr => addr,
        };
        let info = self.seeds[0].clone().set_addr(addr);
        #[cfg(feature = "tls")]
        let info = self.certificates.apply(info);
        Server {
            info: info.set_redis_settings(self.data.clone()),
            provider: self.credentials.clone(),
        }
    }

    /// Checks what depends on several settings.
    pub(super) fn checked(self) -> Result<Self, StoreError> {
        #[cfg(feature = "cluster")]
        if self.topology == Topology::Cluster && self.data.db() != 0 {
            let message = "in a cluster only the database 0 works, also on Valkey 9";
            return Err(invalid_address(message));
        }
        Ok(self)
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.topology {
            Topology::Single => write!(f, "redis at ")?,
            #[cfg(feature = "cluster")]
            Topology::Cluster => write!(f, "redis cluster at ")?,
            #[cfg(feature = "sentinel")]
            Topology::Sentinel(master) => {
                write!(f, "redis master {master} of the sentinels at ")?;
            }
        }
        for (at, seed) in self.seeds.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{}", seed.addr())?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

/// A value that says where Redis is: a [`RedisAddress`], a URL, or a custom type.
///
/// ```
/// use tidegate::StoreError;
/// use tidegate::redis::{IntoRedisAddress, RedisAddress};
///
/// struct Settings {
///     redis_url: String,
///     redis_password: String,
/// }
///
/// impl IntoRedisAddress for &Settings {
///     fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
///         Ok(RedisAddress::from_url(&self.redis_url)?.password(&self.redis_password))
///     }
/// }
/// ```
pub trait IntoRedisAddress {
    /// The address.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// the value is no address.
    fn into_redis_address(self) -> Result<RedisAddress, StoreError>;
}

impl IntoRedisAddress for RedisAddress {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        Ok(self)
    }
}

impl IntoRedisAddress for &RedisAddress {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        Ok(self.clone())
    }
}

impl IntoRedisAddress for &str {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}

impl IntoRedisAddress for &String {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}

impl IntoRedisAddress for String {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}
