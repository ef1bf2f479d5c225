//! Those who look on take nothing from those who are served.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// The answer in time, without a panic.
async fn ended<T>(task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(PATIENT, task).await;
    ended.expect("in time").expect("no panic")
}

async fn serve(app: &App) -> (std::net::SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let router = app.router.clone();
    let serving = async { axum::serve(listener, router).await.expect("it serves") };
    (address, tokio::spawn(serving))
}

/// Requests whose body never ends, or comes a byte at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_ends_is_in_nobodys_way() {
    let app = App::new(Page::allow_changes);
    let (address, serving) = serve(&app).await;
    let connect = async || TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "POST /limits/api/reset HTTP/1.1\r\nhost: {HOST}\r\norigin: {ORIGIN}\r\n\
         x-tidegate: 1\r\ncontent-type: application/json\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = connect().await;
        let head = format!("{head}content-length: 60\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.expect("it listens");
        slow.push(stream);
    }
    // One that is longer than any body may be.
    let mut endless = connect().await;
    let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let done = endless.write_all(head.as_bytes()).await;
    done.expect("it listens");
    let chunk = format!("{:x}\r\n{}\r\n", 65_536, " ".repeat(65_536));
    let (mut read, mut write) = endless.into_split();
    let writer = tokio::spawn(async move {
        let mut sent = 0_u64;
        while sent < 64_000_000 && write.write_all(chunk.as_bytes()).await.is_ok() {
            sent += 65_536;
        }
        sent
    });
    let mut answer = vec![0; 4_096];
    let number = tokio::time::timeout(PATIENT, read.read(&mut answer)).await;
    let number = number.expect("an answer").unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..number]);
    assert!(number == 0 || answer.starts_with("HTTP/1.1 4"), "{answer}");
    drop(read);
    let sent = ended(writer).await;
    assert!(sent < 64_000_000, "{sent} bytes were taken");
    for at in 0..100 {
        assert_eq!(app.search(&format!("u{at}")).await, 200);
    }
    serving.abort();
}
