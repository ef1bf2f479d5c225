//! What `Limits` is told once for all its layers: which of several settings counts, who gets it, and
//! what a setting does that comes too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::response::IntoResponse;
use http::StatusCode;
use tidegate::store::StoreErrorKind;
use tidegate::warning::WarningKind;
use tidegate::{ClientIp, Header, Headers, Key, Recovery, Rules};

use super::*;

const DENIED: u16 = 429;

fn rules(path: &str, max: u64) -> Rules {
    Rules::from_iter([hourly(path, max)])
}

/// Which field's value is the key: `x-layer`, `x-rule`, `x-limits`, or none.
async fn counted_by(limits: &Limits, path: &str) -> Vec<&'static str> {
    let known = ["layer", "rule", "limits"];
    let mut found = Vec::new();
    for name in known {
        if left(limits, path, name).await == 0 {
            found.push(name);
        }
        assert_eq!(left(limits, path, "nobody").await, 1);
    }
    if left(limits, path, Key::default()).await == 0 {
        found.push("everyone");
    }
    found
}

/// The layer's key, then the rule's, then that of `Limits`; whichever of them there are.
#[tokio::test]
async fn the_nearest_key_counts() {
    let fields = [
        ("x-layer", "layer"),
        ("x-rule", "rule"),
        ("x-limits", "limits"),
    ];
    for case in 0..8 {
        let (of_layer, of_rule, of_limits) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let mut rule = hourly("a", 1);
        if of_rule {
            rule = rule.with_key(Header::new("x-rule"));
        }
        let mut limits = Limits::new([rule]);
        if of_limits {
            limits = limits.key(Header::new("x-limits"));
        }
        let mut layer = limits.layer("a");
        if of_layer {
            layer = layer.key(Header::new("x-layer"));
        }
        assert_eq!(status(&wrap(layer), &fields).await, 200);
        let expected = match (of_layer, of_rule, of_limits) {
            (true, ..) => "layer",
            (_, true, _) => "rule",
            (.., true) => "limits",
            _ => "everyone",
        };
        assert_eq!(counted_by(&limits, "a").await, [expected], "{case}");
    }
}

/// A rule that comes with a key, and one that comes without, while the layer is there.
#[tokio::test]
async fn the_nearest_key_counts_after_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let text = |key: &str| format!("[rules.a]\nmax-count = 1\nwindow = \"1h\"\n{key}");
    let limits = Limits::new(Rules::default()).key(Header::new("x-limits"));
    let service = wrap(limits.layer("a"));
    let fields = [("x-rule", "rule"), ("x-limits", "limits")];
    for (key, expected) in [
        ("", "limits"),
        ("key = \"header:x-rule\"", "rule"),
        ("key = \"everyone\"", "everyone"),
        ("", "limits"),
    ] {
        std::fs::write(&file, text(key)).expect("is written");
        limits.reload(&file).expect("valid");
        assert_eq!(status(&service, &fields).await, 200, "{key}");
        assert_eq!(counted_by(&limits, "a").await, [expected], "{key}");
        let known = match expected {
            "everyone" => Key::default(),
            name => Key::from(name),
        };
        assert!(limits.reset("a", known).await.expect("an answer"));
    }
}

/// A request is exempt if any of two defaults, the layer or the file says so. It is then not
/// counted, needs no key, and says nothing of limits.
#[tokio::test]
async fn exemptions_add_up() {
    let text = "exempt.methods = [\"PURGE\"]\n[rules.a]\nmax-count = 0\nwindow = \"1h\"\n\
                exempt.paths = [\"/healthz\"]\nkey = \"header:x-user\"";
    let has =
        |name: &'static str| move |head: &http::request::Parts| head.headers.contains_key(name);
    let limits = Limits::from_toml(text).expect("valid");
    let limits = limits.exempt(has("x-one")).exempt(has("x-two"));
    let plain = wrap(limits.layer("a"));
    let layer = wrap(
        limits
            .layer("a")
            .exempt(has("x-three"))
            .exempt(has("x-four")),
    );
    for (name, by_plain, by_layer) in [
        ("x-one", 200, 200),
        ("x-two", 200, 200),
        ("x-three", 400, 200),
        ("x-none", 400, 400),
    ] {
        assert_eq!(status(&plain, &[(name, "1")]).await, by_plain, "{name}");
        assert_eq!(status(&layer, &[(name, "1")]).await, by_layer, "{name}");
    }
    for (method, path, expected) in [
        ("PURGE", "/", 200),
        ("GET", "/healthz", 200),
        ("GET", "/", 400),
    ] {
        let mut one = request(&[]);
        *one.method_mut() = method.parse().expect("a method");
        *one.uri_mut() = path.parse().expect("a path");
        let response = send(&plain, one).await;
        assert_eq!(response.status(), expected, "{method} {path}");
        assert!(expected != 200 || response.headers().is_empty());
    }
    let counted = limits.snapshot();
    let rule = counted.rule("a").expect("a layer uses it");
    assert_eq!(rule.key_errors(tidegate::key::KeyErrorKind::Absent), 4);
}

/// Exemptions need a request: `check` has none.
#[tokio::test]
async fn a_check_is_never_exempt() {
    let text = "exempt = { networks = [\"0.0.0.0/0\", \"::/0\"], methods = [\"GET\"] }\n\
                [rules.a]\nmax-count = 0\nwindow = \"1h\"\nexempt.paths = [\"/\"]";
    let limits = Limits::from_toml(text).expect("valid").exempt(|_| true);
    assert_eq!(status(&wrap(limits.layer("a")), &[]).await, 200);
    let client: Key = ClientIp::behind_hops(0).key(PEER.parse().expect("an address"));
    limits.check("a", client).await.expect_err("the max is 0");
}

/// The defaults answer where the layer has no callback of its own, and a `check` calls none.
#[tokio::test]
async fn callbacks() {
    let rules = [hourly("a", 0), hourly("b", 5)];
    let limits = Limits::new(rules)
        .store(MemoryStore::with_max_keys(0))
        .degrade_fn(async |_| StatusCode::IM_A_TEAPOT)
        .on_error_fn(async |_| StatusCode::LOOP_DETECTED);
    let own = |path| {
        let layer = limits
            .layer(path)
            .degrade_fn(async |_| StatusCode::CONFLICT);
        layer.on_error_fn(async |_| Recovery::Proceed)
    };
    for path in ["a", "b"] {
        let by_default = status(&wrap(limits.layer(path)), &[]).await;
        let by_layer = status(&wrap(own(path)), &[]).await;
        let expected = if path == "a" { [418, 409] } else { [508, 200] };
        assert_eq!([by_default, by_layer], expected, "{path}");
    }
    let denied = limits.check("a", "").await.expect_err("the max is 0");
    assert_eq!(denied.into_response().status(), DENIED);
    let failed = limits.check("b", "").await.expect_err("there is no room");
    let error = failed.error().expect("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert_eq!(failed.into_response().status(), 503);
}

/// Each setter after a layer is one warning that names it. The layer stays what it was, and later
/// layers have the setting.
#[tokio::test]
async fn a_default_that_comes_too_late() {
    type Set = fn(Limits) -> Limits;
    let setters: [(&str, Set); 8] = [
        ("store", |it| it.store(MemoryStore::with_max_keys(0))),
        ("key", |it| it.key(Header::new("x-user"))),
        ("key", |it| it.key_by(|_| Ok(Key::from("somebody")))),
        ("degrade", |it| {
            it.degrade_fn(async |_| StatusCode::CONFLICT)
        }),
        ("on_error", |it| {
            it.on_error_fn(async |_| StatusCode::CONFLICT)
        }),
        ("headers", |it| it.headers(Headers::None)),
        ("exempt", |it| it.exempt(|_| true)),
        ("peer", |it| it.peer(|_| None)),
    ];
    for (name, set) in setters {
        let limits = Limits::new(rules("a", 1));
        let earlier = wrap(limits.layer("a"));
        assert!(too_late(&limits).is_empty(), "{name}");
        let limits = set(limits);
        assert_eq!(too_late(&limits), [name]);
        // As without it: one request of all clients.
        let first = send(&earlier, request(&[("x-user", "1")])).await;
        assert_eq!(first.status(), 200, "{name}");
        assert!(first.headers().contains_key("ratelimit"), "{name}");
        let second = send(&earlier, request(&[("x-user", "2")])).await;
        assert_eq!(second.status(), DENIED, "{name}");

        let later = wrap(limits.layer("a"));
        let third = send(&later, request(&[("x-user", "3")])).await;
        let differs = match name {
            "store" => third.status() == 503,
            "key" | "exempt" => third.status() == 200,
            "degrade" => third.status() == 409,
            "headers" => !third.headers().contains_key("ratelimit"),
            _ => third.status() == DENIED,
        };
        assert!(differs, "{name}: {third:?}");
        assert_eq!(too_late(&limits), [name], "once");
        limits.verify().expect("the layer fits the rule");
    }
}

fn too_late(limits: &Limits) -> Vec<String> {
    let warnings = limits.warnings().into_iter();
    let late = warnings.filter(|it| it.kind == WarningKind::SetTooLate);
    let late = late.map(|it| {
        let text = it.to_string();
        let name = it.name.expect("the setter").into_owned();
        assert!(text.contains(&name), "{text}");
        name
    });
    late.collect()
}

/// A default that is set in time is no mistake, in any order and on any clone.
#[tokio::test]
async fn defaults_in_time() {
    let base = Limits::new(rules("a", 1));
    let one = base
        .clone()
        .headers(Headers::Legacy)
        .key(Header::new("x-user"));
    let other = base.clone().store(MemoryStore::new()).exempt(|_| false);
    assert_eq!(too_late(&one), [""; 0]);
    assert_eq!(too_late(&other), [""; 0]);
    assert_eq!(too_late(&base), [""; 0]);
}

/// Clones share rules, counts, paths and warnings, and each has its own defaults: for layers and
/// for checks, whoever asks about a path first.
#[tokio::test]
async fn clones_that_are_changed() {
    for checks_first in [false, true] {
        let base = Limits::new(rules("a", 0));
        let legacy = base.clone().headers(Headers::Legacy);
        let silent = base.clone().headers(Headers::None);
        let failing = base.clone().store(MemoryStore::with_max_keys(0));
        let fields = async |limits: &Limits| -> (Vec<String>, Vec<String>) {
            let names = |response: &Response<Body>| {
                let names = response.headers().keys().map(ToString::to_string);
                let mut names: Vec<_> = names.collect();
                names.sort();
                names
            };
            let of_check =
                async || names(&limits.check("a", "").await.expect_err("0").into_response());
            let of_layer = async || names(&send(&wrap(limits.layer("a")), request(&[])).await);
            if checks_first {
                let check = of_check().await;
                (check, of_layer().await)
            } else {
                let layer = of_layer().await;
                (of_check().await, layer)
            }
        };
        for limits in [&base, &legacy, &silent, &base, &failing] {
            let (check, layer) = fields(limits).await;
            assert_eq!(check, layer);
        }
        let has =
            async |limits: &Limits, name: &str| fields(limits).await.0.contains(&name.to_owned());
        assert!(has(&base, "ratelimit").await);
        assert!(has(&legacy, "x-ratelimit-limit").await);
        assert!(!has(&legacy, "ratelimit").await);
        assert!(!has(&silent, "ratelimit").await && !has(&silent, "x-ratelimit-limit").await);

        // One that has room counts apart from one that has none, under the same rules.
        base.rules().replace(rules("a", 1));
        base.check("a", "").await.expect("there is room");
        let full = failing.check("a", "").await.expect_err("there is no room");
        assert_eq!(
            full.error().map(tidegate::StoreError::kind),
            Some(StoreErrorKind::Full)
        );
        legacy
            .check("a", "")
            .await
            .expect_err("the store is shared");
        assert_eq!(left(&silent, "a", "").await, 0);
        assert!(!Arc::ptr_eq(base.shared_store(), failing.shared_store()));
        assert!(Arc::ptr_eq(base.shared_store(), silent.shared_store()));
        // All of them are counted together.
        let counted = |limits: &Limits| format!("{:?}", limits.snapshot());
        assert_eq!(counted(&base), counted(&failing));
    }
}

/// A check that was made before a setting has what was set then; the next one has the new setting.
#[tokio::test]
async fn a_setting_between_checks() {
    let limits = Limits::new(rules("a", 0));
    let fields = |refused: tidegate::layer::Refused| refused.into_response().headers().clone();
    let first = limits.check("a", "").await.expect_err("the max is 0");
    assert!(fields(first).contains_key("ratelimit"));
    let limits = limits.headers(Headers::Legacy);
    let second = limits.check("a", "").await.expect_err("the max is 0");
    assert!(fields(second).contains_key("x-ratelimit-limit"));
    let limits = limits.store(MemoryStore::with_max_keys(0));
    limits.rules().replace(rules("a", 5));
    limits.check("a", "").await.expect_err("no room");
}

/// Threads make layers, ask, replace rules and change clones of their own: at the end everything
/// was counted once, and no clone has another's setting.
#[test]
fn everybody_at_once() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 200;
    let limits = Limits::new(rules("a", u64::from(u32::MAX))).store(clocked().1);
    let admitted = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for thread in 0..THREADS {
            let (limits, admitted) = (limits.clone(), &admitted);
            all.push(scope.spawn(move || {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let mine = limits.headers(match thread % 2 {
                        0 => Headers::Legacy,
                        _ => Headers::None,
                    });
                    for _ in 0..ROUNDS {
                        let response = send(&wrap(mine.layer("a")), request(&[])).await;
                        assert_eq!(response.status(), 200);
                        let is_legacy = response.headers().contains_key("x-ratelimit-limit");
                        assert_eq!(is_legacy, thread % 2 == 0);
                        mine.check("a", "").await.expect("there is room");
                        admitted.fetch_add(2, Ordering::Relaxed);
                    }
                });
            }));
        }
        let (replaced, is_over) = (limits.clone(), &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                replaced.rules().replace(rules("a", u64::from(u32::MAX)));
                let _ = (replaced.warnings(), replaced.verify(), replaced.snapshot());
                std::thread::yield_now();
            }
        });
        for thread in all {
            thread.join().expect("no panic");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("a").expect("a layer uses it");
    assert_eq!(rule.units, admitted.load(Ordering::Relaxed));
    assert_eq!(rule.units, 2 * THREADS * ROUNDS);
}
