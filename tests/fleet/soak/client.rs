//! A client that keeps its connection.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

pub(crate) struct Response {
    pub(crate) status: u16,
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

    pub(crate) async fn get(&mut self, path: &str, user: &str) -> io::Result<Response> {
        let request = format!("GET /{path} HTTP/1.1\r\nhost: soak\r\nx-user: {user}\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.line().await?.split(' ').nth(1).map(str::parse);
        let Some(Ok(status)) = status else {
            return Err(io::Error::other(format!("no status in {:?}", self.line)));
        };
        let mut length = 0;
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Response { status, body })
    }

    async fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        match self.stream.read_line(&mut self.line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(self.line.trim_end()),
        }
    }
}
