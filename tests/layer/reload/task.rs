//! The task that watches: when it begins, and when it ends.

use tidegate::live::WatchError;
use tokio::runtime::{Builder, Handle};

use super::{Service, quota, rules, settle};
use crate::*;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_last_layer_and_the_last_clone() {
    let Service {
        folder,
        file,
        limits,
        app,
    } = Service::watched().await;
    assert_eq!(tasks(), 1);
    let clone = limits.clone();
    drop(limits);
    settle().await;
    assert_eq!(tasks(), 1, "a clone is left");
    drop(clone);
    settle().await;
    assert_eq!(tasks(), 1, "layers are left");
    std::fs::write(&file, rules(7)).expect("is written");
    settle().await;
    assert_eq!(quota(&app, "/getId").await, Some(7));
    drop(app);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), 0);
    drop(folder);
}

#[tokio::test(start_paused = true)]
async fn the_next_watch_replaces_it() {
    let service = Service::watched().await;
    let other = service.beside("other.toml");
    std::fs::write(&other, rules(7)).expect("is written");
    for _ in 0..10 {
        service.limits.watch(&other).expect("a runtime");
    }
    settle().await;
    assert_eq!(tasks(), 1);
    service.check(7).await;
    assert_eq!(service.limits.status().watched.as_deref(), Some(&*other));
    service.apply(rules(3)).await;
    service.check(7).await;
    assert_eq!(service.error(), "");
}

/// A failure of another file is not mended by the file that is watched.
#[tokio::test(start_paused = true)]
async fn a_failure_belongs_to_its_file() {
    let service = Service::watched().await;
    let other = service.beside("other.toml");
    service.limits.reload(&other).expect_err("no such file");
    settle().await;
    assert!(service.error().contains("other.toml"));
    std::fs::write(&other, rules(7)).expect("is written");
    service.limits.reload(&other).expect("valid");
    assert_eq!(service.error(), "");
    settle().await;
    service.check(7).await;
}

/// Called and watched at once: one change is one version.
#[tokio::test(start_paused = true)]
async fn a_reload_beside_the_watch() {
    let service = Service::watched().await;
    service.write(rules(7));
    service.limits.reload(&service.file).expect("valid");
    settle().await;
    settle().await;
    assert_eq!((service.version(), service.limits.status().reloads), (2, 1));
    service.write("[rules.a]");
    service.limits.reload(&service.file).expect_err("no quota");
    service.apply(rules(7)).await;
    assert_eq!(service.error(), "", "it is as it was");
}

#[test]
fn without_a_runtime_it_is_an_error() {
    let service = Service::start();
    let error = service.limits.watch(&service.file);
    assert_eq!(error, Err(WatchError::NoRuntime));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let error = runtime.block_on(async { service.limits.watch(&service.file) });
    assert_eq!(error, Err(WatchError::NoTimer));
    assert_eq!(service.limits.status().watched, None);
}

#[test]
fn the_status_shows_that_its_runtime_is_gone() {
    let service = Service::start();
    let runtime = || {
        let mut builder = Builder::new_current_thread();
        let paused = builder.enable_time().start_paused(true);
        paused.build().expect("a runtime")
    };
    let first = runtime();
    first.block_on(service.watch());
    let watched = service.limits.status().watched;
    assert_eq!(watched.as_deref(), Some(&*service.file));
    drop(first);
    assert_eq!(service.limits.status().watched, None);
    assert!(service.error().contains("no longer watched"));
    service.write(rules(7));
    runtime().block_on(service.watch());
    runtime().block_on(service.check(7));
}

#[tokio::test(start_paused = true)]
async fn rules_of_code_are_replaced_by_the_file() {
    let limits = Limits::new(tidegate::Rules::default());
    let status = limits.status();
    assert_eq!((status.version, status.content_hash), (1, None));
    let service = Service::start();
    let app = app_of(&limits, &["getId", "search"]);
    assert_eq!(quota(&app, "/getId").await, None);
    limits.watch(&service.file).expect("a runtime");
    settle().await;
    assert_eq!(quota(&app, "/getId").await, Some(5));
    let hash = service.limits.status().content_hash;
    assert_eq!(limits.status().content_hash, hash);
}
