//! Which series there are, and from when on.

use tidegate::rule::Lockout;
use tidegate::store::{Ask, Change};

use super::exposition::Exposition;
use super::{exporter, limits, published, published_to, redis_store, send_many};
use crate::*;

const DOCS: &str = include_str!("../../../docs/metrics.md");

/// Which decisions a rule shows, each as outcome and source, in the order of the alphabet.
fn shown(text: &Exposition, rule: &str) -> Vec<String> {
    let mut shown = Vec::new();
    for outcome in DecisionOutcome::ALL.map(DecisionOutcome::name) {
        for source in Source::ALL.map(Source::name) {
            let labels = [("outcome", outcome), ("source", source)];
            if let Some(number) = text.of(rule, "decisions_total", &labels) {
                assert_eq!(number, 0.0, "{labels:?}");
                shown.push(format!("{outcome} {source}"));
            }
        }
    }
    shown.sort_unstable();
    shown
}

#[tokio::test]
async fn what_rule_and_store_can_decide_is_there_at_0_before_the_first_request() {
    let plain = per_hour("getId", 5);
    let export = per_hour("export", 5).with_max_concurrent(2).expect("valid");
    let lockout = Lockout::after(5).hold([PATIENT]).on(["401"]);
    let login = per_hour("login", 5).with_lockout(lockout).expect("valid");
    let tried = per_hour("tried", 5).into_shadow();
    let store = Resilient::new(MemoryStore::new()).processes(2);
    let limits =
        limits([plain, export, login, tried]).store(store.denial_cache(Duration::from_secs(1)));
    for path in ["getId", "export", "login", "tried"] {
        let _: Router = app(limits.layer(path)).with_state(());
    }
    let text = published(&limits);
    let both = |outcome: &str| ["fallback", "local"].map(|it| format!("{outcome} {it}"));
    let of = |more: &[&str]| {
        let outcomes = ["allowed", "denied", "never"].iter().chain(more);
        let mut all: Vec<_> = outcomes.flat_map(|it| both(it)).collect();
        all.extend(["denied cache", "denied operator"].map(str::to_owned));
        all.sort_unstable();
        all
    };
    assert_eq!(shown(&text, "getId"), of(&[]));
    assert_eq!(of(&[]).len(), 8);
    assert_eq!(shown(&text, "export"), of(&["busy"]));
    let mut login = of(&["locked_out"]);
    login.insert(6, "locked_out cache".to_owned());
    assert_eq!(shown(&text, "login"), login);
    let tried = shown(&text, "tried");
    assert_eq!(tried.len(), 5, "{tried:?}");
    assert!(tried.contains(&"shadow_denied cache".to_owned()));
    for (rule, lockouts) in [("getId", None), ("login", Some(0.0))] {
        assert_eq!(text.of(rule, "lockouts_total", &[]), lockouts, "{rule}");
    }

    let store = StoreErrorKind::ALL.map(StoreErrorKind::name);
    let key = KeyErrorKind::ALL.map(KeyErrorKind::name);
    for kind in store.into_iter().chain(key) {
        let number = text.of("getId", "errors_total", &[("kind", kind)]);
        assert_eq!(number, Some(0.0), "{kind}");
    }
    let denials = text.of("getId", "denials_total", &[("quota", "getId")]);
    assert_eq!(denials, Some(0.0));
    assert_eq!(text.unmatched(), Some(0.0));
}

/// Of a store that does not say what it can, only what was decided is shown.
#[tokio::test]
async fn an_unknown_store_has_the_series_that_were_seen() {
    let limits = limits([per_hour("getId", 1)]).store(Unknown(MemoryStore::new()));
    let app = app(limits.layer("getId")).with_state(());
    assert_eq!(shown(&published(&limits), "getId"), ["denied operator"]);
    send_many(&app, 2).await;
    let text = published(&limits);
    for (outcome, number) in [
        ("allowed", Some(1.0)),
        ("denied", Some(1.0)),
        ("never", None),
    ] {
        let labels = [("outcome", outcome), ("source", "local")];
        assert_eq!(
            text.of("getId", "decisions_total", &labels),
            number,
            "{outcome}"
        );
    }
}

#[derive(Debug)]
struct Unknown(MemoryStore);

impl Store for Unknown {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        self.0.take(ask)
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        self.0.change(ask, change)
    }

    fn name(&self) -> String {
        "unknown".to_owned()
    }
}

/// The type and the labels of each metric, by its name.
pub(crate) async fn everything() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let (store, _server) = redis_store().await;
    let lockout = Lockout::after(5).hold([PATIENT]).on(["401"]);
    let shadow = per_hour("next", 1).into_shadow();
    let pro = Quotas::new([Quota::per_second(5)]).expect("valid");
    let with_plan = per_hour("getId", 5).with_lockout(lockout).expect("valid");
    let with_plan = with_plan.with_plan("pro", pro).expect("valid");
    let limits = limits([with_plan, shadow]).store(store);
    send_many(&app(limits.layer("getId")).layer(limits.layer("next")), 1).await;
    let text = published(&limits);
    assert_eq!(text.helps(), &text.types().keys().cloned().collect());
    let of = |(name, kind): (&String, &String)| {
        let mut labels = text.labels_of(name);
        labels.extend(text.labels_of(&format!("{name}_sum")));
        let labels = labels.into_iter().map(str::to_owned).collect();
        (name.clone(), (kind.clone(), labels))
    };
    text.types().iter().map(of).collect()
}

/// The numbers of docs/metrics.md: of each rule, of its two quotas, of the histogram.
#[tokio::test]
async fn so_many_series_has_a_rule() {
    let policies = [Quota::per_second(100), Quota::per_day(1_000_000)];
    let rule = Rule::new("getId", policies).expect("valid");
    let (store, _server) = redis_store().await;
    let limits = limits([rule, per_hour("unused", 5)]).store(store);
    send_many(&app(limits.layer("getId")), 1).await;
    let text = published(&limits);
    assert_eq!(text.series_with("rule", "getId"), 33 + 2 + 16);
    // A check may be its first use.
    let kinds = StoreErrorKind::ALL.len() + KeyErrorKind::ALL.len();
    assert_eq!(text.series_with("rule", "unused"), kinds + 1);
}

/// What alerts of failures read is at 0 before the first check of a rule, so that it is an increase.
#[tokio::test]
async fn failures_of_a_rule_that_nothing_has_used_are_at_0() {
    let gone = RedisStore::connect_lazy("redis://127.0.0.1:1").expect("a valid address");
    let names = (0..150).map(|number| format!("rule{number:03}"));
    let rules = names.map(|name| per_hour(&name, 5).with_on_error(OnError::Proceed));
    let limits = Limits::new(rules).store(gone);
    let (recorder, shown) = (
        exporter().build_recorder(),
        |text: &Exposition, rule: &str| {
            let kinds = StoreErrorKind::ALL.map(StoreErrorKind::name);
            let errors = kinds.map(|kind| text.of(rule, "errors_total", &[("kind", kind)]));
            let errors = errors.into_iter().sum::<Option<f64>>();
            [
                errors,
                text.of(rule, "admitted_without_decision_total", &[]),
            ]
        },
    );
    let text = published_to(&recorder, &limits);
    assert_eq!(shown(&text, "rule000"), [Some(0.0); 2]);
    assert!(text.of("rule000", "units_total", &[]).is_none());
    // Their number is bounded.
    assert_eq!(
        [shown(&text, "rule099"), shown(&text, "rule100")],
        [[Some(0.0); 2], [None; 2]]
    );
    limits.check("rule000", "alice").await.expect("it proceeds");
    assert_eq!(
        shown(&published_to(&recorder, &limits), "rule000"),
        [Some(1.0); 2]
    );
}

#[test]
fn a_file_that_is_refused_is_published() {
    let rule = |max| format!("[rules.getId]\nmax-count = {max}\nwindow = \"10s\"");
    let file = LimitsFile::new(rule(5));
    let limits = file.limits();
    let recorder = exporter().build_recorder();
    let check = |expected: [u64; 4]| {
        let text = published_to(&recorder, &limits);
        let names = [
            "version",
            "reload_failing",
            "reloads_total",
            "reload_errors_total",
        ];
        for (name, expected) in names.into_iter().zip(expected) {
            let number = text.get(&format!("tidegate_config_{name}"), &[]);
            assert_eq!(number, Some(expected as f64), "{name}");
        }
    };
    check([1, 0, 0, 0]);
    file.write("nonsense");
    assert!(limits.reload(&file.path).is_err());
    check([1, 1, 0, 1]);
    file.reload(&limits, rule(6));
    check([2, 0, 1, 1]);
}

#[tokio::test]
async fn the_docs_list_what_is_published() {
    let all = everything().await;
    let rows = all.iter().map(|(name, (kind, labels))| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = labels.join(", ");
        format!("| `{name}` | {kind} | {labels} |").replace("|  |", "| |")
    });
    let missing: Vec<_> = rows.filter(|row| !DOCS.contains(row)).collect();
    assert_eq!(missing, Vec::<String>::new());
    let documented = DOCS.lines().filter(|line| line.starts_with("| `tidegate_"));
    assert_eq!(documented.count(), all.len());
}

#[tokio::test]
async fn the_names_are_those_that_prometheus_recommends() {
    for (name, (kind, _)) in everything().await {
        for (of_kind, end) in [("counter", "_total"), ("histogram", "_seconds")] {
            let has_end = name.ends_with(end);
            assert_eq!(kind == of_kind, has_end, "{name}: {kind}");
        }
    }
}

/// Exporters can append units and `_total` themselves.
#[tokio::test]
async fn an_exporter_that_corrects_names_changes_none() {
    let (store, _server) = redis_store().await;
    let limits = limits([per_hour("getId", 5)]).store(store);
    send_many(&app(limits.layer("getId")), 1).await;
    let corrected = exporter().with_recommended_naming(true).build_recorder();
    let corrected = published_to(&corrected, &limits);
    assert_eq!(corrected.types(), published(&limits).types());
}
