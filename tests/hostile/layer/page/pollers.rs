//! Those who look on take nothing from those who are served.

use tidegate::metrics::DecisionOutcome::{Allowed, Denied};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::let_through::counted;
use super::*;

/// The answer in time, without a panic.
async fn ended<T>(task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(PATIENT, task).await;
    ended.expect("in time").expect("no panic")
}

struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn serve(app: &App) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let router = app.router.clone();
    let task = tokio::spawn(async move {
        let server = axum::serve(listener, router);
        let server = server.with_graceful_shutdown(async { drop(stopped.await) });
        server.await.expect("it serves");
    });
    Server {
        address,
        stop,
        task,
    }
}

fn question(path: &str, name: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\nx-user: {name}\r\n\r\n")
}

/// One question on a connection that stays open: the status, or nothing if the connection ended.
async fn ask(stream: &mut TcpStream, question: &str) -> Option<u16> {
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    let mut whole = usize::MAX;
    while bytes.len() < whole {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        whole = end + 4 + length.map_or(0, |it| it.trim().parse().expect("a number"));
    }
    let status = String::from_utf8_lossy(&bytes[9..12]).into_owned();
    status.parse().ok()
}

async fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).await;
    stream.expect("it listens")
}

/// A thousand pollers ask at once and again each second, while ten thousand requests are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pollers_and_the_requests_go_on() {
    let app = App::new(Page::show_keys);
    let server = serve(&app).await;
    let over = Arc::new(AtomicBool::new(false));
    let polled = Arc::new(AtomicU64::new(0));
    let mut pollers = Vec::new();
    for at in 0..1_000 {
        let mut stream = connect(&server).await;
        let (over, polled) = (Arc::clone(&over), Arc::clone(&polled));
        pollers.push(tokio::spawn(async move {
            let view = question(&format!("/limits/api/{}", GET_VIEWS[at % 4]), "");
            loop {
                let status = ask(&mut stream, &view).await;
                // The server may end at any time from then on.
                if status.is_none() && over.load(Ordering::SeqCst) {
                    return;
                }
                assert_eq!(status, Some(200));
                polled.fetch_add(1, Ordering::SeqCst);
                sleep(millis(500)).await;
            }
        }));
    }
    let mut clients = Vec::new();
    for client in 0..20 {
        let mut stream = connect(&server).await;
        clients.push(tokio::spawn(async move {
            for at in 0..500 {
                let name = format!("user{}", (client * 500 + at) % 300);
                let status = ask(&mut stream, &question("/search", &name)).await;
                assert!(matches!(status, Some(200 | 429)), "{status:?}");
            }
        }));
    }
    let began = Instant::now();
    for client in clients {
        client.await.expect("all are answered");
    }
    // All of them have seen something.
    while polled.load(Ordering::SeqCst) < 1_000 {
        assert!(began.elapsed() < PATIENT * 3, "pollers starve");
        sleep(millis(50)).await;
    }
    let total = counted(&app);
    assert_eq!(total.decisions(Allowed) + total.decisions(Denied), 10_000);
    // The shutdown does not wait for those who look on.
    over.store(true, Ordering::SeqCst);
    server.stop.send(()).expect("it serves still");
    ended(server.task).await;
    for poller in pollers {
        ended(poller).await;
    }
}

/// Pollers that keep asking and never read what is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pollers_that_never_read_are_in_nobodys_way() {
    let app = App::new(Page::show_keys);
    let server = serve(&app).await;
    sleep(millis(1_200)).await;
    for at in 0..300 {
        app.use_up(&format!("user{at}")).await;
    }
    sleep(millis(1_200)).await;
    let mut deaf = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(&server).await;
        deaf.push(tokio::spawn(async move {
            let view = question("/limits/api/limited", "").repeat(50);
            while stream.write_all(view.as_bytes()).await.is_ok() {}
        }));
    }
    sleep(Duration::from_secs(2)).await;
    let mut stream = connect(&server).await;
    for at in 0..500 {
        let search = question("/search", &format!("u{at}"));
        let view = question(&format!("/limits/api/{}", GET_VIEWS[at % 4]), "");
        for question in [search, view] {
            let status = tokio::time::timeout(PATIENT, ask(&mut stream, &question)).await;
            assert_eq!(status.expect("in time"), Some(200));
        }
    }
    for one in deaf {
        one.abort();
    }
    server.task.abort();
}

/// Requests whose body never ends, or comes a byte at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_ends_is_in_nobodys_way() {
    let app = App::new(Page::allow_changes);
    let server = serve(&app).await;
    let head = format!(
        "POST /limits/api/reset HTTP/1.1\r\nhost: {HOST}\r\norigin: {ORIGIN}\r\n\
         x-tidegate: 1\r\ncontent-type: application/json\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(&server).await;
        let head = format!("{head}content-length: 60\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.expect("it listens");
        slow.push(stream);
    }
    // One that is longer than any body may be.
    let mut endless = connect(&server).await;
    let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
    endless
        .write_all(head.as_bytes())
        .await
        .expect("it listens");
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
    server.task.abort();
}
