//! What may become of the file: each way of changing it, and each thing in its place.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

/// As the kubelet does: `..data` leads to a folder of its own, and is replaced as a whole.
fn write_config_map(volume: &Path, generation: u32, text: &str) {
    let folder = format!("..2026_11_21_08_00_{generation:02}");
    fs::create_dir(volume.join(&folder)).expect("is made");
    fs::write(volume.join(&folder).join("limits.toml"), text).expect("is written");
    symlink(&folder, volume.join("..data_tmp")).expect("is linked");
    let before = fs::read_link(volume.join("..data")).ok();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("is renamed");
    if let Some(before) = before {
        fs::remove_dir_all(volume.join(before)).expect("is removed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_config_map() {
    let volume = tempfile::tempdir().expect("a folder");
    write_config_map(volume.path(), 0, &rules(5));
    let file = volume.path().join("limits.toml");
    symlink("..data/limits.toml", &file).expect("is linked");
    let service = Service::of(volume, file);
    service.watch().await;
    for (generation, max) in [(1, 7), (2, 3)] {
        write_config_map(service.folder.path(), generation, &rules(max));
        settle().await;
        service.check(max).await;
    }
    write_config_map(service.folder.path(), 3, "[rules.getId]\nmax-count = x");
    service.check_refused(3, "limits.toml:2").await;
    assert_eq!(service.version(), 3);
}

/// An editor that removes the file first and makes it anew.
#[tokio::test(start_paused = true)]
async fn a_moment_without_the_file_is_no_failure() {
    let service = Service::watched().await;
    for max in [7, 3, 9, 5] {
        remove(&service.file);
        for _ in 0..4 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            service.check(service_max(&service)).await;
        }
        service.check_applies(max).await;
    }
    assert_eq!(service.limits.status().failures, 0);
}

fn service_max(service: &Service) -> u64 {
    let rules = service.limits.rules().load();
    rules.get("getId").expect("never lost").quotas()[0].max()
}

/// Puts something in the place of the file.
type Make = Box<dyn Fn(&Path)>;
/// What it is, and a part of the error about it.
type Strange = (&'static str, Make);

fn link(target: impl AsRef<Path> + 'static) -> Make {
    Box::new(move |file| symlink(&target, file).expect("is linked"))
}

fn bytes(bytes: impl AsRef<[u8]> + 'static) -> Make {
    Box::new(move |file| fs::write(file, &bytes).expect("is written"))
}

fn sparse(length: u64) -> Make {
    Box::new(move |file| {
        let file = File::create(file).expect("is made");
        file.set_len(length).expect("is sparse");
    })
}

/// What may stand in the place of the file.
fn strange_things() -> Vec<Strange> {
    let folder = |file: &Path| fs::create_dir(file).expect("is made");
    let socket = |file: &Path| drop(UnixListener::bind(file).expect("is bound"));
    let circle = |file: &Path| {
        let other = file.with_file_name("other");
        symlink(&other, file).expect("is linked");
        symlink(file, other).expect("is linked");
    };
    let in_a_file = |file: &Path| {
        fs::write(file.with_file_name("plain"), "").expect("is written");
        symlink("plain/limits.toml", file).expect("is linked");
    };
    let pipe = |file: &Path| {
        let made = Command::new("mkfifo").arg(file).status();
        assert!(made.expect("mkfifo runs").success());
    };
    vec![
        ("a folder: not a regular file", Box::new(folder)),
        ("a link to itself: cannot be read", link("limits.toml")),
        ("a link to nothing: No such file", link("nowhere")),
        ("links in a circle: ", Box::new(circle)),
        ("a link to its folder: ", link(".")),
        ("a named pipe: not a regular file", Box::new(pipe)),
        ("a socket: ", Box::new(socket)),
        ("zeros without end: ", link("/dev/zero")),
        ("nothing: ", link("/dev/null")),
        ("its own memory: ", link("/proc/self/mem")),
        ("a gigabyte: more than 16 MiB", sparse(1 << 30)),
        ("a terabyte: more than 16 MiB", sparse(1 << 40)),
        ("a file as a folder: ", Box::new(in_a_file)),
        ("a name that is too long: ", link("n".repeat(3_000))),
    ]
}

/// Bytes that are no TOML, or odd TOML around valid rules.
fn odd_bytes() -> Vec<Strange> {
    let good = rules(9);
    let with = |before: &[u8], after: &[u8]| bytes([before, good.as_bytes(), after].concat());
    let arrays = format!("x = {}", "[".repeat(200_000));
    let tables = format!("a{} = 1", ".a".repeat(200_000));
    let number = format!("[rules.a]\nmax-count = {}", "9".repeat(100_000));
    let utf_16 = good.encode_utf16().flat_map(u16::to_le_bytes);
    let binary = (0..=255).cycle().take(100_000);
    vec![
        ("no text: not valid UTF-8", bytes(b"\xff\xfe")),
        ("NUL bytes: ", with(b"", b"\0\0\0")),
        ("a NUL byte before: ", with(b"\0", b"")),
        ("a lone carriage return: ", with(b"", b"# a\rb\n")),
        ("half a character: ", with(b"# \xe6\xbc", b"")),
        ("a surrogate: ", with(b"# \xed\xa0\x80\n", b"")),
        ("too long a form: ", with(b"# \xc0\xaf\n", b"")),
        ("UTF-16: ", bytes(utf_16.collect::<Vec<_>>())),
        ("binary: ", bytes(binary.collect::<Vec<u8>>())),
        ("a table twice: ", with(good.as_bytes(), b"")),
        ("two documents: ", with(b"", b"---\n...\n")),
        ("brackets: ", bytes("[".repeat(1 << 20))),
        ("nested arrays: ", with(b"", arrays.as_bytes())),
        ("nested tables: ", bytes(tables)),
        ("a long line: ", with(b"", "x".repeat(1 << 20).as_bytes())),
        ("a long number: ", bytes(number)),
    ]
}

impl Service {
    /// Checks that so many changes apply, and that there is no error.
    fn check_version(&self, version: u64, case: &str) {
        let seen = (self.version(), self.error());
        assert_eq!(seen, (version, String::new()), "{case}");
    }
}

/// Each is refused, by the watcher and at once when it is called; the service is as it was, and
/// follows the file again when there is one.
#[tokio::test(start_paused = true)]
async fn something_else_in_its_place() {
    let service = Service::watched().await;
    let file = &service.file;
    let all = strange_things().into_iter().chain(odd_bytes());
    for (version, (case, make)) in (1..).zip(all) {
        let (name, error) = case.split_once(": ").expect("an error");
        println!("the row: {name}");
        let max = 5 + (version - 1) % 2;
        remove(file);
        make(file);
        let began = std::time::Instant::now();
        service.check_refused(max, error).await;
        assert!(service.limits.reload(file).is_err(), "{name}");
        assert!(began.elapsed() < PATIENT, "{name}: {:?}", began.elapsed());
        let said = service.error();
        assert!(said.len() < 1_000, "{name}: {said}");
        assert_eq!(service.version(), version, "{name}");
        let _ = fs::remove_dir(file).or_else(|_| fs::remove_file(file));
        service.check_applies(5 + version % 2).await;
        service.check_version(version + 1, name);
        assert!(service.limits.status().watched.is_some(), "{name}");
    }
}

/// Ways in which editors write a file.
#[tokio::test(start_paused = true)]
async fn odd_texts_that_apply() {
    let service = Service::watched().await;
    let good = rules(9);
    let comments = "# 漢 é \u{1f980}\n".repeat(1_000);
    for (version, (name, text)) in (2..).zip([
        ("CRLF", good.replace('\n', "\r\n")),
        ("no line end", good.trim_end().to_owned()),
        ("comments", format!("{comments}{good}# end")),
        ("blanks", format!("\n\n \t \n{good}\n\n\t")),
    ]) {
        service.apply(text).await;
        service.check(9).await;
        service.check_version(version, name);
    }
    // Editors of some systems begin a file with it: either way, nothing in between.
    service.apply(format!("\u{feff}{good}")).await;
    service.check(9).await;
    let applies = service.error().is_empty();
    assert_eq!(service.version(), 5 + u64::from(applies));
}

#[tokio::test(start_paused = true)]
async fn empty() {
    let service = Service::watched().await;
    let texts = [
        "",
        " \n\n\t",
        "# limits\n",
        "enabled = true",
        "prefix = \"a\"",
        "[rules]",
    ];
    for (at, text) in (1..).zip(texts) {
        // Each is a content of its own.
        service.write(text);
        service.check_refused(5, "no rules, expected").await;
        let error = service.limits.reload(&service.file).expect_err("no rules");
        assert_eq!((error.line(), error.key()), (None, None));
        service.check(5).await;
        assert_eq!(service.limits.status().failures, 2 * at);
    }
    // This says what it means.
    service.apply("enabled = false").await;
    assert_eq!(quota(&service.app, "/getId").await, None);
    assert_eq!(service.error(), "");
    service.check_applies(7).await;
}

#[tokio::test(start_paused = true)]
async fn broken_and_mended() {
    let service = Service::watched().await;
    let broken = rules(7).replacen("\"1h\"", "\"1x\"", 1);
    service.write(&broken);
    let window = "limits.toml:5: rules.getId.window";
    service.check_refused(5, window).await;

    // Another mistake is another failure; the first one is gone from the status.
    service.write(rules(7).replacen("= 7", "= -7", 1));
    let max_count = "limits.toml:4: rules.getId.max-count";
    service.check_refused(5, max_count).await;
    let since = service.limits.status().failing_since;

    // Back to what is in force: nothing is applied, and the failure is over.
    service.apply(rules(5)).await;
    let status = service.limits.status();
    let failure = (status.error, status.failing_since);
    assert_eq!((status.version, failure), (1, (None, None)));

    // Broken again is a failure again.
    service.write(&broken);
    service.check_refused(5, "limits.toml:5").await;
    let another = service.limits.status().failing_since;
    assert!(since.is_some() && another > since, "another failure");
    service.check_applies(7).await;
    assert_eq!((service.version(), service.error()), (2, String::new()));
}

/// The file was changed between the reading that began the service and the first of the watcher.
#[tokio::test(start_paused = true)]
async fn changed_before_the_first_reading() {
    let service = Service::start();
    service.write(rules(7));
    service.watch().await;
    service.check(7).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_does_not_exist_yet() {
    let service = Service::start();
    remove(&service.file);
    service.watch().await;
    service.check(5).await;
    assert!(service.error().contains("No such file"));
    service.check_applies(7).await;
    assert_eq!(service.error(), "");
}
