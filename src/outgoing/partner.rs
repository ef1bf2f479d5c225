//! What the answer of a partner says about later calls.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::Says::{Details, Left, LeftOfKinds, Pause, Pushback, Reset, ResetOfKinds};
use crate::callback::grpc_details::retry_delay;
use crate::rule::{Rule, Statuses};

/// How long a partner is left alone whose answer is older than what it says, or whose quota is 0.
const SECOND: Duration = Duration::from_secs(1);

/// The fields in which partners say it, and who sends or reads them so. The first form that is
/// understood decides alone; of several fields and lines of one form the longest time does.
const FORMS: [(IsIts, Says); 12] = [
    // gRPC, proposal A6; the Pushback of its clients.
    (|it| it == "grpc-retry-pushback-ms", Pushback),
    // google.rpc.RetryInfo, of Google's APIs.
    (|it| it == "grpc-status-details-bin", Details),
    // OpenAI's and Azure's clients, which prefer it to Retry-After: it is more precise.
    (|it| it == "retry-after-ms", Pause),
    // Azure Cosmos DB.
    (|it| it == "x-ms-retry-after-ms", Pause),
    // RFC 9110, 10.2.3.
    (|it| it == "retry-after", Pause),
    // AWS, in milliseconds; Help Scout (x-ratelimit-), Azure Cost Management (one for each of its
    // limits), Bucket4j (x-rate-limit-retry-after-seconds).
    (|it| it.contains("retry-after"), Pause),
    // draft-ietf-httpapi-ratelimit-headers; without parameters its draft 7.
    (|it| it == "ratelimit", Left),
    // The same draft up to 6; GitLab, Zendesk, SharePoint.
    (|it| it == "ratelimit-reset", Reset),
    // Discord.
    (|it| it == "x-ratelimit-reset-after", Reset),
    // GitHub and many others.
    (|it| it == "x-ratelimit-reset", Reset),
    // Atlassian (beta-ratelimit), Auth0 (auth0-client-quota-limit).
    (|it| it.ends_with("limit"), LeftOfKinds),
    // Of calls: X, Okta (x-rate-limit-reset), OpenAI (-tokens), Anthropic, gateways (-ms). Of
    // windows: HubSpot, HighLevel (-interval-milliseconds), Trello (-interval-ms), Help Scout.
    (is_of_kinds, ResetOfKinds),
];

/// Whether a field of this name has a form.
type IsIts = fn(&str) -> bool;

fn is_of_kinds(name: &str) -> bool {
    let mut words = name.split('-');
    name.contains("limit") && words.any(|word| matches!(word, "reset" | "interval"))
}

/// How names go on behind the word that says what they are about.
const ENDS: [&str; 4] = ["-ms", "-milliseconds", "-seconds", "-after"];

/// What the names of fields contain whose meaning is known, whatever they say.
const KNOWN: &str = "remaining reset interval policy used pushback";

/// What a field of a partner's answer says.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    /// When to come again. Only a refusal says so.
    Pause,
    /// The same, in milliseconds. Less than 0, and what is no number, forbids that this call is
    /// repeated, and says nothing of when others are welcome.
    Pushback,
    /// The same, as a `google.rpc.RetryInfo`.
    Details,
    /// What is left of each quota, and when it is whole again.
    Left,
    /// When the quota is whole again of which another field says what is left.
    Reset,
    /// The same two for kinds of calls, such as `x-ratelimit-reset-tokens`. Calls of another kind
    /// may be welcome, so only a refusal says so.
    LeftOfKinds,
    ResetOfKinds,
}

/// For how long the partner wants no calls, and a field of its refusal if none is understood;
/// `None` if it does not mind calls. Those that the rule holds on are refusals, as 429 and 503 are. A
/// 403, a 400 of these and the gRPC statuses 8 and 14 may mean something else: a field has to say it.
pub(super) fn wanted_pause<'a>(
    status: StatusCode,
    headers: &'a HeaderMap,
    rule: &Rule,
) -> Option<(Duration, Option<&'a HeaderName>)> {
    let statuses = Statuses::new(status, headers);
    let is_on = rule.refusals().is_some_and(|it| it.contain(statuses));
    let is_refusal = [429, 503].contains(&status.as_u16()) || is_on && status != 400;
    let may_be_one = status == 403 || statuses.grpc().any(|code| matches!(code, b"8" | b"14"));
    let untold = rule.hold_untold();
    let answer = PartnerAnswer {
        headers,
        untold,
        is_refusal,
        may_be_one: is_refusal || is_on || may_be_one,
    };
    // For how long a cache has kept it (RFC 9111, 5.1). What was left then says nothing of now.
    let age = answer.count("age");
    let is_new = age == Some(0.0) || !headers.contains_key("age");
    let age = Duration::try_from_secs_f64(age.unwrap_or(0.0)).unwrap_or(Duration::MAX);
    let mut unread = None;
    for (is_its, says) in FORMS {
        if !(answer.may_be_one || is_new && matches!(says, Left | Reset)) {
            continue;
        }
        let fields = headers.keys().filter(|name| is_its(name.as_str()));
        let waits = fields.filter_map(|name| Some((answer.read(name.as_str(), says)?, name)));
        match waits.max_by_key(|(time, _)| *time) {
            Some((Some(pause), _)) => {
                let left = pause.saturating_sub(age).max(pause.min(SECOND));
                return (!pause.is_zero()).then_some((left, None));
            }
            Some((None, name)) => unread = unread.or(Some(name)),
            None => {}
        }
    }
    let used_up = answer.used_up();
    let is_one = is_refusal || answer.may_be_one && (unread.is_some() || used_up.is_some());
    is_one.then(|| (untold, unread.or_else(|| answer.unknown()).or(used_up)))
}

struct PartnerAnswer<'a> {
    headers: &'a HeaderMap,
    /// How long a partner is left alone that does not say for how long, or until which instant
    /// without its own `Date`: no clock of this process decides.
    untold: Duration,
    is_refusal: bool,
    /// Whether it is a refusal, or may be one.
    may_be_one: bool,
}

impl<'a> PartnerAnswer<'a> {
    /// When this field wants calls again. `None` if it says nothing of it, and `Some(None)` if what
    /// it says is not understood.
    fn read(&self, field: &str, says: Says) -> Option<Option<Duration>> {
        match says {
            Left | LeftOfKinds => self.left(field),
            Reset | ResetOfKinds => self.reset(field),
            Details => retry_delay(self.headers.get(field)?.as_bytes()).map(Some),
            Pause | Pushback => {
                let time = self.times(field).flatten().max();
                (self.is_refusal && says == Pause || time.is_some()).then_some(time)
            }
        }
    }

    /// A field that says that nothing is left. It may not say until when.
    fn used_up(&self) -> Option<&'a HeaderName> {
        let mut names = self.headers.keys();
        names.find(|name| {
            let has = |word| name.as_str().contains(word);
            has("limit") && has("remaining") && self.count(name.as_str()) == Some(0.0)
        })
    }

    /// A field that may say it, by its name, in no form that is known here.
    fn unknown(&self) -> Option<&'a HeaderName> {
        let mut names = self.headers.keys();
        names.find(|name| {
            let has = |words: &str| words.split(' ').any(|word| name.as_str().contains(word));
            has("limit retry quota") && !has(KNOWN) && !name.as_str().ends_with("limit")
        })
    }

    /// The last time of the quotas of which nothing is left: `"name";r=0;t=60`, also with the names
    /// `a` and `w`, or as in draft 7 `limit=10, remaining=0, reset=60`.
    fn left(&self, field: &str) -> Option<Option<Duration>> {
        let fields = self.headers.get_all(field).into_iter();
        let fields = fields.filter_map(|field| without_strings(field.to_str().ok()?));
        let times = fields.filter_map(|field| {
            let is_list = field.contains(';');
            let items = field.split(|it| it == ',' && is_list);
            items.filter_map(|item| self.left_of(item)).max()
        });
        times.max()
    }

    fn left_of(&self, item: &str) -> Option<Option<Duration>> {
        let parameter = |names: [&str; 3]| {
            let mut parameters = item.split([';', ',']).filter_map(|it| it.split_once('='));
            let (_, value) = parameters.find(|(name, _)| names.contains(&name.trim()))?;
            Some(value.trim())
        };
        let is_used_up = parameter(["r", "a", "remaining"])? == "0";
        is_used_up.then(|| self.time(parameter(["t", "w", "reset"])?, 1.0))
    }

    /// The time of a quota, unless some of it is left. A refusal need not say that nothing is. A
    /// quota of 0 has no window: Okta sends it if too many calls run at a time.
    fn reset(&self, field: &str) -> Option<Option<Duration>> {
        let stem = ENDS.iter().fold(field, |it, end| it.trim_end_matches(end));
        let beside = |word| stem.replace("reset", word).replace("interval", word);
        let (times, left) = (self.times(field), self.counts(&beside("remaining")));
        let (times, left) = (times.collect::<Vec<_>>(), left.collect::<Vec<_>>());
        // Brave: `0, 1999` beside `1, 86400` is a second.
        let may_be = |at: usize| times.len() != left.len() || left[at].is_none_or(|it| it == 0.0);
        match self.count(&beside("remaining")) {
            Some(left) if left > 0.0 => None,
            None if !self.is_refusal => None,
            _ if self.is_refusal && self.count(&beside("limit")) == Some(0.0) => Some(Some(SECOND)),
            _ => (0..times.len())
                .filter(|at| may_be(*at))
                .map(|at| times[at])
                .max(),
        }
    }

    /// Returns the items of a field: of all its lines, and between commas.
    fn items(&self, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let lines = self.headers.get_all(field).into_iter().map(text);
        let items = lines.flat_map(|line| {
            let is_date = since_1970(line).is_some();
            line.split(move |it| it == ',' && !is_date)
        });
        items.map(str::trim)
    }

    fn times(&self, field: &str) -> impl Iterator<Item = Option<Duration>> {
        self.items(field).map(move |it| self.time(it, unit(field)))
    }

    /// The numbers in a field, which parameters may follow.
    fn counts(&self, field: &str) -> impl Iterator<Item = Option<f64>> + use<'a> {
        let numbers = self.items(field).map(|it| it.split(';').next());
        numbers.map(|it| seconds(it?.trim()))
    }

    /// The least of them.
    fn count(&self, field: &str) -> Option<f64> {
        self.counts(field).flatten().min_by(f64::total_cmp)
    }

    /// A time in units of so many seconds, or a date. A number from 10^9 seconds on is an instant,
    /// from 10^12 on one in milliseconds.
    fn time(&self, text: &str, unit: f64) -> Option<Duration> {
        let instant = match seconds(text).map(|number| number * unit) {
            Some(seconds) if seconds < 1e9 => return Some(Duration::from_secs_f64(seconds)),
            Some(seconds) if seconds < 1e12 => seconds,
            Some(millis) => millis / 1e3,
            None => since_1970(text)?,
        };
        let Some(now) = self.text("date").and_then(since_1970) else {
            return Some(self.untold);
        };
        let pause = (instant - now).max(0.0);
        Some(Duration::try_from_secs_f64(pause).unwrap_or(Duration::MAX))
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.headers.get(field).map(text)
    }
}

fn text(line: &HeaderValue) -> &str {
    line.to_str().unwrap_or_default().trim()
}

/// The seconds of one unit of a field, which its name says.
fn unit(field: &str) -> f64 {
    match field.rsplit('-').next() {
        Some("ms" | "milliseconds") => 0.001,
        _ if field == "x-amz-retry-after" => 0.001,
        _ => 1.0,
    }
}

/// A number of seconds, perhaps with a fraction, or a duration such as `6m0s`.
fn seconds(text: &str) -> Option<f64> {
    let text = text.replace("ms", "u");
    let parts = text.split_inclusive(|it: char| it.is_ascii_alphabetic());
    let parts = parts.map(|part| {
        let (number, unit) = match part.split_at_checked(part.len() - 1)? {
            (number, "u") => (number, 1e-3),
            (number, "s") => (number, 1.0),
            (number, "m") => (number, 60.0),
            (number, "h") => (number, 3_600.0),
            _ => (part, 1.0),
        };
        let is_number = number.starts_with(|it: char| it.is_ascii_digit());
        Some(number.parse::<f64>().ok().filter(|_| is_number)? * unit)
    });
    parts.sum::<Option<f64>>().filter(|_| !text.is_empty())
}

/// The seconds from 1970 to a date of HTTP, also in another zone, or of RFC 3339, which may lack
/// its seconds.
fn since_1970(text: &str) -> Option<f64> {
    let zoned = text.rsplit_once(' ');
    let zoned = zoned.and_then(|(time, zone)| Some((format!("{time} GMT"), east(zone)?)));
    let (date, minutes) = zoned.unwrap_or_else(|| (text.to_owned(), 0.0));
    if let Ok(date) = httpdate::parse_http_date(&date) {
        return Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs_f64() - minutes * 60.0);
    }
    let (time, zone) = text.split_at(text.rfind(['Z', 'z', '+', '-'])?);
    let numbers = time.split(['-', 'T', 't', ' ', ':']).map(seconds);
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let [year, month, day, hour, minute, ref second @ ..] = numbers[..] else {
        return None;
    };
    // Years begin in March, so that a leap day is the last day of one.
    let year = year - f64::from(month < 3.0);
    let month = (month - 3.0).rem_euclid(12.0);
    let leap_days = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = year * 365.0 + leap_days + ((153.0 * month + 2.0) / 5.0).floor() + day - 719_469.0;
    let minutes = (days * 24.0 + hour) * 60.0 + minute - east(zone)?;
    let since = minutes * 60.0 + second.iter().sum::<f64>();
    Some(since).filter(|it| it.is_finite())
}

/// How many minutes a zone is east of Greenwich: `Z`, `UTC`, as Go's RFC 1123 has it, `+0530`,
/// `-05:00`.
fn east(zone: &str) -> Option<f64> {
    if ["Z", "z", "UTC", "GMT"].contains(&zone) {
        return Some(0.0);
    }
    let zone = zone.replace(':', "");
    let is_one = zone.len() == 5 && zone.starts_with(['+', '-']);
    let number: i32 = zone.parse().ok().filter(|_| is_one)?;
    Some((number / 100 * 60 + number % 100).into())
}

/// A structured field ([RFC 9651](https://www.rfc-editor.org/rfc/rfc9651)) without its strings, such
/// as the names of quotas, which may contain any character. `None` if a string does not end.
fn without_strings(field: &str) -> Option<String> {
    let field = field.replace("\\\\", "").replace("\\\"", "");
    let has_ended = field.matches('"').count().is_multiple_of(2);
    has_ended.then(|| field.split('"').step_by(2).collect())
}
