//! The table `[rules.<path>]`: a rule with its quotas and its plans. What a list of
//! `quotas` says of keys and subjects is in `subjects.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::config_error::{ConfigError, shorten_value};
use super::key_names::{client_ip, named_key, names_client_ip};
use super::load::exemptions;
use super::subjects::{QuotaEntry, Subjects, checked_cost};
use super::table::Value;
use crate::algorithm::{Algorithm, AlgorithmConfig, SlidingWindow};
use crate::key::ClientIp;
use crate::quota::{MAX_QUOTAS, Quota, QuotaError};
use crate::rule::headers::Headers;
use crate::rule::{
    AnswerSettings, Exemptions, FileSwitches, Lockout, OnError, Outcomes, Period, Policy, Quotas,
    Rule, RuleError, Weekday,
};

/// The keys of a table that describe one quota.
const QUOTA_KEYS: &str = "max-count window window-time window-time-unit burst pace per from zone";
/// The key of how many requests of a key may run at a time, beside quotas or in place of one.
const MAX_CONCURRENT: &str = "max-concurrent";
/// The other keys of a quota in a list. In a rule there is `absent`, too.
const ENTRY_KEYS: &str = "name key subject hidden cost";
/// The keys of a rule's table that are read beside its [settings](SETTINGS).
const KEYS: [&str; 3] = [
    QUOTA_KEYS,
    MAX_CONCURRENT,
    "quotas algorithm sub-windows enabled key",
];
/// The message for a key of earlier versions, in place of one that the key is unknown.
const NO_LEASES: &str = "units are not leased any more, expected k keys of max / k each for so \
     busy a key: see capacity.md";

/// What the value of a setting makes of a rule, or of a part of one.
type Reader<T> = fn(T, &Value<'_>, &RuleReading<'_>) -> Result<T, ConfigError>;
/// Whether a rule has what a setting needs.
type Need = fn(&Rule, &RuleReading<'_>) -> bool;

/// What a setting may look at beside its value.
struct RuleReading<'a> {
    table: &'a Value<'a>,
    file: &'a FileSwitches,
    subjects: &'a Subjects,
    client_ip: Option<&'a ClientIp>,
}

/// The settings of a rule's table, in the order in which they are read.
const SETTINGS: [(&str, Reader<Rule>); 22] = [
    ("plans", with_plans),
    ("cost", |rule, cost, _| {
        let algorithm = rule.algorithm().algorithm();
        let cost = checked_cost(cost, algorithm, rule.quotas_at_cost())?;
        Ok(rule.with_cost(cost))
    }),
    ("fair-by", |rule, names, reading| {
        let (_, key) = named_key(names, reading.client_ip)?;
        Ok(rule.with_fair_by(key))
    }),
    ("client-ip", |rule, table, _| {
        let client_ip = Some(client_ip(table)?);
        Ok(rule.with_exemptions(Exemptions {
            client_ip,
            ..Exemptions::default()
        }))
    }),
    ("exempt", |it, list, _| {
        Ok(it.with_exemptions(exemptions(list)?))
    }),
    (AnswerSettings::NAMES[0], with_answers),
    (AnswerSettings::NAMES[1], with_answers),
    ("retry-after-jitter", |rule, jitter, _| {
        let percent = jitter.text("a share such as \"10%\"", |text| {
            let percent: u8 = text.strip_suffix('%')?.trim().parse().ok()?;
            (percent <= 100).then_some(percent)
        });
        Ok(rule.with_retry_after_jitter(percent?))
    }),
    ("on-error", |it, name, _| {
        Ok(it.with_on_error(on_error(name)?))
    }),
    ("outgoing", |rule, outgoing, reading| {
        if !outgoing.boolean()? {
            return Ok(rule);
        }
        let rule = outgoing.check(rule.with_outgoing())?;
        let of_answers = AnswerSettings::NAMES.map(|name| (name, NO_CLIENT));
        for table in tables(reading.table) {
            for (name, message) in WITHOUT_OUTGOING.into_iter().chain(of_answers) {
                table.without(name, message)?;
            }
        }
        Ok(rule)
    }),
    ("hold-on", |rule, hold_on, _| {
        let statuses = hold_on.texts("a list of statuses", Outcomes::STATUSES, |status| {
            Outcomes::statuses([status]).ok().map(|_| status)
        })?;
        hold_on.check(rule.with_hold_on(statuses))
    }),
    ("hold-at-most", |rule, time, _| {
        Ok(rule.with_hold_at_most(time_to(u64::MAX, time, NO_HOLD)?))
    }),
    ("hold-untold", |rule, time, _| {
        Ok(rule.with_hold_untold(time_to(u64::MAX, time, NO_HOLD)?))
    }),
    ("lockout", |rule, table, reading| {
        table.check(rule.with_lockout(lockout(table, reading)?))
    }),
    ("refund-on", |rule, refund_on, _| {
        let outcomes = outcomes(refund_on)?;
        refund_on.check(rule.with_refund_on(outcomes))
    }),
    ("settles", |it, is, _| Ok(it.with_settling(is.boolean()?))),
    ("settle-dropped", |it, units, _| {
        let message = "expected at least 1 unit: leaving early is not free";
        Ok(it.with_settle_dropped(units.number_in(1..=Quota::MAX_UNITS, message)?))
    }),
    ("cost-above-max", |rule, choice, _| {
        choice.text("\"reserve-max\"", |it| (it == "reserve-max").then_some(()))?;
        Ok(rule.with_reserve_max())
    }),
    ("owe-at-most", |it, max, _| {
        Ok(it.with_owe_at_most(units(max)?))
    }),
    ("permit-lease", |rule, lease, _| {
        lease.check(rule.with_permit_lease(duration(lease)?))
    }),
    ("busy-retry-after", |rule, hint, _| {
        Ok(rule.with_busy_retry(time_to(86_400, hint, "expected a hint of 1 ms to 1 day")?))
    }),
    ("shadow", |rule, shadow, _| match shadow.is_table() {
        true => Err(shadow.mistake(second_rule(rule.path()))),
        false if shadow.boolean()? => Ok(rule.into_shadow()),
        false => Ok(rule),
    }),
];

/// The message for a time in which a partner's answers would hold nothing.
const NO_HOLD: &str = "no answer would hold a key, expected 1 ms or more";

/// What settings have no effect without: their keys, whether the rule has it, and the message where
/// it does not.
const NEEDS: [(&str, Need, &str); 7] = [
    (
        "hold-at-most hold-untold hold-on",
        |rule, _| rule.is_outgoing(),
        "no key is held, expected outgoing = true beside it",
    ),
    (
        "client-ip",
        reads_client_ip,
        "no key is \"client-ip\", and no network is exempt",
    ),
    (
        "cost-above-max settle-dropped",
        |rule, _| rule.settles(),
        "nothing is settled, expected settles = true beside it",
    ),
    (
        "cost refund-on settles cost-above-max owe-at-most algorithm sub-windows",
        |rule, _| rule.has_quotas(),
        "nothing is charged, expected max-count and window beside max-concurrent: each request \
         holds one permit",
    ),
    (
        "cost settles cost-above-max owe-at-most",
        |rule, _| rule.quotas_at_cost().next().is_some(),
        "each quota has a cost of its own, expected one without: nothing counts the cost of a \
         request",
    ),
    (
        "lockout",
        |rule, reading| {
            let [on, _] = rule.lockout_outcomes();
            let shows = on.is_none_or(|on| on.have_status() || on.contain_error());
            shows || !(reading.file.is_shadow || rule.is_shadow())
        },
        "a shadow rule shows code no charge, expected outcomes in lockout.on",
    ),
    (
        "permit-lease busy-retry-after",
        |rule, _| rule.has_permits(),
        "nothing holds a permit, expected max-concurrent beside it",
    ),
];

/// Whether something of the rule is about the addresses of clients.
fn reads_client_ip(rule: &Rule, reading: &RuleReading<'_>) -> bool {
    let exempt = [rule.exemptions(), Some(&reading.file.exemptions)];
    let mut exempt = exempt.into_iter().flatten();
    let fair_by = |names: &Value<'_>| named_key(names, reading.client_ip);
    let fair_by = reading.table.read("fair-by", fair_by).ok().flatten();
    reading.subjects.have_client_ip()
        || exempt.any(Exemptions::needs_address)
        || fair_by.is_some_and(|(text, _)| names_client_ip(&text))
}

/// The rule of the table `[rules.<path>]` in a file that says this for all its rules, and whether
/// it reads the `client-ip` of the file.
pub(super) fn rule(
    path: &str,
    table: &Value<'_>,
    file: &FileSwitches,
) -> Result<(Rule, bool), ConfigError> {
    const TABLES: &str = "shadow quotas client-ip exempt plans lockout";
    // TOML reads `[rules.api.v1]` as a table `v1` in the rule `api`.
    let may_be_table = |name: &str| TABLES.split(' ').any(|it| it == name);
    let mut values = table.entries("a table of a rule")?;
    if let Some((_, inner)) = values.find(|(name, it)| it.is_table() && !may_be_table(name)) {
        let message = "a table inside of a rule, expected quotes around a path with dots, as in \
             [rules.\"api.v1\"]";
        return Err(inner.mistake(message));
    }
    table.without("lease", NO_LEASES)?;
    let known = [&KEYS[..], &SETTINGS.map(|(name, _)| name)];
    table.only("a table of a rule", &known.concat())?;
    let own = table.read("client-ip", client_ip)?;
    let client_ip = own.as_ref().or(file.exemptions.client_ip.as_ref());
    let (mut rule, subjects) = with_quotas(path, table, client_ip)?;
    let reading = RuleReading {
        table,
        file,
        subjects: &subjects,
        client_ip,
    };
    for (name, read) in SETTINGS {
        rule = table.set(name, rule, |rule, value| read(rule, value, &reading))?;
    }
    for (names, is_met, message) in NEEDS {
        if !is_met(&rule, &reading) {
            table.without(names, message)?;
        }
    }
    let reads_files = own.is_none() && reads_client_ip(&rule, &reading);
    Ok((rule, reads_files))
}

/// The message for quotas that are to be tried, as earlier versions had them beside those of a
/// rule.
fn second_rule(path: &str) -> String {
    let second = format!("{}-next", shorten_value(path));
    format!(
        "found a table, expected true or false: quotas are tried in a second rule, \
         [rules.{second:?}] with shadow = true, whose layer stands outside"
    )
}

const NO_CLIENT: &str = "no client gets an answer beside outgoing, which decides calls";
/// What calls to a partner do not have, beside settings of answers.
const WITHOUT_OUTGOING: [(&str, &str); 6] = [
    (
        "fair-by",
        "no request says whose turn it is beside outgoing, expected .fair_by(..) of its calls",
    ),
    ("settle-dropped", NO_CLIENT),
    (
        "key",
        "no key beside outgoing, all callers would count together: expected key_by(..) of \
         limits.outgoing, or a key in each call",
    ),
    (
        "hidden",
        "no answer names a quota beside outgoing: it has no client",
    ),
    (
        "exempt",
        "nobody is exempt beside outgoing, which decides calls, not requests of clients",
    ),
    (
        "client-ip",
        "no address counts beside outgoing, which decides calls, not requests of clients",
    ),
];

/// The table, and those of its list of quotas.
fn tables<'a>(table: &Value<'a>) -> Vec<Value<'a>> {
    let quotas = table.get("quotas");
    let quotas = quotas.iter().filter_map(Value::list).flatten();
    std::iter::once(table.clone()).chain(quotas).collect()
}

/// Whether the table, or one of its list of quotas, has one of these keys.
fn has_any(table: &Value<'_>, names: &str) -> bool {
    tables(table).iter().any(|it| it.get_any(names).is_some())
}

fn outcomes<'a>(list: &Value<'a>) -> Result<Vec<&'a str>, ConfigError> {
    list.texts("a list of outcomes", Outcomes::EXPECTED, |outcome| {
        Outcomes::parse([outcome]).ok().map(|_| outcome)
    })
}

/// The settings of a lock-out, but for the number of failures that it needs.
const LOCKOUT: [(&str, Reader<Lockout>); 6] = [
    ("within", |it, time, _| Ok(it.within(duration(time)?))),
    ("hold", |it, hold, _| {
        let times = hold.list().ok_or_else(|| hold.not("a list of durations"))?;
        let times = times.map(|time| duration(&time));
        Ok(it.hold(times.collect::<Result<Vec<_>, _>>()?))
    }),
    ("forget-after", |it, time, _| {
        Ok(it.forget_after(duration(time)?))
    }),
    ("on", |it, list, _| Ok(it.on(outcomes(list)?))),
    ("reset-on", |it, list, _| Ok(it.reset_on(outcomes(list)?))),
    ("subject", |it, name, _| {
        Ok(it.subject(name.text("the name of a subject", Some)?))
    }),
];

fn lockout(table: &Value<'_>, reading: &RuleReading<'_>) -> Result<Lockout, ConfigError> {
    let expected = "a lock-out: { after = 5, within = \"15m\", hold = [\"15m\"], on = [\"401\"] }";
    let known = [&["after"][..], &LOCKOUT.map(|(name, _)| name)];
    table.only(expected, &known.concat())?;
    let number =
        |it: &Value<'_>| it.number_in(1..=Lockout::MAX_AFTER, "expected 1 to 100 failures");
    let after = table.read("after", number)?;
    let after = after.ok_or_else(|| table.mistake("no after, expected a number of failures"))?;
    LOCKOUT
        .iter()
        .try_fold(Lockout::after(after), |it, (name, read)| {
            table.set(name, it, |it, value| read(it, value, reading))
        })
}

/// The rule of a path with its quotas, its algorithm and its key, and the subjects of its quotas.
fn with_quotas(
    path: &str,
    table: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<(Rule, Subjects), ConfigError> {
    let counting = counting(table)?;
    let keys = [ENTRY_KEYS, "absent"];
    let entries = entries(table, counting.algorithm(), &keys, client_ip)?;
    let own_key = table.read("key", |names| named_key(names, client_ip))?;
    let own_text = own_key.as_ref().map(|(text, _)| text.as_str());
    let (subjects, places) = Subjects::of_rule(&entries, own_text)?;
    if !subjects.has_own() {
        let message = "each quota has another key, expected one without a key of its own";
        table.without("key", message)?;
    }
    let policies = entries.into_iter().map(|entry| entry.policy);
    let policies = places.into_iter().zip(policies).collect();
    let list = table.get("quotas").unwrap_or_else(|| table.clone());
    let rule = list.check(subjects.rule(path, policies))?;
    let rule = rule.with_algorithm(counting);
    let rule = match subjects.only_key().or(own_key.map(|(_, key)| key)) {
        Some(key) => rule.with_key(key),
        None => rule,
    };
    Ok((rule, subjects))
}

/// The rule with the plans of the table `plans`.
fn with_plans(
    rule: Rule,
    plans: &Value<'_>,
    reading: &RuleReading<'_>,
) -> Result<Rule, ConfigError> {
    let (subjects, client_ip) = (reading.subjects, reading.client_ip);
    let algorithm = rule.algorithm().algorithm();
    let of_plans = plans.entries("a table of plans")?.map(|(name, table)| {
        table.only(
            "a table with quotas",
            &[QUOTA_KEYS, MAX_CONCURRENT, "quotas unlimited fair-weight"],
        )?;
        if name.is_empty() {
            return Err(table.mistake(RuleError::EmptyPlan));
        }
        let entries = entries(&table, algorithm, &[ENTRY_KEYS], client_ip)?;
        let is_paced = has_any(reading.table, "pace");
        if is_paced && has_any(&table, "max-count") && !has_any(&table, "pace burst") {
            let message = "the rule is paced, expected pace = \"even\" or a burst here, too";
            return Err(table.mistake(message));
        }
        let entries = entries.into_iter();
        let policies = entries.map(|entry| {
            let zone = entry.table.get("zone");
            let policy = subjects.resolve(entry)?.1;
            if let Some(zone) = zone {
                zone.check(rule.check_zone(&policy, zone.text("a time zone", Some)?))?;
            }
            Ok(policy)
        });
        let policies = policies.collect::<Result<Arc<[_]>, _>>()?;
        let list = table.get("quotas").unwrap_or_else(|| table.clone());
        let weight = table.read("fair-weight", |it| {
            it.number_in(1..=1_000, "expected 1 to 1,000")
        })?;
        let quotas = match weight.unwrap_or(1) {
            weight if policies.is_empty() => Quotas::of_fair_weight(weight),
            weight => Quotas::for_rule(rule.path(), policies)
                .and_then(|quotas| quotas.with_fair_weight(weight)),
        };
        let quotas = list.check(quotas)?;
        let quotas = table.set("unlimited", quotas, |quotas, names| {
            let (list, name) = ("a list of subjects", "the name of a subject");
            Ok(quotas.unlimited(names.texts(list, name, Some)?))
        })?;
        Ok((name, quotas))
    });
    let of_plans = of_plans.collect::<Result<Vec<_>, _>>()?;
    plans.check(rule.with_plans(of_plans))
}

/// The settings of answers in a file, or in one of its rules.
pub(super) fn answers(table: &Value<'_>) -> Result<AnswerSettings, ConfigError> {
    let [of_headers, of_status] = AnswerSettings::NAMES;
    Ok(AnswerSettings {
        headers: table.read(of_headers, headers)?,
        status: table.read(of_status, status)?,
    })
}

fn with_answers(rule: Rule, _: &Value<'_>, of: &RuleReading<'_>) -> Result<Rule, ConfigError> {
    Ok(rule.with_answers(answers(of.table)?))
}

/// That of the answers to denials.
fn status(value: &Value<'_>) -> Result<StatusCode, ConfigError> {
    let message = "expected 400 to 599: a denial is no success";
    let status = value.number_in(400..=599, message)?;
    StatusCode::from_u16(status).map_err(|_| value.mistake(message))
}

fn headers(value: &Value<'_>) -> Result<Headers, ConfigError> {
    let expected = "\"draft-11\", \"draft-7\", \"draft-6\", \"legacy\", \"github\" or \"none\"";
    value.text(expected, |name| match name {
        "draft-11" => Some(Headers::Draft11),
        "draft-7" => Some(Headers::Draft7),
        "draft-6" => Some(Headers::Draft6),
        "legacy" => Some(Headers::Legacy),
        "github" => Some(Headers::GitHub),
        "none" => Some(Headers::None),
        _ => None,
    })
}

fn on_error(value: &Value<'_>) -> Result<OnError, ConfigError> {
    let expected = "\"respond\", \"proceed\" or \"fallback\"";
    value.text(expected, |name| match name {
        "respond" => Some(OnError::Respond),
        "proceed" => Some(OnError::Proceed),
        "fallback" => Some(OnError::Fallback),
        _ => None,
    })
}

/// The quotas of this table, and behind them its max of requests at a time. In a list they may have
/// these keys besides.
fn entries<'a>(
    table: &Value<'a>,
    algorithm: Algorithm,
    keys: &[&str],
    client_ip: Option<&ClientIp>,
) -> Result<Vec<QuotaEntry<'a>>, ConfigError> {
    let describes_one = table.get_any(QUOTA_KEYS).is_some();
    let permits = table.read(MAX_CONCURRENT, max_concurrent)?;
    let mut entries = match (table.get("quotas"), describes_one) {
        (None, true) => vec![QuotaEntry::of_table(table, units_policy(table, algorithm)?)],
        (Some(list), false) => {
            let expected = "a list of quotas: { max-count = 5, window = \"1m\" }";
            let items = list.list().ok_or_else(|| list.not(expected))?;
            if items.len() > MAX_QUOTAS {
                return Err(table.mistake(RuleError::NumberOfQuotas(items.len())));
            }
            let known = [&[QUOTA_KEYS, MAX_CONCURRENT], keys].concat();
            let entries = items.map(|item| {
                item.only("a quota: { max-count = 5, window = \"1m\" }", &known)?;
                QuotaEntry::read(item, algorithm, client_ip)
            });
            entries.collect::<Result<_, _>>()?
        }
        (None, false) if permits.is_some() || has_any(table, "fair-weight") => Vec::new(),
        (None, false) => {
            let message = "no quota, expected max-count and window, quotas, or max-concurrent";
            return Err(table.mistake(message));
        }
        (Some(list), true) => {
            let message = "two ways at once, expected either max-count and window, or quotas";
            return Err(list.mistake(message));
        }
    };
    entries.extend(permits.map(|policy| QuotaEntry::of_table(table, policy)));
    Ok(entries)
}

/// The quota of an entry of a list, or its max of requests at a time.
pub(super) fn policy(table: &Value<'_>, algorithm: Algorithm) -> Result<Policy, ConfigError> {
    let Some(max) = table.get(MAX_CONCURRENT) else {
        return units_policy(table, algorithm);
    };
    let message = "beside max-concurrent, expected either max-count and window, or max-concurrent: \
         each request holds one permit";
    table.without(QUOTA_KEYS, message)?;
    table.without("cost", message)?;
    max_concurrent(&max)
}

/// How many requests may run at a time.
fn max_concurrent(value: &Value<'_>) -> Result<Policy, ConfigError> {
    units(value).map(Policy::concurrent)
}

fn units(value: &Value<'_>) -> Result<u64, ConfigError> {
    value.number_in(0..=Quota::MAX_UNITS, QuotaError::MaxTooLarge)
}

/// The one quota that a table describes: of a window, or of the calendar.
fn units_policy(table: &Value<'_>, algorithm: Algorithm) -> Result<Policy, ConfigError> {
    let Some(per) = table.get("per") else {
        let message = "a time zone without a period, expected per = \"day\", \"week\" or \"month\"";
        table.without("zone", message)?;
        let message = "a beginning without a period, expected per = \"week\" or \"month\"";
        table.without("from", message)?;
        return Ok(quota(table, algorithm)?.into());
    };
    let Some(max) = table.get("max-count") else {
        return Err(per.mistake("a per without max-count, expected both"));
    };
    table.without(
        "window window-time window-time-unit",
        "both a window and per, expected one of them: per is a period of the calendar",
    )?;
    table.without(
        "burst pace",
        "a period of the calendar has no burst and no pace",
    )?;
    let period = per.text("\"day\", \"week\" or \"month\"", |name| {
        Period::ALL.into_iter().find(|it| it.name() == name)
    })?;
    let period = table.set("from", period, |period, from| {
        let expected = period.beginnings();
        let day = from.number().ok().and_then(|day| u8::try_from(day).ok());
        match day.and_then(|day| period.clone().from_day(day).ok()) {
            Some(period) => Ok(period),
            None => from.text(expected, |name| {
                period.from_weekday(Weekday::named(name)?).ok()
            }),
        }
    })?;
    let period = table.set("zone", period, |period, zone| {
        let name = zone.text("a time zone such as \"Europe/Berlin\"", Some)?;
        zone.check(period.in_named_zone(name))
    })?;
    Ok(Policy::calendar(period, units(&max)?))
}

/// The one quota of a window that a table describes.
fn quota(table: &Value<'_>, algorithm: Algorithm) -> Result<Quota, ConfigError> {
    let Some(max) = table.get("max-count") else {
        let names = QUOTA_KEYS.split(' ');
        for name in names {
            table.without(name, format!("a {name} without max-count, expected both"))?;
        }
        return Err(table.mistake("no max-count, expected one and its window"));
    };
    let units = max.number()?;
    let of_window = ["window", "window-time", "window-time-unit"].map(|name| table.get(name));
    let (window, at) = match of_window {
        [Some(window), None, None] => (duration(&window)?, window),
        [None, Some(time), Some(unit)] => {
            let millis = unit_millis(&unit)?.saturating_mul(time.number()?);
            (Duration::from_millis(millis), time)
        }
        [None, Some(time), None] => {
            return Err(time.mistake("a time without its unit, expected window-time-unit"));
        }
        [None, None, Some(unit)] => {
            return Err(unit.mistake("a unit without its time, expected window-time"));
        }
        [Some(window), _, _] => {
            return Err(window.mistake("both window and window-time, expected one of them"));
        }
        [None, None, None] => {
            return Err(max.mistake("a max-count without a window, expected both"));
        }
    };
    let quota = Quota::new(window, units).map_err(|error| match error {
        QuotaError::MaxTooLarge => max.mistake(error),
        _ => at.mistake(error),
    })?;
    let pace = table.get("pace");
    if let Some(pace) = &pace {
        pace.text("\"even\"", |it| (it == "even").then_some(()))?;
    }
    if !algorithm.drains_evenly() {
        table.without("pace", only_with(Algorithm::drains_evenly, "a pace"))?;
        table.without("burst", only_with(Algorithm::drains_evenly, "a burst"))?;
    }
    match (pace, table.get("burst")) {
        (Some(pace), Some(_)) => Err(pace.mistake("a pace beside a burst, expected one of them")),
        (Some(pace), None) => pace.check(quota.evenly()),
        (None, Some(burst)) => burst.check(quota.with_burst(burst.number()?)),
        (None, None) => Ok(quota),
    }
}

/// A duration as people write it.
pub(super) fn duration(value: &Value<'_>) -> Result<Duration, ConfigError> {
    const NO_DURATIONS: [&str; 8] = ["M", "month", "months", "y", "yr", "yrs", "year", "years"];
    let expected = "a duration such as \"10s\", \"500ms\" or \"1h 30m\"";
    let text = value.text(expected, Some)?;
    let mut units = text.split(|char: char| !char.is_ascii_alphabetic());
    if units.any(|unit| NO_DURATIONS.contains(&unit)) {
        let days = "days as in \"30d\" (\"m\" are minutes): months and years differ in length";
        return Err(value.not(days));
    }
    // The parser panics on sums that are too large. They have longer numbers, or more of them.
    let mut numbers = text.split(|char: char| !char.is_ascii_digit());
    let is_short = text.len() <= 60 && numbers.all(|number| number.len() <= 11);
    let parsed = is_short.then(|| humantime::parse_duration(text).ok());
    parsed.flatten().ok_or_else(|| value.not(expected))
}

/// A duration from 1 ms to so many seconds; `message` says so.
fn time_to(max_secs: u64, value: &Value<'_>, message: &str) -> Result<Duration, ConfigError> {
    let range = Duration::from_millis(1)..=Duration::from_secs(max_secs);
    let time = Some(duration(value)?).filter(|it| range.contains(it));
    time.ok_or_else(|| value.mistake(message))
}

/// The milliseconds of a unit of time that is named as in Java's `TimeUnit`.
fn unit_millis(value: &Value<'_>) -> Result<u64, ConfigError> {
    let expected = "\"MILLISECONDS\", \"SECONDS\", \"MINUTES\", \"HOURS\" or \"DAYS\"";
    value.text(expected, |name| match &*name.to_ascii_uppercase() {
        "MILLISECONDS" => Some(1),
        "SECONDS" => Some(1_000),
        "MINUTES" => Some(60_000),
        "HOURS" => Some(3_600_000),
        "DAYS" => Some(86_400_000),
        _ => None,
    })
}

fn algorithm(value: &Value<'_>) -> Result<Algorithm, ConfigError> {
    let expected = Algorithm::ALL.map(|known| format!("\"{}\"", known.name()));
    value.text(&format!("one of {}", expected.join(", ")), |text| {
        // The leaky bucket as a meter is the same algorithm.
        let name = if text == "leaky-bucket" { "gcra" } else { text };
        let mut known = Algorithm::ALL.into_iter();
        known.find(|known| known.name() == name)
    })
}

/// The algorithm of a table, with its sub-windows.
fn counting(table: &Value<'_>) -> Result<AlgorithmConfig, ConfigError> {
    let default = if has_any(table, "pace") {
        Algorithm::Gcra
    } else {
        Algorithm::default()
    };
    let algorithm = table.read("algorithm", algorithm)?.unwrap_or(default);
    if !algorithm.has_sub_windows() {
        let message = only_with(Algorithm::has_sub_windows, "sub-windows");
        table.without("sub-windows", message)?;
    }
    table.set("sub-windows", algorithm.into(), |counting, number| {
        const MAX: u16 = SlidingWindow::MAX_SUB_WINDOWS;
        let number = number.number_in(1..=MAX, format!("expected 1 to {MAX} sub-windows"))?;
        Ok(AlgorithmConfig::sub_windows(counting, number))
    })
}

/// The mistake of a setting that only one algorithm has.
fn only_with(has: fn(Algorithm) -> bool, what: &str) -> String {
    let algorithm = Algorithm::ALL.into_iter().find(|known| has(*known));
    let name = algorithm.map_or("", Algorithm::name);
    format!("only algorithm = \"{name}\" has {what}")
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::*;
    use crate::rule::Rules;

    /// A file and its rules know it, code hides it, and calls to a partner do not have it.
    #[test]
    fn a_setting_of_answers_is_in_each_list() {
        let values = ["\"legacy\"", "503"];
        for (name, value) in AnswerSettings::NAMES.into_iter().zip(values) {
            let rule = "[rules.api]\nmax-count = 1\nwindow = \"1s\"";
            let of_file = format!("{name} = {value}\n{rule}");
            let of_rule = format!("{rule}\n{name} = {value}");
            for text in [of_file, of_rule.clone()] {
                let rules = Rules::from_toml(&text).expect("it is known");
                let said = rules.get("api").expect("a rule").answers();
                assert_eq!(said.hidden([true; AnswerSettings::NAMES.len()]), [name]);
            }
            let refused = Rules::from_toml(&format!("{of_rule}\noutgoing = true"));
            let error = refused.expect_err("calls have no client").to_string();
            assert!(error.contains(NO_CLIENT), "{error}");
        }
        assert_eq!(values.len(), AnswerSettings::NAMES.len());
    }

    #[test]
    fn a_sum_is_the_sum_of_its_terms() {
        let millis = |text: &str| {
            let value = DeValue::String(text.into());
            let sum = duration(&Value::file(text, &value));
            sum.ok().map(|sum| sum.as_millis())
        };
        assert_eq!(millis("1h 30m"), Some(5_400_000));
        assert_eq!(millis("1h30m 1 s500ms"), Some(5_401_500));
        assert_eq!(millis("1.5s 1ms"), Some(1_501));
        assert_eq!(millis("2000µs"), Some(2));
        assert_eq!(millis("3650d"), Some(315_360_000_000));
        for wrong in ["", " ", "1h 30", "h", "1m m", "-1s"] {
            assert_eq!(millis(wrong), None);
        }
        assert_eq!(millis("18446744073709551615s 1000ms"), None);
        assert!(millis(&"99999999999w".repeat(5)).is_some());
        assert_eq!(millis(&"9w".repeat(31)), None);
    }
}
