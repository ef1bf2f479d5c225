//! What may become of the file: each way of changing it, and each thing in its place.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

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

#[tokio::test(start_paused = true)]
async fn something_else_in_its_place() {
    let service = Service::watched().await;
    let file = &service.file;

    remove(file);
    fs::create_dir(file).expect("is made");
    service.check_refused(5, "not a regular file").await;
    assert!(service.limits.reload(file).is_err());
    fs::remove_dir(file).expect("is removed");

    symlink("limits.toml", file).expect("a link to itself");
    service.check_refused(5, "cannot be read").await;
    remove(file);

    symlink("nowhere", file).expect("is linked");
    service.check_refused(5, "No such file").await;
    remove(file);

    let made = Command::new("mkfifo").arg(file).status();
    assert!(made.expect("mkfifo runs").success());
    service.check_refused(5, "not a regular file").await;
    assert!(service.limits.reload(file).is_err());
    remove(file);

    let huge = File::create(file).expect("is made");
    huge.set_len(1 << 30).expect("a file of one gigabyte");
    service.check_refused(5, "more than 16 MiB").await;
    assert!(service.limits.reload(file).is_err());

    service.write(b"\xff\xfe");
    service.check_refused(5, "not valid UTF-8").await;
    service.check_applies(7).await;
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
