//! A client that keeps its connection, and a server for it.

use std::io;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            line: String::new(),
        })
    }

    /// Asks with fields such as `host: x`, each on a line.
    pub(crate) async fn get(&mut self, path: &str, fields: &str) -> io::Result<Response> {
        let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.line().await?.get(9..12).map(str::parse);
        let Some(Ok(status)) = status else {
            return Err(io::Error::other(format!("no status in {:?}", self.line)));
        };
        let (mut length, mut fields) = (0, HeaderMap::new());
        while let Some((name, value)) = self.line().await?.split_once(": ") {
            let name: HeaderName = name.parse().map_err(io::Error::other)?;
            if name == "content-length" {
                length = value.parse().map_err(io::Error::other)?;
            }
            fields.append(name, value.parse().map_err(io::Error::other)?);
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Response {
            status,
            fields,
            body,
        })
    }

    async fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        match self.stream.read_line(&mut self.line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(self.line.trim_end()),
        }
    }
}

/// Serves on a free port. Returns its address.
pub(crate) async fn serve(app: Router) -> (String, JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let served = tokio::spawn(async move { axum::serve(listener, app).await });
    (address, served)
}
