//! Whoever is asked for passwords, whatever it answers: closures that fail, panic, hang or repeat
//! themselves, files that are missing or end in a line feed.

use std::future::pending;

use kit::load::take;
use tidegate::redis::{Credentials, RedisAddress};

use crate::prelude::*;

/// A server that lets only the user `gate` in, with this password.
fn server(password: &str) -> Server {
    let server = Server::start();
    set_password(&server, password);
    server
}

fn set_password(server: &Server, password: &str) {
    let user = format!("ACL SETUSER gate on resetpass >{password} ~* &* +@all");
    server.run::<()>(&user);
}

fn address(server: &Server) -> RedisAddress {
    let address = RedisAddress::from_url(&server.url).expect("a valid address");
    address.username("gate")
}

fn lazy(address: RedisAddress) -> RedisStore {
    let store = RedisStore::connect_lazy(address).expect("a valid address");
    store.timeout(SECOND)
}

async fn asked(store: &RedisStore) -> Result<Decision, StoreError> {
    store.take(&take("p", 1_000_000)).await
}

async fn refused(store: &RedisStore, kind: StoreErrorKind, text: &str) {
    let what = format!("{kind:?}: {text}");
    eventually(&what, async || {
        asked(store)
            .await
            .is_err_and(|error| error.kind() == kind && error.to_string().contains(text))
    })
    .await;
}

async fn decides(store: &RedisStore) {
    eventually("it decides", async || asked(store).await.is_ok()).await;
}

/// Ends all connections of the user.
fn end(server: &Server) {
    server.run::<()>("CLIENT KILL USER gate");
}

/// The same store hears each error of the closure, and decides as soon as the closure says what is
/// right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_closure_answers() {
    let server = server("right");
    let answer = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&answer);
    let store = lazy(address(&server).credentials(move || {
        let answer = now.load(Ordering::Relaxed);
        assert_ne!(answer, 1, "at once");
        async move {
            match answer {
                0 => Err("the vault is sealed"),
                2 => panic!("later"),
                3 => Ok(Credentials::new("")),
                4 => Ok(Credentials::new("wrong")),
                5 => pending().await,
                6 => Ok(Credentials::new("right").username("nobody")),
                _ => Ok(Credentials::new("right")),
            }
        }
    }));
    use StoreErrorKind::{Refused, Timeout};
    for (at, kind, text) in [
        (0, Refused, "the vault is sealed"),
        (1, Refused, "panicked"),
        (2, Refused, "panicked"),
        (3, Refused, "the password is empty"),
        (4, Refused, "WRONGPASS"),
        (5, Timeout, "no credentials within 300ms"),
        (6, Refused, "WRONGPASS"),
    ] {
        answer.store(at, Ordering::Relaxed);
        refused(&store, kind, text).await;
    }
    answer.store(7, Ordering::Relaxed);
    decides(&store).await;
    // No empty password was sent.
    let entries: Vec<Vec<redis::Value>> = server.run("ACL LOG");
    assert_eq!(entries.len(), 2, "{entries:?}");
}

/// A closure that hangs delays no decision of a connection in use, and none beyond its time-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closure_that_hangs_while_a_connection_lives() {
    let server = server("right");
    let hangs = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&hangs);
    let store = lazy(address(&server).credentials(move || {
        let hangs = now.load(Ordering::Relaxed);
        async move {
            if hangs {
                pending::<()>().await;
            }
            let until = Instant::now() + SECOND;
            Ok::<_, Infallible>(Credentials::new("right").until(until))
        }
    }));
    decides(&store).await;
    hangs.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while began.elapsed() < 3 * SECOND {
        asked(&store).await.expect("a decision");
        sleep(millis(5)).await;
    }
    end(&server);
    refused(&store, StoreErrorKind::Timeout, "no credentials").await;
    hangs.store(false, Ordering::Relaxed);
    decides(&store).await;
}

/// Credentials that have ended, again and again: the connection goes on as it is, and asks once a
/// second, which is told once.
#[tokio::test(flavor = "current_thread")]
async fn the_same_ended_credentials() {
    let log = kit::full_log::Log::start();
    let server = server("first");
    let number = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&number);
    let ended = Instant::now();
    let store = lazy(address(&server).credentials(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(Credentials::new("first").until(ended)) }
    }));
    decides(&store).await;
    set_password(&server, "second");
    let began = Instant::now();
    let before = number.load(Ordering::Relaxed);
    while number.load(Ordering::Relaxed) < before + 3 {
        asked(&store).await.expect("a decision");
        sleep(millis(20)).await;
        assert!(began.elapsed() < 30 * SECOND, "it has not asked");
    }
    assert!(began.elapsed() > 2 * SECOND, "{:?}", began.elapsed());
    let shown = log.text();
    let warnings = shown.matches("could not log in again").count();
    assert_eq!(warnings, 1, "{shown}");
    assert!(!shown.contains("first"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file() {
    let server = server("first");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    let write = |text: &[u8]| std::fs::write(&path, text).expect("written");
    let store = lazy(address(&server).password_file(&path));
    let name = path.display().to_string();
    refused(&store, StoreErrorKind::Refused, &name).await;
    write(b"\r\n");
    refused(&store, StoreErrorKind::Refused, "the password is empty").await;
    write(b"first\xff");
    refused(&store, StoreErrorKind::Refused, &name).await;
    write(b"first\n");
    decides(&store).await;
    set_password(&server, "second");
    asked(&store).await.expect("the connection lives");
    end(&server);
    refused(&store, StoreErrorKind::Refused, "WRONGPASS").await;
    write(b"second\r\n");
    decides(&store).await;
}

/// Whoever reads such a file by then is set free, or the runtime would wait for it.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        // On Linux that never blocks, also without a reader.
        let mut both = std::fs::OpenOptions::new();
        let _ = both.read(true).write(true).open(&self.0);
    }
}

/// A file that nobody ever writes to keeps one thread, and not one for each attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_hangs() {
    let server = server("right");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
    let _end = Written(path.clone());
    let store = lazy(address(&server).password_file(&path));
    refused(&store, StoreErrorKind::Timeout, "no credentials within").await;
    refused(&store, StoreErrorKind::Timeout, "no credentials within").await;
    // It opens for whoever reads, once.
    let mut writer = std::fs::OpenOptions::new();
    let mut writer = writer.write(true).open(&path).expect("a reader waits");
    std::io::Write::write_all(&mut writer, b"right\n").expect("written");
    drop(writer);
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    assert!(tasks < 64, "{tasks} threads");
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "right").expect("written");
    decides(&store).await;
}
