//! Reads the text that an exporter shows. Whatever Prometheus would not read is a panic.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a text by their names, and by their labels in the order of the alphabet.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) text: String,
    samples: BTreeMap<(String, Labels), f64>,
    types: BTreeMap<String, String>,
    helps: BTreeSet<String>,
}

type Labels = BTreeMap<String, String>;

impl Exposition {
    pub(crate) fn parse(text: &str) -> Self {
        let mut all = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(words) = line.strip_prefix("# TYPE ") {
                let (name, kind) = words.split_once(' ').expect("a name and a type");
                let is_new = all.types.insert(name.to_owned(), kind.to_owned()).is_none();
                assert!(is_new, "two types of {name}");
            } else if let Some(words) = line.strip_prefix("# HELP ") {
                let (name, help) = words.split_once(' ').expect("a name and a text");
                assert!(help.ends_with('.'), "{help}");
                assert!(all.helps.insert(name.to_owned()), "two helps of {name}");
            } else {
                let (name, labels, value) = sample(line);
                let is_new = all.samples.insert((name, labels), value).is_none();
                assert!(is_new, "two samples: {line}");
            }
        }
        all
    }

    /// The sample with exactly these labels; `None` if there is none.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let labels = labels.iter().map(owned).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// The sample of a metric of a rule, without the `tidegate_` in front of it.
    pub(crate) fn of(&self, rule: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = [&[("rule", rule)], labels].concat();
        self.get(&format!("tidegate_{name}"), &labels)
    }

    /// All decisions about a rule.
    pub(crate) fn decisions(&self, rule: &str) -> f64 {
        self.sum("tidegate_decisions_total", &[("rule", rule)])
    }

    /// How many requests were of no rule.
    pub(crate) fn unmatched(&self) -> Option<f64> {
        self.get("tidegate_unmatched_requests_total", &[])
    }

    /// All samples of a name that have at least these labels, added up.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |all: &Labels| {
            let mut wanted = labels.iter();
            wanted.all(|(key, value)| all.get(*key).is_some_and(|it| it == value))
        };
        let all = self.samples.iter();
        let wanted = all.filter(|((its_name, labels), _)| its_name == name && has(labels));
        wanted.map(|(_, value)| value).sum()
    }

    /// How many samples there are with this label, whatever their name.
    pub(crate) fn series_with(&self, key: &str, value: &str) -> usize {
        let has = |labels: &Labels| labels.get(key).is_some_and(|it| it == value);
        let all = self.samples.keys();
        all.filter(|(_, labels)| has(labels)).count()
    }

    /// The names of all metrics with their types.
    pub(crate) fn types(&self) -> &BTreeMap<String, String> {
        &self.types
    }

    /// The names of the metrics that have a help text.
    pub(crate) fn helps(&self) -> &BTreeSet<String> {
        &self.helps
    }

    /// The names of all labels of a metric.
    pub(crate) fn labels_of(&self, name: &str) -> BTreeSet<&str> {
        let all = self.samples.keys();
        let of_metric = all.filter(|(its_name, _)| its_name == name);
        let names = of_metric.flat_map(|(_, labels)| labels.keys());
        names.map(String::as_str).collect()
    }
}

/// `name{label="value",other="value"} 1`
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect("a name and a value");
    let name = &line[..end];
    assert!(is_name(name), "{line}");
    let (labels, value) = match line[end..].strip_prefix('{') {
        Some(rest) => labels(rest),
        None => (Labels::new(), &line[end..]),
    };
    let value = value.strip_prefix(' ').expect("a space");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

fn labels(mut rest: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (key, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(key), "{key}");
        let (value, after) = quoted(after);
        let is_new = labels.insert(key.to_owned(), value).is_none();
        assert!(is_new, "two of {key}");
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, after.strip_prefix('}').expect("an end")),
        }
    }
}

/// A label's value up to its closing quote, and what comes behind that.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                other => panic!("\\ before {other:?}"),
            }),
            character => value.push(character),
        }
    }
    panic!("a label without an end: {text}")
}

fn is_name(name: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.chars().all(is_allowed)
}
