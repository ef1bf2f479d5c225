//! Law 12 for `refund-on`: what can be wrong is an error that names file, key and line.

use super::*;

fn with(line: &str) -> String {
    format!("[rules.login]\nmax-count = 50\nwindow = \"1h\"\nkey = \"header:x-key\"\n{line}\n")
}

/// Mistakes: each is told with its line, and none is taken for something else.
#[test]
fn mistakes() {
    let wrong = [
        r#"[]|"2xx"|200|[200]|[""]|["2xx", ""]|["2"]|["20"]|["xx"]|["2x"]|["2x0"]|["20x"]|["0xx"]"#,
        r#"["6xx"]|["9xx"]|["099"]|["600"]|["000"]|["1000"]|["-200"]|["+20"]|[" 2xx"]|["2xx "]"#,
        r#"["2xx,3xx"]|["2xx-3xx"]|["grpc"]|["grpc-"]|["grpc-17"]|["grpc--1"]|["grpc-x"]"#,
        r#"["grpc-00"]|["grpc-+1"]|["OK"]|["success"]|["２xx"]|true|{ status = "2xx" }|[["2xx"]]"#,
    ];
    for text in wrong.iter().flat_map(|it| it.split('|')) {
        let error = Rules::from_toml(&with(&format!("refund-on = {text}")));
        let told = error.expect_err(text).to_string();
        assert!(told.contains("refund-on"), "{text}: {told}");
        let has_line = told.contains(":5") || told.contains("line 5");
        assert!(has_line && told.len() < 400, "{text}: {told}");
    }
}

/// Names that are almost right, and places where it must not stand.
#[test]
fn keys_that_are_almost_right() {
    for line in [
        "refund_on = [\"2xx\"]",
        "refundon = [\"2xx\"]",
        "refund = [\"2xx\"]",
        "refund-if = [\"2xx\"]",
        "refund-on = [\"2xx\"]\nrefund-on = [\"3xx\"]",
        "[rules.login.plans.pro]\nmax-count = 9\nwindow = \"1h\"\nrefund-on = [\"2xx\"]",
    ] {
        let error = Rules::from_toml(&with(line)).expect_err(line);
        assert!(error.to_string().contains("refund"), "{error}");
    }
    assert!(Rules::from_toml(&format!("refund-on = [\"2xx\"]\n{}", with(""))).is_err());
    // A candidate is given back with its rule: outcomes of its own are refused, or mean nothing.
    let of_shadow = "[rules.login.shadow]\nmax-count = 5\nwindow = \"1h\"\nrefund-on = [\"5xx\"]";
    drop(Rules::from_toml(&with(of_shadow)));
}

/// In code the same mistakes are errors, not panics.
#[test]
fn in_code() {
    let long = "2".repeat(1_000_000);
    let wrong: [&[&str]; 7] = [
        &[],
        &[""],
        &["2xx", "nonsense"],
        &["2XXX"],
        &["\0"],
        &["grpc-"],
        &[&long],
    ];
    for wrong in wrong {
        let rule = kit::per_hour("a", 5).with_refund_on(wrong.iter().copied());
        assert!(!rule.expect_err("wrong").to_string().is_empty());
    }
}

/// A file does what the code does.
#[tokio::test]
async fn a_file_gives_back() {
    let text = with("refund-on = [\"2xx\", \"304\", \"grpc-5\"]");
    let limits = Limits::from_toml(&text).expect("valid");
    let service = wrap(&limits.layer("login"));
    let mut expected = 50;
    for (status, is_back) in [
        (200, true),
        (304, true),
        (301, false),
        (401, false),
        (299, true),
    ] {
        pass(&service, status, 1).await;
        expected -= u64::from(!is_back);
        assert_eq!(left(&limits, "login").await, expected, "{status}");
    }
    ask_grpc(&service, "x-back-grpc-status: 5").await;
    ask(&service, "x-back-grpc-status: 5").await;
    flushed(&limits).await;
    assert_eq!(left(&limits, "login").await, expected);
    // A rule that is switched off, and one with a max of nothing.
    let text = with("refund-on = [\"2xx\", \"4xx\"]");
    for (text, status) in [
        (format!("enabled = false\n{text}"), 200),
        (text.replace("max-count = 50", "max-count = 0"), 429),
    ] {
        let limits = Limits::from_toml(&text).expect("valid");
        let service = wrap(&limits.layer("login"));
        for _ in 0..3 {
            assert_eq!(send(&service, 200).await, status, "{text}");
        }
        flushed(&limits).await;
    }
}
