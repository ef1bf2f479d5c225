//! Mistakes in `key = ".. | .."` and `exempt`: each is an error that names the key and the line and
//! says what was found and what was expected.

use std::fmt::Write as _;

use tidegate::config::ConfigError;

use super::*;

/// A text as TOML writes it, whatever its characters are.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            ' '..='~' if char != '"' && char != '\\' => quoted.push(char),
            _ => write!(quoted, "\\U{:08X}", u32::from(char)).expect("a text"),
        }
    }
    quoted + "\""
}

const RULE: &str = "[rules.p]\nmax-count = 1\nwindow = \"1m\"\n";

fn check_error(case: &str, error: Option<ConfigError>, line: usize, key: &str) {
    let error = error.unwrap_or_else(|| panic!("{case:.200} is no mistake"));
    let text = error.to_string();
    let is_right = [
        error.line() == Some(line),
        error.key().is_some_and(|it| it.starts_with(key)),
        text.contains("expected") || text.contains("unknown field"),
        text.lines().count() == 1,
        text.chars().all(|char| !char.is_control()),
        text.chars().count() < 1_000,
    ];
    assert_eq!(is_right, [true; 6], "{case:.200}: {text}");
}

/// A file whose fourth line is this one.
fn check_mistake(line: &str, key: &str) {
    let rules = Rules::from_toml(&format!("{RULE}{line}\n[client-ip]\nhops = 1\n"));
    check_error(line, rules.err(), 4, key);
}

#[test]
fn wrong_keys() {
    let mut texts = words(
        "| || bearer| |bearer bearer||client-ip Bearer BEARER header header: header:a:b
        header:|client-ip header:\u{e4} header:x-user,y cookie cookie: cookie:a=b cookie:a;b
        cookie:\u{e4} bearer:x client-ip:1 peer-ip:x everyone:x method:GET matched-path:/ custom
        extension:User joined client_ip clientip path bearer\0",
    );
    let with_blanks = ", ,bearer | | client-ip,bearer or client-ip,bearer client-ip,header: ,\
        header:a b,cookie: sid,bearer \u{ff5c} client-ip,bear\ner,client-ip | bearer,\
        everyone | bearer,peer-ip | everyone,method | everyone,matched-path | everyone,\
        bearer | everyone | client-ip";
    texts.extend(with_blanks.split(','));
    texts.push("bearer, client-ip");
    for text in texts {
        let text = quoted(text);
        check_mistake(&format!("key = {text}"), "rules.p.key");
        check_mistake(&format!("key = [\"everyone\", {text}]"), "rules.p.key");
    }
    for value in words("7 true {} [7] [] 1.5 1979-05-27 [[\"bearer\"]] [\"\"]") {
        check_mistake(&format!("key = {value}"), "rules.p.key");
    }
    let many: Vec<_> = (0..50_000).map(|at| format!("header:x-{at}")).collect();
    for text in [
        "bearer|".repeat(10_000),
        "x".repeat(100_000),
        many.join(" | "),
        many.join("|"),
    ] {
        check_mistake(&format!("key = {}", quoted(&text)), "rules.p.key");
    }
}

#[test]
fn wrong_exemptions() {
    let lists = [
        (
            "paths",
            "healthz * /* /a/* /a?x /a#x /{id} http://host/a",
            &["", " ", " /a"][..],
        ),
        (
            "methods",
            "get Get GET,POST * \u{c4} GET|POST (GET)",
            &["", "GET POST", "GET\n", " GET"],
        ),
        (
            "networks",
            "* 10.0.0.0/33 10.0.0.0/-1 10.0.0/8 10.0.0.0/ ::/129 localhost 10.0.0.1:80 [::1]
            10.0.0.0-10.0.0.9 010.0.0.1 10.0.0.1/8/8 fe80::1%eth0 private",
            &["", " 10.0.0.1"],
        ),
    ];
    let mut all = ["path = []", "hosts = [\"a\"]", "Paths = []"]
        .map(str::to_owned)
        .to_vec();
    for (list, texts, blank) in lists {
        let texts = words(texts).into_iter().chain(blank.iter().copied());
        all.extend(texts.map(|text| format!("{list} = [{}]", quoted(text))));
        let values = words("7 true {} [7] [[]] [{}] \"x\" [true,\"/a\"]").into_iter();
        all.extend(values.map(|value| format!("{list} = {value}")));
    }
    for inner in all {
        check_mistake(&format!("exempt = {{ {inner} }}"), "rules.p.exempt");
        check_mistake(&format!("exempt.{inner}"), "rules.p.exempt");
        let rules = Rules::from_toml(&format!("exempt = {{ {inner} }}\n{RULE}"));
        check_error(&inner, rules.err(), 1, "exempt");
    }
    for value in ["7", "\"/a\"", "[]", "[\"/a\"]", "true"] {
        check_mistake(&format!("exempt = {value}"), "rules.p.exempt");
    }
}
