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

/// What of the month is left.
async fn left_of(limits: &Limits, key: &str) -> u64 {
    let left = left_of_each(limits, "chat", key.to_owned()).await;
    *left.last().expect("of the month")
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

/// Nothing of the minute is charged by what the month denies, and the other way round.
#[tokio::test]
async fn both_are_charged_or_neither() {
    for store in &Stores::start().await.all {
        for algorithm in Algorithm::ALL {
            let limits = limits_of(&chat(150).with_algorithm(algorithm), store);
            let check = |cost| limits.check("chat", format!("{algorithm:?}")).cost(cost);
            check(90).await.expect("there is room");
            check(20).await.expect_err("the minute is used");
            let key = format!("{algorithm:?}");
            assert_eq!(left_of(&limits, &key).await, 60);
            let charge = check(10).await.expect("there is room").charge;
            assert_eq!(left_of(&limits, &key).await, 50);
            charge.expect("a charge").refund().await.expect("an answer");
            assert_eq!(left_of(&limits, &key).await, 60);
            limits.reset("chat", key.clone()).await.expect("an answer");
            assert_eq!(left_of(&limits, &key).await, 150);
            let never = check(151).await.expect_err("never");
            assert_eq!(never.decision().expect("a decision").retry_after(), None);
        }
    }
}

/// Another max goes on with what is used, that of a value also.
#[tokio::test]
async fn plans_and_raises_go_on() {
    for store in &Stores::start().await.all {
        let pro = Quotas::with_policies([a_month(10)]).expect("valid");
        let limits = limits_of(&chat(4).with_plan("pro", pro).expect("valid"), store);
        let check = || limits.check("chat", "alice");
        for _ in 0..4 {
            check().await.expect("there is room");
        }
        check().await.expect_err("used up");
        check().plan("pro").cost(5).await.expect("there is room");
        check().plan("pro").cost(2).await.expect_err("used up");
        let value = Plan::of([a_month(11)]).expect("valid");
        check()
            .plan_value(value.clone())
            .cost(2)
            .await
            .expect("there is room");
        check().plan_value(value).await.expect_err("used up");
        // Another period is another count.
        let weekly = Plan::of([Policy::calendar(Period::WEEK, 1)]).expect("valid");
        check().plan_value(weekly).await.expect("there is room");
        let hour = Duration::from_secs(3_600);
        let raised = limits.raise("chat", "alice", 3.0, hour, "ops").await;
        raised.expect("it can be raised");
        assert_eq!(left_of(&limits, "alice").await, 1);
        check().await.expect("there is room");
        check().await.expect_err("used up");
        check().plan("pro").cost(18).await.expect("there is room");
    }
}

/// A plan that says no zone has that of its rule, of the same period or of another one; it says no
/// other.
#[test]
fn plans_have_the_zone_of_their_rule() {
    const FILE: &str = r#"
        [rules.chat]
        quotas = [{ max-count = 9, per = "day" },
            { max-count = 9, per = "month", zone = "Europe/Berlin" }]
        [rules.chat.plans]
        month = { max-count = 5, per = "month" }
        same = { max-count = 5, per = "month", zone = "Europe/Berlin" }
        day = { max-count = 5, per = "day" }
    "#;
    let limits = of_toml(FILE);
    let rule = Arc::clone(limits.rules().load().get("chat").expect("a rule"));
    let text = |rule: &Rule| {
        rule.policies()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let of_plan = |name: &str| text(&rule.of_plan(name).expect("a plan"));
    assert_eq!(of_plan("month"), ["5 per month in Europe/Berlin"]);
    assert_eq!(of_plan("same"), ["5 per month in Europe/Berlin"]);
    assert_eq!(of_plan("day"), ["5 per day"]);

    let rule = Arc::new(chat(9));
    for (plan, expected) in [
        (
            Policy::calendar(Period::MONTH, 5),
            Ok("5 per month in Europe/Berlin"),
        ),
        (
            Policy::calendar(Period::WEEK, 5),
            Ok("5 per week in Europe/Berlin"),
        ),
        (a_month(5), Ok("5 per month in Europe/Berlin")),
        (
            in_zone("Asia/Tokyo"),
            Err(
                "a plan in the time zone \"Asia/Tokyo\", expected that of the rule, \"Europe/Berlin\"",
            ),
        ),
        (
            in_zone("UTC"),
            Err("a plan in the time zone \"UTC\", expected that of the rule, \"Europe/Berlin\""),
        ),
    ] {
        let quotas = Quotas::with_policies([plan]).expect("valid");
        let by_value = rule.under(&Plan::from(quotas.clone()));
        let by_name = chat(9).with_plan("pro", quotas);
        let by_name = by_name.map(|it| Arc::new(it).of_plan("pro").expect("a plan"));
        for made in [by_value, by_name] {
            let said = made.map(|it| text(&it)).map_err(|error| error.to_string());
            assert_eq!(
                said,
                expected
                    .map(|it| vec![it.to_owned()])
                    .map_err(str::to_owned)
            );
        }
    }
}

/// A plan says where its month begins, or has that of its rule.
#[test]
fn plans_say_where_their_period_begins() {
    const FILE: &str = r#"
        [rules.chat]
        quotas = [{ max-count = 9, per = "month", from = 15, zone = "Europe/Berlin" }]
        [rules.chat.plans]
        month = { max-count = 5, per = "month" }
        first = { max-count = 5, per = "month", from = 1 }
        other = { max-count = 5, per = "month", from = 31 }
        week = { max-count = 5, per = "week" }
        sunday = { max-count = 5, per = "week", from = "sunday" }
    "#;
    let limits = of_toml(FILE);
    let rule = Arc::clone(limits.rules().load().get("chat").expect("a rule"));
    let text = |rule: &Rule| rule.policies()[0].to_string();
    let from = |day| Period::MONTH.from_day(day).expect("a day");
    let sunday = Period::WEEK.from_weekday(Weekday::Sunday);
    for (plan, period, expected) in [
        ("month", Period::MONTH, "month from day 15"),
        ("first", from(1), "month from day 1"),
        ("other", from(31), "month from day 31"),
        ("week", Period::WEEK, "week"),
        ("sunday", sunday.expect("of a week"), "week from sunday"),
    ] {
        let expected = format!("5 per {expected} in Europe/Berlin");
        assert_eq!(text(&rule.of_plan(plan).expect("a plan")), expected);
        let by_value = Plan::of([Policy::calendar(period, 5)]).expect("valid");
        assert_eq!(text(&rule.under(&by_value).expect("it fits")), expected);
    }
    // Both would count in one.
    let two = [from(1), from(15)].map(|period| Policy::calendar(period, 5));
    let two = Quotas::with_policies(two.map(|it| it.clone().named(&it.to_string())));
    let error = two.expect_err("two months").to_string();
    assert!(
        error.ends_with("is a second quota of one window, expected one: the smaller max decides")
    );
}

/// Another beginning, of a plan here, leaves the running period its end: one shorter period may
/// follow. It is one count, which a reset by any rule forgets.
#[tokio::test]
async fn another_beginning_goes_on() {
    // Midnight in Berlin: of the 1st and the 15th of December, and of the 1st of January.
    let [first, fifteenth, january] = [95, 431, 839];
    let from_1_and_15 = [
        (false, 0, 8, first),
        (true, 1, 7, first),
        (true, first, 8, fifteenth),
        (false, first + 1, 7, fifteenth),
        (false, fifteenth, 8, january),
        (true, fifteenth + 1, 7, january),
    ];
    // Of the 31st of January, the last of February, the 31st of March, and the 28th of April.
    let [january, february, march, april] = [24, 696, 1_439, 2_111];
    let from_31_and_28 = [
        (false, 0, 8, january),
        (true, 1, 7, january),
        (true, january, 8, february),
        (false, january + 1, 7, february),
        (false, february, 8, march),
        (true, march - 1, 7, march),
    ];
    let stores = kit::clocked::Stores::start().await;
    for clocked in &stores.all[..2] {
        // From the 27th of November 2026, and the 30th of January 2027, in hours.
        for (begin, days, steps, next) in [
            (498_816, [1, 15], from_1_and_15, fifteenth + 31 * 24),
            (500_351, [31, 28], from_31_and_28, april),
        ] {
            let of_rule = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
            let [of_rule, of_plan] = [(of_rule, 0), (Period::MONTH, 1)]
                .map(|(month, at)| Policy::calendar(month.from_day(days[at]).expect("a day"), 9));
            let minute = Policy::from(Quota::per_minute(100));
            let rule = Rule::with_policies("chat", [minute, of_rule]).expect("a rule");
            let limits = limits_of(&rule, &clocked.store);
            let plan = Plan::of([of_plan]).expect("valid");
            // What is left under the rule, or the plan, and in how many hours the period ends.
            let check = async |has_plan, hours: u64| {
                clocked.clock.set((begin + hours) * 3_600_000_000);
                let check = limits.check("chat", "alice");
                let check = match has_plan {
                    true => check.plan_value(plan.clone()),
                    false => check,
                };
                let decision = check.await.expect("there is room").decision;
                let decision = decision.expect("it was decided");
                let month = decision.quotas().last().expect("of the month");
                let ends_in = month.reset_after().as_secs() / 3_600;
                (month.remaining(), hours + ends_in)
            };
            for (has_plan, hours, left, end) in steps {
                let context = format!("{days:?}: {has_plan} {hours}");
                assert_eq!(check(has_plan, hours).await, (left, end), "{context}");
            }
            assert!(limits.reset("chat", "alice").await.expect("an answer"));
            // It begins anew, by whoever asks first.
            assert_eq!(check(true, steps[5].1 + 1).await, (8, next));
        }
    }
}

/// Five a month in this zone.
fn in_zone(name: &str) -> Policy {
    Policy::calendar(Period::MONTH.in_zone(name).expect("a zone"), 5)
}

/// A plan of another period has a count of its own, which a reset forgets, too.
#[tokio::test]
async fn a_reset_reaches_the_periods_of_plans() {
    for store in &Stores::start().await.all {
        let weekly = Quotas::with_policies([Policy::calendar(Period::WEEK, 3)]).expect("valid");
        let limits = limits_of(&chat(4).with_plan("weekly", weekly).expect("valid"), store);
        let check = || limits.check("chat", "alice").plan("weekly").cost(3);
        check().await.expect("there is room");
        check().await.expect_err("used up");
        assert!(limits.reset("chat", "alice").await.expect("an answer"));
        check().await.expect("there is room again");
    }
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

/// Of another zone, alone, beside permits, of subjects with costs of their own, and in shadow.
#[tokio::test]
async fn beside_others() {
    for store in &Stores::start().await.all {
        let limited = limits_of(&chat(5).with_max_concurrent(1).expect("valid"), store);
        let held = limited
            .check("chat", "bob")
            .cost(2)
            .await
            .expect("there is room");
        let busy = limited.check("chat", "bob").await.expect_err("busy");
        assert!(busy.decision().expect("a decision").is_busy());
        assert_eq!(left_of_each(&limited, "chat", "bob").await, [98, 3, 0]);
        drop(held);

        let user = Subject::new("user", Header::new("x-user")).limit(a_month(7).with_cost(1));
        let user = user.limit(a_month(90));
        let all = Subject::new("all", Everyone).limit(Policy::calendar(Period::DAY, 100));
        let rule = Rule::joint("joint", [user, all])
            .expect("a rule")
            .with_cost(30);
        assert_eq!(rule.policies()[0].name(), "joint-user-month-cost1");
        let joint = limits_of(&rule, store);
        let keys = || [("user", Key::from("carol")), ("all", Key::default())];
        joint.check("joint", keys()).await.expect("there is room");
        assert_eq!(left_of_each(&joint, "joint", keys()).await, [6, 60, 70]);
        let admitted = joint.check("joint", keys()).await.expect("there is room");
        let charge = admitted.charge.expect("a charge");
        let settled = charge.settle(45).await.expect("an answer");
        assert_eq!((settled.given_back, settled.charged), (0, 15));
        assert_eq!(left_of_each(&joint, "joint", keys()).await, [5, 15, 25]);

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

/// A request does not wait for a month; and what is used beyond a reservation is owed in its month.
#[tokio::test]
async fn waiting_and_owing() {
    for store in &Stores::start().await.all {
        let limits = limits_of(&chat(3).with_owe_at_most(2), store);
        let app = app(limits.layer("chat").wait(30 * SECOND).key(Everyone));
        let admitted = limits.check("chat", Key::default()).await;
        let charge = admitted.expect("there is room").charge.expect("a charge");
        let settled = charge.settle(9).await.expect("an answer");
        assert_eq!((settled.charged, settled.forgiven), (4, 4));
        let began = Instant::now();
        assert_eq!(ask(&app, "/", "").await.status, 429);
        assert!(began.elapsed() < 5 * SECOND);
    }
}

/// An estimate above the month's max reserves that.
#[tokio::test]
async fn an_estimate_above_the_max_of_a_month() {
    for store in &Stores::start().await.all {
        let rule = chat(3).with_settling(true).with_reserve_max();
        let limits = limits_of(&rule, store);
        let admitted = limits.check("chat", "alice").cost(500).await;
        let admitted = admitted.expect("the max is reserved");
        assert!(admitted.decision.expect("it was decided").is_reduced());
        assert!(limits.check("chat", "alice").cost(1).await.is_err());
    }
}

#[tokio::test]
async fn usage_and_the_page_tell_the_period() {
    let limits = Limits::new([chat(9).with_key(Header::new("x-user"))]);
    let usage = limits.usage(["chat"]).expect("a rule");
    let usage = Router::new().route("/", axum::routing::get(usage.handler()));
    let (length, end) = month();
    let answer = ask(&usage, "/", "x-user: alice").await;
    let shown: Value = serde_json::from_str(&answer.body).expect("JSON");
    let expected = json!({"name": "chat-month", "limit": 9, "remaining": 9, "reset": 0,
        "window": length, "per": "month", "zone": "Europe/Berlin"});
    assert_eq!(shown["rules"][0]["policies"][1], expected);

    let search = Rule::with_policies("search", [a_month(9)]).expect("a rule");
    let app = kit::page::App::keyed(Limits::new([search]), |page| page);
    assert_eq!(app.search("alice").await, 200);
    let look = app.look("alice").await;
    let month = &look["quotas"][0];
    let told = json!([month["per"], month["zone"], month["remaining"]]);
    assert_eq!(told, json!(["month", "Europe/Berlin", 8]));
    let left = month["reset_in_s"].as_f64().expect("seconds");
    assert!(end.contains(&(left as u64)), "{left}");
}

#[tokio::test]
async fn usage_and_the_page_tell_where_it_begins() {
    let sunday = Period::WEEK.from_weekday(Weekday::Sunday);
    let month = Period::MONTH.from_day(15);
    let periods = [month.expect("each has it"), sunday.expect("of a week")];
    let policies = periods.map(|period| Policy::calendar(period, 9));
    let rule = Rule::with_policies("search", policies).expect("a rule");
    let keyed = rule.clone().with_key(Header::new("x-user"));
    let usage = Limits::new([keyed]).usage(["search"]).expect("a rule");
    let usage = Router::new().route("/", axum::routing::get(usage.handler()));
    let answer = ask(&usage, "/", "x-user: alice").await;
    let shown: Value = serde_json::from_str(&answer.body).expect("JSON");
    let app = kit::page::App::keyed(Limits::new([rule]), |page| page);
    assert_eq!(app.search("alice").await, 200);
    let look = app.look("alice").await;
    for quotas in [&shown["rules"][0]["policies"], &look["quotas"]] {
        let told = [0, 1].map(|at| json!([quotas[at]["per"], quotas[at]["from"]]));
        assert_eq!(told, [json!(["month", 15]), json!(["week", "sunday"])]);
    }
}

/// The store knows the time, and says when a period ends that somebody has used.
#[tokio::test]
async fn an_untouched_period_has_no_end() {
    let limits = Limits::new([chat(9).with_key(Header::new("x-user"))]);
    let usage = limits.usage(["chat"]).expect("a rule");
    let usage = Router::new().route("/", axum::routing::get(usage.handler()));
    let told = async || {
        let answer = ask(&usage, "/", "x-user: alice").await;
        let field = answer.fields["ratelimit"].to_str().expect("text");
        field.to_owned()
    };
    assert_eq!(told().await, "\"chat-1m\";r=100;t=60,\"chat-month\";r=9");
    limits.check("chat", "alice").await.expect("there is room");
    let (_, month) = month();
    let told = told().await;
    let (_, end) = told.rsplit_once("\"chat-month\";r=8;t=").expect("an end");
    assert!(month.contains(&end.parse().expect("seconds")), "{told}");
}

/// A key is locked out under the quotas of its windows; nothing of the month is charged meanwhile.
#[tokio::test]
async fn beside_a_lockout() {
    const FILE: &str = r#"
        [rules.chat]
        quotas = [{ max-count = 100, window = "1m" }, { max-count = 9, per = "month" }]
        key = "header:x-user"
        lockout = { after = 2, within = "15m", hold = ["15m"], on = ["401"] }
    "#;
    for store in &Stores::start().await.all {
        let limits = of_toml(FILE).store(Arc::clone(store));
        let handler = axum::routing::get(async || StatusCode::UNAUTHORIZED);
        let app = Router::new().route("/", handler.layer(limits.layer("chat")));
        for _ in 0..2 {
            assert_eq!(ask(&app, "/", "x-user: alice").await.status, 401);
        }
        let is_locked = async || {
            let refused = limits.check("chat", "alice").await.err();
            refused.is_some_and(|it| it.decision().is_some_and(Decision::is_locked_out))
        };
        eventually("a lock-out", is_locked).await;
        let left = left_of(&limits, "alice").await;
        assert!(is_locked().await);
        assert_eq!(left_of(&limits, "alice").await, left);
        assert_eq!(left_of(&limits, "bob").await, 9);
    }
}
