//! Clients that leave: before the head a request counts as failed; afterwards its outcome holds.

use super::*;

/// Clients that leave at any instant, behind a server that takes its time: failures and those that
/// left are charged, whoever had a good head is not, and nothing is over what was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_instant() {
    let (_server, _proxy, store) = kit::far(millis(6)).await;
    let (limits, service) = world(of("a", 100_000, &["2xx"]), store);
    let clients = (0..400).map(|at| {
        let (service, mut random) = (service.clone(), Random::new(at));
        async move {
            let status = if random.is(30) { "500" } else { "200" };
            let fields = format!("x-sleep: 8, x-status: {status}");
            timeout(millis(random.below(40)), ask(&service, &fields))
                .await
                .ok()
        }
    });
    let answers = in_tasks(clients).await;
    flushed(&limits).await;
    sleep(millis(50)).await;
    let used = 100_000 - left(&limits, "a").await;
    let number = |good: bool| {
        answers
            .iter()
            .flatten()
            .filter(|it| (**it == 200) == good)
            .count()
    };
    let (heads, failures) = (number(true) as u64, number(false) as u64);
    let (refunds, units, lost) = counted(&limits, "a");
    assert_eq!((refunds, lost), (units, 0));
    // A head that was there as its client left may have been given back as well.
    assert!(refunds >= heads, "{refunds} of {heads}");
    assert!(used >= failures && used <= 400 - heads, "{used}");
}

/// Real connections that clients close during a slow handler, and an orderly shutdown in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_clients_close() {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    let (_server, store) = kit::near().await;
    let limits = limits(of("a", 1_000, &["2xx"]), store);
    let slow = async |request: Request<Body>| {
        let slow = request.headers().contains_key("x-slow");
        sleep(millis(if slow { 300 } else { 0 })).await;
    };
    let app = Router::new().route("/", get(slow).layer(limits.layer("a")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async {
        stopped.await.ok();
    });
    let serving = tokio::spawn(async move { serving.await });
    let call = async |fields: &str| {
        let mut stream = TcpStream::connect(address).await.expect("listens");
        let text = format!("GET / HTTP/1.1\r\nhost: a\r\nx-key: x\r\n{fields}\r\n");
        stream.write_all(text.as_bytes()).await.expect("sent");
        stream
    };
    let check_answer = async |mut stream: TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    for _ in 0..8 {
        let stream = call("x-slow: 1\r\n").await;
        sleep(millis(30)).await;
        drop(stream);
    }
    for _ in 0..8 {
        check_answer(call("connection: close\r\n").await).await;
    }
    // Clients that wait while the server is told to stop.
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(call("x-slow: 1\r\nconnection: close\r\n").await);
    }
    until_left(&limits, "a", 988).await;
    stop.send(()).expect("it runs");
    for stream in waiting {
        check_answer(stream).await;
    }
    serving.await.expect("no panic").expect("served");
    flushed(&limits).await;
    assert_eq!(left(&limits, "a").await, 992);
}
