//! What `Limits` is told once for all its layers: which of several settings counts, who gets it, and
//! what a setting does that comes too late.

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
        let layer = limits.layer(path);
        let layer = layer.degrade_fn(async |_| StatusCode::CONFLICT);
        layer.on_error_fn(async |_| Recovery::Proceed)
    };
    for path in ["a", "b"] {
        let by_default = status(&wrap(limits.layer(path)), &[]).await;
        let by_layer = status(&wrap(own(path)), &[]).await;
        let expected = if path == "a" { [418, 409] } else { [508, 200] };
        assert_eq!([by_default, by_layer], expected, "{path}");
    }
    let denied = refused(&limits, "a", "").await;
    assert_eq!(denied.into_response().status(), DENIED);
    let failed = refused(&limits, "b", "").await;
    let error = failed.error().expect("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert_eq!(failed.into_response().status(), 503);
}

/// Each setter after a layer is one warning that names it. The layer stays what it was, and later
/// layers have the setting.
#[tokio::test]
async fn a_default_that_comes_too_late() {
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    type Set = fn(Limits) -> Limits;
    let setters: [(&str, Set); 8] = [
        ("store", |it| it.store(MemoryStore::with_max_keys(0))),
        ("key", |it| it.key(Header::new("x-user"))),
        ("key", |it| it.key_by(|_| Ok(Key::from("somebody")))),
        ("degrade", |it| it.degrade(async |_: Denied| CONFLICT)),
        ("on_error", |it| it.on_error(async |_: Failed| CONFLICT)),
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
    let named = late.map(|it| {
        let (text, name) = (it.to_string(), it.name.expect("the setter"));
        assert!(text.contains(&*name), "{text}");
        name.into_owned()
    });
    named.collect()
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
        // Which fields a check and a layer answer with.
        let fields = async |limits: &Limits| {
            let mut names = [BTreeSet::new(), BTreeSet::new()];
            for of_check in [checks_first, !checks_first] {
                let response = match of_check {
                    true => refused(limits, "a", "").await.into_response(),
                    false => send(&wrap(limits.layer("a")), request(&[])).await,
                };
                let fields = response.headers().keys().map(ToString::to_string);
                names[usize::from(of_check)].extend(fields);
            }
            names
        };
        for (limits, has) in [
            (&base, Some([true, false])),
            (&legacy, Some([false, true])),
            (&silent, Some([false, false])),
            (&base, Some([true, false])),
            (&failing, None),
        ] {
            let [check, layer] = fields(limits).await;
            assert_eq!(check, layer);
            let found = ["ratelimit", "x-ratelimit-limit"].map(|name| layer.contains(name));
            assert_eq!(found, has.unwrap_or(found));
        }

        // One that has room counts apart from one that has none, under the same rules.
        base.rules().replace(rules("a", 1));
        admitted(&base, "a", "").await;
        let full = refused(&failing, "a", "").await;
        let kind = full.error().map(tidegate::StoreError::kind);
        assert_eq!(kind, Some(StoreErrorKind::Full));
        // The store is shared.
        refused(&legacy, "a", "").await;
        assert_eq!(left(&silent, "a", "").await, 0);
        assert!(!Arc::ptr_eq(base.shared_store(), failing.shared_store()));
        assert!(Arc::ptr_eq(base.shared_store(), silent.shared_store()));
        // All of them are counted together.
        let counted = |limits: &Limits| format!("{:?}", limits.snapshot());
        assert_eq!(counted(&base), counted(&failing));
    }
}
