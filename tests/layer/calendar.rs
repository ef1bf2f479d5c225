//! Quotas of a day, a week or a month of the calendar: in files, in code, and what users see.

use crate::*;

/// The policies of a rule with these lines.
fn policies(lines: &str) -> String {
    let limits = of_toml(&format!("[rules.chat]\n{lines}"));
    let rules = limits.rules().load();
    let policies = rules.get("chat").expect("a rule").policies().iter();
    let policies = policies.map(|policy| format!("{}: {policy}", policy.name()));
    policies.collect::<Vec<_>>().join(", ")
}

#[test]
fn in_files() {
    const TWO: &str = "quotas = [{ max-count = 9, per = 'month', zone = 'Europe/Berlin' }, \
         { max-count = 5, window = '30d' }, { max-count = 7, per = 'day' }]";
    let of_two = "chat-month: 9 per month in Europe/Berlin, chat-30d: 5 per 30d, \
         chat-day: 7 per day";
    for (lines, expected) in [
        ("max-count = 9\nper = \"week\"", "chat: 9 per week"),
        (
            "max-count = 9\nper = \"day\"\nzone = \"UTC\"",
            "chat: 9 per day",
        ),
        (TWO, of_two),
    ] {
        assert_eq!(policies(lines), expected);
    }
}
