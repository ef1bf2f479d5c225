//! A server on a socket of this machine, and what a client gets from it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

/// A server on this machine, as a client sees it.
#[derive(Clone, Copy)]
pub(super) struct Client {
    server: SocketAddr,
    /// The client's own address.
    address: &'static str,
}

pub(super) struct Answer {
    pub(super) status: u16,
    fields: HeaderMap,
    pub(super) text: String,
}

pub(super) async fn serve(app: Router) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = listener.local_addr().expect("an address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let address = "127.0.0.1";
    Client { server, address }
}

impl Client {
    pub(super) fn from(self, address: &'static str) -> Self {
        Self { address, ..self }
    }

    /// A request such as `GET /`, with further fields and a body.
    pub(super) async fn send(self, line: &str, fields: Fields<'_>, body: &str) -> Answer {
        let socket = TcpSocket::new_v4().expect("a socket");
        let own = SocketAddr::new(self.address.parse().expect("an address"), 0);
        socket.bind(own).expect("a loopback address");
        let mut stream = socket.connect(self.server).await.expect("a server");
        let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
        if !fields.iter().any(|(name, _)| *name == "host") {
            request += "host: test\r\n";
        }
        for (name, value) in fields {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        Answer::parse(&answer)
    }

    pub(super) async fn status(self, line: &str, fields: Fields<'_>) -> u16 {
        self.send(line, fields, "").await.status
    }

    /// A request that this rule denies.
    pub(super) async fn denied(self, line: &str, fields: Fields<'_>, rule: &str) -> Answer {
        let answer = self.send(line, fields, "").await;
        answer.assert_denied(rule);
        answer
    }

    /// The statuses of this many equal requests, one after the other.
    pub(super) async fn statuses<const N: usize>(self, line: &str, fields: Fields<'_>) -> [u16; N] {
        let mut statuses = [0; N];
        for status in &mut statuses {
            *status = self.status(line, fields).await;
        }
        statuses
    }
}

impl Answer {
    fn parse(answer: &str) -> Self {
        let (head, text) = answer.split_once("\r\n\r\n").expect("a whole head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("a field");
            let name: HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        });
        Self {
            status: status.and_then(|it| it.parse().ok()).expect("a status"),
            fields: fields.collect(),
            text: text.to_owned(),
        }
    }

    pub(super) fn field(&self, name: &str) -> &str {
        let value = self.fields.get(name);
        value.map_or("", |value| value.to_str().expect("printable"))
    }

    pub(super) fn assert_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.text);
    }

    /// Denied by this rule, which a client may ask again within a minute.
    pub(super) fn assert_denied(&self, rule: &str) {
        self.assert_status(429);
        let wait: u64 = self.field("retry-after").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
        let expected = format!("\"{rule}\";r=0;t={wait}");
        assert_eq!(self.field("ratelimit"), expected);
    }
}
