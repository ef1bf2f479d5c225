//! A client that keeps its connection.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::*;

pub(crate) struct Client(BufReader<TcpStream>);

pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server");
        stream.set_nodelay(true).expect("TCP");
        Self(BufReader::new(stream))
    }

    /// Asks with fields such as `host: x`, each on a line.
    pub(crate) async fn get(&mut self, path: &str, fields: &str) -> Response {
        let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.expect("is sent");
        let status = self.line().await[9..12].parse().expect("a status");
        let mut length = 0;
        while let Some((name, value)) = self.line().await.split_once(": ") {
            if name == "content-length" {
                length = value.parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a body");
        let body = String::from_utf8(body).expect("text");
        Response { status, body }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("a line");
        line.truncate(line.trim_end().len());
        line
    }
}
