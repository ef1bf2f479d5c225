//! Whoever is asked for passwords, whatever it answers: closures that fail, panic, hang or repeat
//! themselves, files that are missing or end in a line feed.

use std::future::pending;
use std::os::unix::fs::symlink;

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

/// What has no end, or no writer, is not opened, and a good file in its place is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_file_of_a_password() {
    type Make = fn(&Path);
    let things: [(&str, Make); 5] = [
        ("not a regular file", |path| {
            let made = Command::new("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo runs").success());
        }),
        ("not a regular file", |path| {
            symlink("/dev/zero", path).expect("is linked");
        }),
        ("not a regular file", |path| {
            std::fs::create_dir(path).expect("is made");
        }),
        ("more than 64 KiB", |path| {
            std::fs::write(path, "a".repeat(65_537)).expect("is written");
        }),
        ("more than 64 KiB", |path| {
            let file = std::fs::File::create(path).expect("is made");
            file.set_len(1 << 40).expect("is sparse");
        }),
    ];
    let server = server("right");
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good");
    std::fs::write(&good, "right\n").expect("is written");
    for (number, (text, make)) in things.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        make(&path);
        let store = lazy(address(&server).password_file(&path));
        let began = Instant::now();
        let text = format!("{}: {text}", path.display());
        refused(&store, StoreErrorKind::Refused, &text).await;
        assert!(began.elapsed() < 10 * SECOND, "{text}");
        // Links are followed.
        let link = folder.path().join("link");
        symlink(&good, &link).expect("is linked");
        if path.is_dir() {
            std::fs::remove_dir(&path).expect("is removed");
        }
        std::fs::rename(&link, &path).expect("is renamed");
        decides(&store).await;
    }
}
