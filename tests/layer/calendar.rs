//! Quotas of a day, a week or a month of the calendar: in files, in code, and what users see.

use std::time::SystemTime;

use tidegate::layer::SubjectKeys;
use tidegate::rule::{Period, Weekday};

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
    const BEGUN: &str = "quotas = [{ max-count = 9, per = 'month', from = 15 }, \
         { max-count = 7, per = 'week', from = 'sunday', zone = 'Europe/Berlin' }]";
    let of_two = "chat-month: 9 per month in Europe/Berlin, chat-30d: 5 per 30d, \
         chat-day: 7 per day";
    for (lines, expected) in [
        ("max-count = 9\nper = \"week\"", "chat: 9 per week"),
        (
            "max-count = 9\nper = \"day\"\nzone = \"UTC\"",
            "chat: 9 per day",
        ),
        (TWO, of_two),
        (
            BEGUN,
            "chat-month: 9 per month from day 15, \
             chat-week: 7 per week from sunday in Europe/Berlin",
        ),
    ] {
        assert_eq!(policies(lines), expected);
    }
}

/// An application has `jiff` read the data of the system: those of this crate stay what they are.
#[test]
fn zones_beside_other_data() {
    if std::env::var_os("TZDIR").is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        // Where Berlin is always 9 hours ahead, and there is no other zone.
        let one_offset = [1, 0, 0, 0, 4, 0, 0, 126, 144, 0, 0];
        let data = [b"TZif", &[0; 35][..], &one_offset, b"JST\0"].concat();
        std::fs::create_dir(folder.path().join("Europe")).expect("a folder");
        std::fs::write(folder.path().join("Europe/Berlin"), data).expect("a file");
        let mut again = kit::workers::worker_command("calendar::zones_beside_other_data", "");
        let status = again.env("TZDIR", folder.path()).status();
        return assert!(status.expect("it starts").success());
    }
    let others = jiff::tz::TimeZone::get("Europe/Berlin").expect("the data of the folder");
    let offset = others.to_offset(jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(offset.seconds(), 32_400);
    assert!(jiff::tz::TimeZone::get("America/Vancouver").is_err());
    let month = |zone| Period::MONTH.in_zone(zone).expect("a zone of the crate");
    let [berlin, vancouver] = ["Europe/Berlin", "America/Vancouver"].map(month);
    let january = SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH + 31 * 24 * HOUR;
    assert_eq!(berlin.around(january.start).end, january.end - HOUR);
    assert_eq!(vancouver.around(january.end).end, january.end + 8 * HOUR);
}

/// So many units a month in Berlin.
fn a_month(max: u64) -> Policy {
    let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
    Policy::calendar(berlin, max)
}

/// A hundred a minute, and so many a month.
fn chat(max: u64) -> Rule {
    let minute = Policy::from(Quota::per_minute(100));
    Rule::with_policies("chat", [minute, a_month(max)]).expect("a rule")
}

/// The length of the month, and the seconds to its end, give or take a few.
fn month() -> (u64, std::ops::Range<u64>) {
    let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
    let month = berlin.around(SystemTime::now());
    let length = month
        .end
        .duration_since(month.start)
        .expect("it ends behind");
    let left = month.end.duration_since(SystemTime::now());
    let left = left.expect("it ends behind now").as_secs();
    (length.as_secs(), left.saturating_sub(10)..left + 12)
}

fn number(text: &str, behind: &str) -> u64 {
    let number = text.split(behind).nth(1).expect(text);
    let digits = number.find(|char: char| !char.is_ascii_digit());
    number[..digits.unwrap_or(number.len())]
        .parse()
        .expect(text)
}

#[tokio::test]
async fn fields_tell_the_end_of_the_month() {
    for store in &Stores::start().await.all {
        let limits = limits_of(&chat(2), store);
        let app = app(limits.layer("chat"));
        for left in [1, 0, 0] {
            let answer = ask(&app, "/", "").await;
            let (length, end) = month();
            let policy = format!("\"chat-1m\";q=100;w=60,\"chat-month\";q=2;w={length}");
            assert_eq!(answer.field("ratelimit-policy"), Some(&*policy));
            let field = answer.field("ratelimit").expect("a list");
            let of_month = field.split_once(",\"chat-month\"").expect(field).1;
            assert_eq!(number(of_month, ";r="), left, "{field}");
            assert!(end.contains(&number(of_month, ";t=")), "{field}");
            if answer.status == 429 {
                let after = answer.field("retry-after").expect("the end");
                assert!(end.contains(&after.parse().expect("seconds")), "{answer:?}");
                assert!(answer.body.contains("[\"chat-month\"]"), "{}", answer.body);
            }
        }
        assert_eq!(
            counted(&limits, "chat").denials[1],
            ("chat-month".to_owned(), 1)
        );
        for headers in [Headers::Draft7, Headers::Legacy] {
            let app = crate::app(limits.layer("chat").headers(headers));
            let answer = ask(&app, "/", "").await;
            let reset = match headers {
                Headers::Draft7 => number(answer.field("ratelimit").expect("one"), "reset="),
                _ => answer
                    .field("x-ratelimit-reset")
                    .expect("one")
                    .parse()
                    .expect("seconds"),
            };
            assert!(month().1.contains(&reset), "{reset}");
        }
    }
}

/// A plan that says no zone, or not where its period begins, has that of its rule, of the same
/// period or of another one: by its name in a file, by a name from code, and by value. It says no
/// other zone.
#[test]
fn plans_have_the_zone_and_the_beginning_of_their_rule() {
    const FILE: &str = r#"
        [rules.chat]
        quotas = [{ max-count = 9, per = "day" },
            { max-count = 9, per = "month", zone = "Europe/Berlin" }]
        [rules.chat.plans]
        month = { max-count = 5, per = "month" }
        same = { max-count = 5, per = "month", zone = "Europe/Berlin" }
        day = { max-count = 5, per = "day" }
        [rules.begun]
        quotas = [{ max-count = 9, per = "month", from = 15, zone = "Europe/Berlin" }]
        [rules.begun.plans]
        month = { max-count = 5, per = "month" }
        first = { max-count = 5, per = "month", from = 1 }
        other = { max-count = 5, per = "month", from = 31 }
        week = { max-count = 5, per = "week" }
        sunday = { max-count = 5, per = "week", from = "sunday" }
    "#;
    let rules = of_toml(FILE).rules().load();
    let of_file = |path| Arc::clone(rules.get(path).expect("a rule"));
    let text = |rule: &Rule| {
        let texts = rule.policies().iter().map(ToString::to_string);
        texts.collect::<Vec<_>>().join(", ")
    };
    let (begun, own) = (of_file("begun"), Arc::new(chat(9)));
    let five = |period| Policy::calendar(period, 5);
    let from = |day| five(Period::MONTH.from_day(day).expect("a day"));
    let sunday = Period::WEEK.from_weekday(Weekday::Sunday);
    let sunday = five(sunday.expect("of a week"));
    let (month, week) = (five(Period::MONTH), five(Period::WEEK));
    for (rule, name, plan, expected) in [
        (&of_file("chat"), "month", None, "month"),
        (&of_file("chat"), "same", None, "month"),
        (&of_file("chat"), "day", None, "day in UTC"),
        (&own, "", Some(month.clone()), "month"),
        (&own, "", Some(week.clone()), "week"),
        (&own, "", Some(a_month(5)), "month"),
        (&own, "", Some(in_zone("Asia/Tokyo")), "\"Asia/Tokyo\""),
        (&own, "", Some(in_zone("UTC")), "\"UTC\""),
        (&begun, "month", Some(month), "month from day 15"),
        (&begun, "first", Some(from(1)), "month from day 1"),
        (&begun, "other", Some(from(31)), "month from day 31"),
        (&begun, "week", Some(week), "week"),
        (&begun, "sunday", Some(sunday), "week from sunday"),
    ] {
        let case = format!("{name:?} {plan:?} of {rule:?}");
        let expected = match expected.split_once(" in ") {
            _ if expected.starts_with('"') => format!(
                "a plan in the time zone {expected}, expected that of the rule, \"Europe/Berlin\""
            ),
            Some((period, _)) => format!("5 per {period}"),
            None => format!("5 per {expected} in Europe/Berlin"),
        };
        if !name.is_empty() {
            let by_name = rule.of_plan(name).expect("a plan");
            assert_eq!(text(&by_name), expected, "{case}");
        }
        let Some(plan) = plan else { continue };
        let quotas = Quotas::with_policies([plan]).expect("valid");
        let by_value = rule.under(&Plan::from(quotas.clone()));
        let by_name = Rule::clone(rule).with_plan("pro", quotas);
        let by_name = by_name.map(|it| Arc::new(it).of_plan("pro").expect("a plan"));
        for made in [by_value, by_name] {
            let said = made.map_or_else(|error| error.to_string(), |it| text(&it));
            assert_eq!(said, expected, "{case}");
        }
    }
    // Both would count in one.
    let two = [from(1), from(15)].map(|it| it.clone().named(&it.to_string()));
    let error = Quotas::with_policies(two).expect_err("two months");
    let said = "is a second quota of one window, expected one: the smaller max decides";
    assert!(error.to_string().ends_with(said), "{error}");
}

/// Five a month in this zone.
fn in_zone(name: &str) -> Policy {
    Policy::calendar(Period::MONTH.in_zone(name).expect("a zone"), 5)
}

/// What only another process has chosen is forgotten, too: windows and periods of plans from code, of
/// each subject.
#[tokio::test]
async fn a_reset_reaches_what_other_processes_have_chosen() {
    for store in &Stores::start().await.all {
        let minute = Rule::new("chat", [Quota::per_minute(100)]).expect("a rule");
        let berlin = Period::DAY.in_zone("Europe/Berlin").expect("a zone");
        let day = Policy::calendar(berlin, 100);
        let user = Subject::new("user", Header::new("x-user")).limit(day.clone());
        let all = Subject::new("all", Everyone).limit(day.clone());
        let joint = Rule::joint("chat", [user, all]).expect("a rule");
        let of_day = Rule::with_policies("chat", [day]).expect("a rule");
        for (n, (rule, subject)) in [(&minute, None), (&of_day, None), (&joint, Some("user"))]
            .into_iter()
            .enumerate()
        {
            for algorithm in Algorithm::ALL {
                let rule = rule.clone().with_algorithm(algorithm);
                let (shop, office) = (limits_of(&rule, store), limits_of(&rule, store));
                let name = Key::from(format!("{n}{algorithm:?}"));
                let key = || match subject {
                    None => SubjectKeys::from(name.clone()),
                    Some(it) => [(it, name.clone())].into(),
                };
                for policy in [
                    Policy::calendar(Period::WEEK, 3),
                    a_month(3),
                    Quota::per_hour(3).into(),
                ] {
                    let plan = Plan::of([policy.clone()]).expect("valid");
                    let check = || shop.check("chat", key()).plan_value(plan.clone()).cost(3);
                    check().await.expect("there is room");
                    check().await.expect_err("used up");
                    let reset = async || office.reset("chat", key()).await.expect("an answer");
                    assert!(reset().await, "{n} {algorithm:?} {policy}");
                    check().await.expect("there is room again");
                    assert!(
                        reset().await && !reset().await,
                        "{n} {algorithm:?} {policy}"
                    );
                }
            }
        }
    }
}

/// In shadow; and what a quota of a subject with a cost of its own is called.
#[tokio::test]
async fn beside_others() {
    let user = Subject::new("user", Header::new("x-user")).limit(a_month(7).with_cost(1));
    let rule = Rule::joint("joint", [user.limit(a_month(90))]).expect("a rule");
    assert_eq!(rule.policies()[0].name(), "joint-user-month-cost1");
    for store in &Stores::start().await.all {
        let shadow = limits_of(&chat(1).into_shadow(), store);
        for _ in 0..3 {
            shadow.check("chat", "dave").await.expect("it never denies");
        }
        eventually("answers", async || {
            counted(&shadow, "chat").decisions(DecisionOutcome::ShadowDenied) == 2
        })
        .await;
    }
}

/// What a user is shown of the usage of this rule.
struct Usage(Router);

impl Usage {
    fn of(limits: &Limits, path: &str) -> Self {
        let usage = limits.usage([path]).expect("a rule");
        Self(Router::new().route("/", axum::routing::get(usage.handler())))
    }

    /// The body, and the field.
    async fn shown(&self) -> (Value, String) {
        let answer = ask(&self.0, "/", "x-user: alice").await;
        let field = answer.fields["ratelimit"].to_str().expect("text");
        let shown: Value = serde_json::from_str(&answer.body).expect("JSON");
        (shown["rules"][0]["policies"].clone(), field.to_owned())
    }
}

/// The store knows the time, and says when a period ends that somebody has used.
#[tokio::test]
async fn usage_and_the_page_tell_the_period() {
    let limits = Limits::new([chat(9).with_key(Header::new("x-user"))]);
    let usage = Usage::of(&limits, "chat");
    let (length, end) = month();
    let (shown, field) = usage.shown().await;
    let expected = json!({"name": "chat-month", "limit": 9, "remaining": 9, "reset": 0,
        "window": length, "per": "month", "zone": "Europe/Berlin"});
    assert_eq!(shown[1], expected);
    assert_eq!(field, "\"chat-1m\";r=100;t=60,\"chat-month\";r=9");
    limits.check("chat", "alice").await.expect("there is room");
    let (_, field) = usage.shown().await;
    let (_, told) = field.rsplit_once("\"chat-month\";r=8;t=").expect("an end");
    assert!(end.contains(&told.parse().expect("seconds")), "{field}");

    let search = Rule::with_policies("search", [a_month(9)]).expect("a rule");
    let app = kit::page::App::keyed(Limits::new([search]), |page| page);
    assert_eq!(app.search("alice").await, 200);
    let look = app.look("alice").await;
    let month = &look["quotas"][0];
    let told = json!([month["per"], month["zone"], month["remaining"]]);
    assert_eq!(told, json!(["month", "Europe/Berlin", 8]));
    let left = month["reset_in_s"].as_f64().expect("seconds");
    assert!(end.contains(&(left as u64)), "{left}");

    // And where it begins.
    let sunday = Period::WEEK.from_weekday(Weekday::Sunday);
    let periods = [Period::MONTH.from_day(15), sunday].map(|it| it.expect("each has it"));
    let policies = periods.map(|period| Policy::calendar(period, 9));
    let rule = Rule::with_policies("search", policies).expect("a rule");
    let keyed = rule.clone().with_key(Header::new("x-user"));
    let (shown, _) = Usage::of(&Limits::new([keyed]), "search").shown().await;
    let app = kit::page::App::keyed(Limits::new([rule]), |page| page);
    assert_eq!(app.search("alice").await, 200);
    for quotas in [&shown, &app.look("alice").await["quotas"]] {
        let told = [0, 1].map(|at| json!([quotas[at]["per"], quotas[at]["from"]]));
        assert_eq!(told, [json!(["month", 15]), json!(["week", "sunday"])]);
    }
}
