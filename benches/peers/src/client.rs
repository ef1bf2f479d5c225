//! One connection to an HTTP server, and one request at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::Result;

pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends the request, and reads the whole response. Returns its status.
    pub fn ask(&mut self, request: &str) -> Result<u16> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line.split(' ').nth(1).unwrap_or_default().parse();
        let status = status.map_err(|_| format!("{line:?} to {request:?}"))?;
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse()?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(status)
    }
}
