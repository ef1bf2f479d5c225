//! Mistakes in `key = ".. | .."` and `exempt`: each is an error that names the key and the line and
//! says what was found and what was expected, and no text makes the parser panic.

use std::fmt::Write as _;

use proptest::prelude::{any, *};
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

/// A file whose fourth line is this one.
fn rules(line: &str) -> Result<Rules, ConfigError> {
    Rules::from_toml(&format!("{RULE}{line}\n[client-ip]\nhops = 1\n"))
}

fn check_error(error: &ConfigError, line: usize, key: &str) -> Result<(), String> {
    let text = error.to_string();
    let is_right = [
        error.line() == Some(line),
        error.key().is_some_and(|it| it.starts_with(key)),
        text.contains("expected") || text.contains("unknown field"),
        text.lines().count() == 1,
        text.chars().all(|char| !char.is_control()),
        text.chars().count() < 1_000,
    ];
    match is_right.iter().all(|it| *it) {
        true => Ok(()),
        false => Err(format!("{is_right:?}: {text}")),
    }
}

fn check_mistake(line: &str, key: &str) {
    let error = rules(line).err();
    let error = error.unwrap_or_else(|| panic!("{line} is no mistake"));
    check_error(&error, 4, key).unwrap_or_else(|what| panic!("{line:.200}: {what}"));
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
fn right_keys() {
    let mut texts = words(
        "bearer bearer|client-ip header:X-User method header:a|cookie:a|everyone
        cookie:__Host-sid",
    );
    texts.extend([
        " bearer ",
        "bearer  |\tclient-ip",
        "header:x-user | everyone",
        "cookie:sid | header:x-api-key | bearer | peer-ip",
        "cookie:a | cookie:A",
    ]);
    for text in texts.into_iter().map(quoted) {
        for line in [
            format!("key = {text}"),
            format!("key = [{text}, \"method\"]"),
        ] {
            let rules = rules(&line).unwrap_or_else(|error| panic!("{error}"));
            assert!(rules.get("p").is_some());
        }
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
        let error = Rules::from_toml(&format!("exempt = {{ {inner} }}\n{RULE}")).err();
        let error = error.unwrap_or_else(|| panic!("{inner} of the file is no mistake"));
        check_error(&error, 1, "exempt").unwrap_or_else(|what| panic!("{inner}: {what}"));
    }
    for value in ["7", "\"/a\"", "[]", "[\"/a\"]", "true"] {
        check_mistake(&format!("exempt = {value}"), "rules.p.exempt");
    }
}

proptest! {
    #![proptest_config(kit::random::config(4_000))]

    /// Pieces of keys in any order: right, or an error of that line.
    #[test]
    fn any_key(
        pieces in prop::collection::vec(
            prop_oneof![
                8 => "bearer|client-ip|peer-ip|everyone|method|matched-path|header:|cookie:|header:x-a|cookie:b",
                4 => "[|]|[ \t]{1,2}",
                1 => any::<char>().prop_map(String::from),
                1 => "[ -~]{0,5}",
            ],
            0..8,
        ),
        other in "(method|everyone|header:x)",
        is_list in any::<bool>(),
    ) {
        let text = quoted(&pieces.concat());
        let line = match is_list {
            true => format!("key = [{text}, \"{other}\"]"),
            false => format!("key = {text}"),
        };
        if let Err(error) = rules(&line) {
            prop_assert_eq!(check_error(&error, 4, "rules.p.key"), Ok(()), "{}", line);
        }
    }

    #[test]
    fn any_exemption(
        list in "(paths|methods|networks|path|)",
        values in prop::collection::vec(
            prop_oneof![
                2 => "/[a-z/%.]{0,6}|[A-Z]{0,6}|[0-9.]{0,12}/[0-9]{0,3}|[0-9a-f:]{0,12}/[0-9]{0,3}",
                1 => any::<String>(),
            ],
            0..3,
        ),
    ) {
        let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
        let line = format!("exempt = {{ {} = [{}] }}", quoted(&list), values.join(", "));
        if let Err(error) = rules(&line) {
            prop_assert_eq!(check_error(&error, 4, "rules.p.exempt"), Ok(()), "{}", line);
        }
    }

    /// Any text in the place of a value.
    #[test]
    fn any_value(name in "(key|exempt|exempt.paths|client-ip)", value in "[\\[\\]{}\"',=.|a-z0-9 #\n-]{0,20}") {
        if let Err(error) = rules(&format!("{name} = {value}")) {
            let text = error.to_string();
            prop_assert!(text.lines().count() == 1 && text.len() < 2_000, "{}", text);
        }
    }
}
