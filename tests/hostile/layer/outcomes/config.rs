//! Law 12 for `refund-on`: what can be wrong is an error that names file, key and line.

use tidegate::{Limits, MemoryStore, Rule, Rules};

use super::{flushed, grpc, left_of, request, send, wrap};
use kit::HOUR;

fn with(line: &str) -> String {
    format!("[rules.login]\nmax-count = 50\nwindow = \"1h\"\nkey = \"header:x-key\"\n{line}\n")
}

/// Mistakes: each is told with its line, and none is taken for something else.
#[test]
fn mistakes() {
    let wrong = [
        "[]",
        "\"2xx\"",
        "200",
        "[200]",
        "[\"\"]",
        "[\"2xx\", \"\"]",
        "[\"2\"]",
        "[\"20\"]",
        "[\"xx\"]",
        "[\"2x\"]",
        "[\"2x0\"]",
        "[\"20x\"]",
        "[\"0xx\"]",
        "[\"6xx\"]",
        "[\"9xx\"]",
        "[\"099\"]",
        "[\"600\"]",
        "[\"000\"]",
        "[\"1000\"]",
        "[\"-200\"]",
        "[\"+20\"]",
        "[\" 2xx\"]",
        "[\"2xx \"]",
        "[\"2xx,3xx\"]",
        "[\"2xx-3xx\"]",
        "[\"grpc\"]",
        "[\"grpc-\"]",
        "[\"grpc-17\"]",
        "[\"grpc--1\"]",
        "[\"grpc-x\"]",
        "[\"grpc-00\"]",
        "[\"grpc-+1\"]",
        "[\"OK\"]",
        "[\"success\"]",
        "[\"\u{ff12}xx\"]",
        "true",
        "{ status = \"2xx\" }",
        "[[\"2xx\"]]",
    ];
    let mut taken = Vec::new();
    for text in wrong {
        match Rules::from_toml(&with(&format!("refund-on = {text}"))) {
            Ok(_) => taken.push(text),
            Err(error) => {
                let told = error.to_string();
                println!("{told}");
                assert!(told.contains("refund-on"), "{text}: {told}");
                assert!(
                    told.contains(":5") || told.contains("line 5"),
                    "{text}: {told}"
                );
                assert!(told.len() < 400, "{told}");
            }
        }
    }
    assert!(taken.is_empty(), "{taken:?}");
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
        println!("{error}");
        assert!(error.to_string().contains("refund"), "{error}");
    }
    assert!(Rules::from_toml(&format!("refund-on = [\"2xx\"]\n{}", with(""))).is_err());
    // A candidate is given back with its rule: outcomes of its own cannot mean anything else.
    let of_shadow = "[rules.login.shadow]\nmax-count = 5\nwindow = \"1h\"\nrefund-on = [\"5xx\"]";
    println!(
        "{:?}",
        Rules::from_toml(&with(of_shadow)).map_err(|it| it.to_string())
    );
}

/// In code the same mistakes are errors, not panics.
#[test]
fn in_code() {
    let rule = || Rule::new("a", [tidegate::Quota::new(HOUR, 5).expect("valid")]).expect("valid");
    for wrong in [
        &[][..],
        &[""],
        &["2xx", "nonsense"],
        &["2XXX"],
        &["\0"],
        &["grpc-"],
    ] {
        let error = rule()
            .with_refund_on(wrong.iter().copied())
            .expect_err("wrong");
        let told = error.to_string();
        println!("{told}");
        assert!(!told.is_empty());
    }
    let long = "2".repeat(1_000_000);
    let told = rule()
        .with_refund_on([&*long])
        .expect_err("wrong")
        .to_string();
    println!("a message of {} bytes", told.len());
}

/// A file does what the code does.
#[tokio::test]
async fn a_file_gives_back() {
    let text = with("refund-on = [\"2xx\", \"304\", \"grpc-5\"]");
    let limits = Limits::from_toml(&text)
        .expect("valid")
        .store(MemoryStore::new());
    let service = wrap(&limits.layer("login"));
    let mut left = 50;
    for (status, is_back) in [
        (200, true),
        (304, true),
        (301, false),
        (401, false),
        (299, true),
    ] {
        assert_eq!(send(&service, status).await, status);
        left -= u64::from(!is_back);
        assert_eq!(left_of(&limits, "login", "x").await, left, "{status}");
    }
    super::ask(&service, grpc(&[("x-back-grpc-status", "5")])).await;
    super::ask(&service, request(&[("x-back-grpc-status", "5")])).await;
    flushed(&limits).await;
    assert_eq!(left_of(&limits, "login", "x").await, left);
    // A rule that is switched off, and one with a max of nothing.
    for (line, status) in [("enabled = false", 200), ("max-count = 0", 429)] {
        let text = with("refund-on = [\"2xx\", \"4xx\"]");
        let text = match line {
            "max-count = 0" => text.replace("max-count = 50", line),
            _ => format!("{line}\n{text}"),
        };
        let limits = Limits::from_toml(&text).expect("valid");
        let service = wrap(&limits.layer("login"));
        for _ in 0..3 {
            assert_eq!(send(&service, 200).await, status, "{line}");
        }
        flushed(&limits).await;
    }
}
