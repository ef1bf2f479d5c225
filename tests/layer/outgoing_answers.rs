//! What partners answer, as they document it, and for how long each answer holds its key.

use crate::*;

/// The answers' own time: 1,795,680,000 seconds since 1970.
const DATE: &str = "date: Thu, 26 Nov 2026 08:00:00 GMT\n";

/// `google.rpc.ErrorInfo` and a `RetryInfo` of 32.5 s.
const RETRY_INFO: &str = "CAgSDlF1b3RhIGV4Y2VlZGVkGlEKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5F\
    cnJvckluZm8SJQoTUkFURV9MSU1JVF9FWENFRURFRBIOZ29vZ2xlYXBpcy5jb20aNgoodHlwZS5nb29nbGVhcGlzLmNvbS\
    9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIIBCAyrXuAQ==";

struct Partner(Limits);

impl Partner {
    fn new(hold_on: &[&str]) -> Self {
        let rule = per_minute("partner", 10_000).with_outgoing();
        let rule = rule.expect("one subject");
        let rule = match hold_on {
            [] => rule,
            some => rule.with_hold_on(some.iter().copied()).expect("statuses"),
        };
        Self(Limits::new([rule]))
    }

    /// For how many milliseconds this answer holds the key of its call.
    async fn held(&self, status: u16, fields: &str) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for field in fields.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = field.split_once(':').expect("a field");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, value.trim().parse().expect("a value"));
        }
        let (key, partner) = (format!("{status} {fields}"), self.0.outgoing("partner"));
        let status = StatusCode::from_u16(status).expect("a status");
        let turn = partner.ready(&*key).await.expect("a turn");
        turn.observe_response(status, &headers);
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        let refused = partner.ready(&*key).await.err()?;
        Some(refused.retry_after().expect("it ends").as_millis())
    }
}

/// What a section says of its rows, see outgoing_answers.txt.
#[derive(Default)]
struct Section<'a> {
    date: &'a str,
    /// Each with the time of its own, if it has one.
    statuses: Vec<&'a str>,
    hold_on: Vec<Vec<&'a str>>,
    names: Vec<&'a str>,
    lets: Vec<(&'a str, &'a str)>,
    warns: bool,
}

impl<'a> Section<'a> {
    fn hears(&mut self, line: &'a str) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("date", _) => self.date = DATE,
            ("statuses", said) => self.statuses = said.split(", ").collect(),
            ("hold-on", said) => {
                let of_each = said.split("; ");
                self.hold_on = of_each.map(|it| it.split(' ').collect()).collect();
            }
            ("in", said) => self.names = said.split(", ").collect(),
            ("let", said) => self.lets.push(said.split_once(" = ").expect(line)),
            ("warns", _) => self.warns = true,
            _ => panic!("{line}"),
        }
    }

    /// Whether each answer of a row holds as long as it says.
    async fn check(&self, partner: &Partner, line: &str) {
        let mut row = line.to_owned();
        for (name, is) in &self.lets {
            row = row.replace(&format!("${name}"), is);
        }
        let (head, answers) = row.split_once(" |").expect(line);
        let (status, head) = match self.statuses.is_empty() {
            true => head.split_once(' ').expect(line),
            false => ("", head),
        };
        let (expected, named) = head.split_once(' ').unwrap_or((head, ""));
        for answer in answers.split("||") {
            let fields: Vec<_> = answer.split(" | ").map(str::trim).collect();
            let all = match &self.names[..] {
                [] => vec![fields.join("\n")],
                names => names
                    .iter()
                    .map(|it| format!("{it}: {}", fields[0]))
                    .collect(),
            };
            let own = [status].into_iter().filter(|it| !it.is_empty());
            let statuses: Vec<_> = self.statuses.iter().copied().chain(own).collect();
            for fields in all {
                let fields = format!("{}{fields}", self.date);
                for status in &statuses {
                    let (status, expected) = status.split_once(' ').unwrap_or((status, expected));
                    let expected = (expected != "-").then(|| expected.parse().expect(line));
                    let held = partner.held(status.parse().expect(line), &fields).await;
                    assert_eq!(held, expected, "{line}: {status}\n{fields}");
                }
            }
        }
        if self.warns {
            let told = partner.0.warnings().into_iter().map(|it| it.name);
            let told: Vec<_> = told.map(|it| it.unwrap_or_default().to_string()).collect();
            let expected: &[&str] = if named == "-" { &[] } else { &[named] };
            assert_eq!(told, expected, "{line}");
        }
    }
}

async fn play(name: &str) {
    let text = include_str!("outgoing_answers.txt").replace("\n    |", " |");
    let text = text
        .replace("{DATE}", DATE.trim())
        .replace("{RETRY_INFO}", RETRY_INFO);
    let sections = text.split("\n== ").skip(1);
    let sections: Vec<_> = sections
        .filter(|it| it.lines().next() == Some(name))
        .collect();
    assert!(!sections.is_empty(), "{name}");
    for text in sections {
        let mut section = Section::default();
        let lines = text
            .lines()
            .skip(1)
            .filter(|it| !it.is_empty() && !it.starts_with('#'));
        let (said, rows): (Vec<_>, Vec<_>) = lines.partition(|it| it.starts_with(": "));
        said.into_iter().for_each(|it| section.hears(&it[2..]));
        let none = [Vec::new()];
        for hold_on in if section.hold_on.is_empty() {
            &none[..]
        } else {
            &section.hold_on
        } {
            let mut partner = Partner::new(hold_on);
            for row in &rows {
                section.check(&partner, row).await;
                if section.warns {
                    partner = Partner::new(hold_on);
                }
            }
        }
    }
}

macro_rules! sections {
    ($($name:ident)+) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                play(stringify!($name)).await;
            }
        )+
    };
}

sections! {
    as_partners_document_them
    forms_of_refusals
    a_400_needs_a_field
    forms_of_a_time
    drafts_of_ratelimit
    answers_from_a_cache
    which_answers_hold
}

/// The `Date` of a server that has another zone in it.
#[tokio::test(start_paused = true)]
async fn a_date_with_an_offset() {
    let partner = Partner::new(&[]);
    for date in [
        "Thu, 26 Nov 2026 08:00:00 UTC",
        "Thu, 26 Nov 2026 08:00:00 +0000",
        "Thu, 26 Nov 2026 09:00:00 +0100",
        "Thu, 26 Nov 2026 02:30:00 -0530",
        "Fri, 27 Nov 2026 01:00:00 +17:00",
        "2026-11-26T10:00:00+02:00",
        "2026-11-26T10:00:00+0200",
    ] {
        for reset in ["1795680060", "Thu, 26 Nov 2026 08:01:00 GMT"] {
            let fields = format!("date: {date}\nratelimit-remaining: 0\nratelimit-reset: {reset}");
            assert_eq!(partner.held(200, &fields).await, Some(60_000), "{fields}");
        }
    }
}

/// Two numbers in a field, as of two quotas or two proxies, in one line or in two: the stricter.
#[tokio::test(start_paused = true)]
async fn several_numbers_in_a_field() {
    let partner = Partner::new(&[]);
    for (left, reset, expected) in [
        (&["0"][..], &["10", "60"][..], Some(60_000)),
        (&["0"], &["60", "10"], Some(60_000)),
        (&["5", "0"], &["60"], Some(60_000)),
        (&["0", "5"], &["60"], Some(60_000)),
        (&["5", "3"], &["60"], None),
        // Each of two numbers has its own time, such as Brave's, of a second and of a month.
        (&["0", "14999"], &["1", "1419704"], Some(1_000)),
        (&["1", "0"], &["1", "1419"], Some(1_419_000)),
        (&["0", "0"], &["1", "60"], Some(60_000)),
        (&["0;w=1", "5;w=60"], &["1", "60"], Some(1_000)),
        (&["1", "14999"], &["1", "1419704"], None),
    ] {
        for between in [", ", ",", "\n"] {
            for name in ["x-ratelimit", "ratelimit"] {
                let lines = |what: &str, numbers: &[&str]| {
                    let next = between.replace('\n', &format!("\n{name}-{what}: "));
                    format!("{name}-{what}: {}\n", numbers.join(&next))
                };
                let [left, reset] = [lines("remaining", left), lines("reset", reset)];
                let fields = format!("{DATE}{left}{reset}");
                assert_eq!(partner.held(200, &fields).await, expected, "{fields}");
            }
        }
    }
    let [one, two] = [1, 2].map(|it| format!("retry-after: Thu, 26 Nov 2026 08:0{it}:00 GMT"));
    let dates = format!("{DATE}{one}\n{two}");
    assert_eq!(partner.held(429, &dates).await, Some(120_000));
    for (left, expected) in [("5", 1_000), ("some", 60_000)] {
        let fields = format!("x-ratelimit-remaining: {left}\nx-ratelimit-reset: 60");
        assert_eq!(partner.held(429, &fields).await, Some(expected), "{fields}");
    }
}

/// No clock of this process decides.
#[tokio::test(start_paused = true)]
async fn instants_without_a_date() {
    let partner = Partner::new(&[]);
    for text in [
        "1795680009",
        "1795680009000",
        "99999999999999999999",
        "2026-11-26T08:01:30Z",
        "Thu, 26 Nov 2026 08:01:30 GMT",
    ] {
        for date in ["", "date: yesterday\n"] {
            let fields = format!("{date}retry-after: {text}");
            assert_eq!(partner.held(429, &fields).await, Some(1_000), "{fields}");
        }
    }
    // A far instant is cut.
    let far = format!("{DATE}retry-after: 99999999999999999999");
    assert_eq!(partner.held(429, &far).await, Some(3_600_000));
    let digits = format!("retry-after: {}", "9".repeat(60_000));
    assert_eq!(partner.held(429, &digits).await, Some(1_000));
}

/// The first field that is understood decides alone.
#[tokio::test(start_paused = true)]
async fn the_order_of_the_fields() {
    let partner = Partner::new(&[]);
    let fields = [
        "retry-after-ms: 1000",
        "x-ms-retry-after-ms: 2000",
        "retry-after: 3",
        "ratelimit: \"a\";r=0;t=4",
        "ratelimit-reset: 5",
        "x-ratelimit-reset-after: 6",
        "x-ratelimit-reset: 7",
        "x-ratelimit-reset-requests: 8s",
    ];
    for first in 0..fields.len() {
        let mut left = fields[first..].to_vec();
        left.reverse();
        let expected = (first as u128 + 1) * 1_000;
        assert_eq!(partner.held(429, &left.join("\n")).await, Some(expected));
        left.push("retry-after-ms: tomorrow");
        if first > 0 {
            assert_eq!(partner.held(429, &left.join("\n")).await, Some(expected));
        }
    }
    let longer = "retry-after: 0\nratelimit: \"a\";r=0;t=9";
    assert_eq!(partner.held(429, longer).await, None, "it decides alone");
    let grpc = format!("grpc-status: 8\nretry-after: 9\ngrpc-status-details-bin: {RETRY_INFO}");
    assert_eq!(partner.held(200, &grpc).await, Some(32_500));
    let pushback = format!("{grpc}\ngrpc-retry-pushback-ms: 250");
    assert_eq!(partner.held(200, &pushback).await, Some(250));
    // "Do not repeat this call" says nothing of when others are welcome.
    for never in ["-1", "-0.5", "never", ""] {
        let never = format!("{grpc}\ngrpc-retry-pushback-ms: {never}");
        assert_eq!(partner.held(200, &never).await, Some(32_500));
        let hold_on = Partner::new(&["grpc-8"]);
        assert_eq!(hold_on.held(200, &never).await, Some(32_500));
    }
}

/// Our own fields, of a layer over which requests are counted.
#[tokio::test(start_paused = true)]
async fn our_own_fields() {
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        let layer = RateLimitLayer::new("p", WINDOW, 2)
            .store(paused())
            .headers(headers);
        let app = app_at("/", layer);
        let partner = Partner::new(&[]);
        for (expected_status, expected) in [(OK, None), (OK, Some(60_000)), (DENIED, Some(60_000))]
        {
            let answer = ask(&app, "/", "").await;
            assert_eq!(answer.status, expected_status);
            let fields = answer.fields.iter();
            let fields =
                fields.map(|(name, it)| format!("{name}: {}\n", it.to_str().expect("text")));
            let held = partner
                .held(answer.status, &fields.collect::<String>())
                .await;
            assert_eq!(held, expected, "{headers:?} {expected_status}");
        }
    }
}

/// A refusal that does not say for how long holds for as long as the rule says, from a file and from
/// code, and no longer than any may.
#[tokio::test(start_paused = true)]
async fn refusals_without_a_time() {
    let text = "rules.partner = { max-count = 9_999, window = '1m', outgoing = true, \
         hold-on = ['grpc-8'], hold-untold = '30s', ";
    let of_file = |rest: &str| Partner(of_toml(&format!("{text}{rest} }}")));
    let rule = Partner::new(&["grpc-8"]).0.rules().load();
    let rule = Rule::clone(rule.get("partner").expect("a rule"));
    let of_code = Partner(Limits::new([rule.with_hold_untold(30 * SECOND)]));
    let cut = of_file("hold-at-most = '8s'");
    for (partner, untold, told) in [
        (of_file(""), 30_000, 9_000),
        (of_code, 30_000, 9_000),
        (cut, 8_000, 8_000),
    ] {
        let no_date = "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1795680009";
        for (status, fields, held) in [
            (429, "", Some(untold)),
            (429, "x-ratelimit-next: soon", Some(untold)),
            (429, no_date, Some(untold)),
            (200, no_date, Some(untold)),
            (200, "grpc-status: 8", Some(untold)),
            (200, "grpc-status: 14", None),
            (503, "retry-after: 9", Some(told)),
            // These say it.
            (
                429,
                "x-rate-limit-limit: 0\nx-rate-limit-reset: 1795680009",
                Some(1_000),
            ),
            (503, "age: 120\nretry-after: 120", Some(1_000)),
        ] {
            assert_eq!(
                partner.held(status, fields).await,
                held,
                "{status} {fields}"
            );
        }
    }
}

/// Statuses that the rule holds on are refusals, too: from a file and from code.
#[tokio::test(start_paused = true)]
async fn statuses_that_hold() {
    let text = "[rules.partner]\nmax-count = 99\nwindow = \"1m\"\noutgoing = true\n\
         hold-on = [\"403\", \"529\", \"4xx\", \"grpc-8\"]";
    let file = Partner(of_toml(text));
    for partner in [file, Partner::new(&["403", "529", "4xx", "grpc-8"])] {
        let rules = partner.0.rules().load();
        let hold_on = rules.get("partner").expect("a rule").hold_on();
        assert!(hold_on.eq(["4xx", "403", "529", "grpc-8"]));
        for status in [403, 404, 529, 429, 503] {
            assert_eq!(partner.held(status, "").await, Some(1_000), "{status}");
            let told = "retry-after: 9\nx-ratelimit-remaining: 5";
            assert_eq!(partner.held(status, told).await, Some(9_000), "{status}");
        }
        assert_eq!(partner.held(500, "retry-after: 9").await, None);
        assert_eq!(partner.held(200, "grpc-status: 8").await, Some(1_000));
        assert_eq!(partner.held(200, "grpc-status: 14").await, None);
    }
    let rule = || {
        per_minute("partner", 9)
            .with_outgoing()
            .expect("one subject")
    };
    for (wrong, message) in [
        (&["40x"][..], "\"40x\" is no status"),
        (&["denied"], "\"denied\" is no status"),
        (&["529", "error"], "\"error\" is no status"),
        (&[], "an empty list is no status"),
    ] {
        let error = rule().with_hold_on(wrong.iter().copied()).err();
        let error = error.expect("no status").to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_understood_is_told_once() {
    let (log, partner) = (Log::start(), Partner::new(&["529"]));
    assert_eq!(partner.held(429, "").await, Some(1_000), "it says nothing");
    assert_eq!(partner.held(200, "ratelimit: \"a\";r=0;t=x").await, None);
    let understood = "retry-after: secret-value\nretry-after-ms: 900";
    assert_eq!(partner.held(429, understood).await, Some(900));
    let warned = || log.lines().into_iter().filter(|line| line.contains("WARN"));
    assert_eq!(warned().count(), 0);
    for seconds in ["secret-value", "another-value"] {
        let fields = format!("retry-after: {seconds}\nx-ratelimit-reset: {seconds}");
        assert_eq!(partner.held(529, &fields).await, Some(1_000));
    }
    let lines: Vec<_> = warned().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("\"partner\""), "{lines:?}");
    assert!(lines[0].contains("field retry-after that"), "{lines:?}");
    assert!(!lines[0].contains("value"), "{lines:?}");
    let warnings = partner.0.warnings();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].kind, WarningKind::RefusalNotUnderstood);
}

#[tokio::test(start_paused = true)]
async fn the_warning_names_a_field_that_was_sent() {
    play("the_warning_names_a_field_that_was_sent").await;
    // A name is no place for a flood.
    let partner = Partner::new(&[]);
    let long = format!("x-quota-{}: 1", "a".repeat(9_000));
    assert_eq!(partner.held(429, &long).await, Some(1_000));
    let text = partner.0.warnings()[0].to_string();
    assert!(text.len() < 300, "{text}");
}

/// Details that cannot be read say nothing; those that say too much are cut.
#[tokio::test(start_paused = true)]
async fn details_of_grpc() {
    let negative =
        "CAgaOQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxINCgsI+///////////AQ==";
    let largest =
        "CAgaOAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIMCgoI//////////9/";
    let without_padding = RETRY_INFO.trim_end_matches('=');
    let partner = Partner::new(&[]);
    for (details, expected) in [
        (RETRY_INFO, Some(32_500)),
        (without_padding, Some(32_500)),
        (largest, Some(3_600_000)),
        (negative, None),
        ("", None),
        ("=", None),
        ("====", None),
        ("A", None),
        ("no base64!", None),
        (&without_padding[..without_padding.len() - 3], None),
        (&"/".repeat(60_000), None),
        (&"A".repeat(60_000), None),
    ] {
        let fields = format!("grpc-status: 8\ngrpc-status-details-bin: {details}");
        assert_eq!(partner.held(200, &fields).await, expected, "{details}");
        let other = format!("grpc-status: 0\ngrpc-status-details-bin: {details}");
        assert_eq!(partner.held(200, &other).await, None, "{details}");
    }
}
