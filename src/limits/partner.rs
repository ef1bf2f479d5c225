//! What the answer of a partner says about later calls.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};

use self::Says::{Details, Left, Pause, Reset, ResetOfKinds};
use crate::callback::grpc::GRPC_STATUS;
use crate::callback::grpc_details::retry_delay;
use crate::rule::Outcomes;

/// How long a partner is left alone that refuses a call and does not say for how long, or until
/// which instant without its own `Date`: no clock of this process decides.
const UNTOLD: Duration = Duration::from_secs(1);

/// The fields in which partners say it, as they document them. The first one that is understood
/// decides alone.
const FORMS: [(&str, Says); 10] = [
    ("grpc-retry-pushback-ms", Pause(0.001)),
    ("grpc-status-details-bin", Details),
    ("retry-after", Pause(1.0)),
    ("retry-after-ms", Pause(0.001)),
    ("x-ms-retry-after-ms", Pause(0.001)),
    ("ratelimit", Left),
    ("ratelimit-reset", Reset),
    ("x-ratelimit-reset-after", Reset),
    ("x-ratelimit-reset", Reset),
    ("*limit*-reset*", ResetOfKinds),
];

/// What a field of a partner's answer says.
#[derive(Clone, Copy)]
enum Says {
    /// When to come again, in units of so many seconds. Only a refusal says so.
    Pause(f64),
    /// The same, as a `google.rpc.RetryInfo`.
    Details,
    /// What is left of each quota, and when it is whole again.
    Left,
    /// When the quota is whole again of which another field says what is left.
    Reset,
    /// The same for kinds of calls, such as `x-ratelimit-reset-tokens`. Calls of another kind may be
    /// welcome, so only a refusal says so.
    ResetOfKinds,
}

/// For how long the partner wants no calls, and the first field of a refusal that is not understood;
/// `None` if it does not mind calls. Statuses of `hold_on` are refusals, as 429 and 503 are. A 403
/// and the gRPC statuses 8 and 14 may mean something else: a field has to say it.
pub(super) fn wanted_pause(
    status: StatusCode,
    headers: &HeaderMap,
    hold_on: Option<&Outcomes>,
) -> Option<(Duration, Option<&'static str>)> {
    let code = headers.get(GRPC_STATUS).map(|code| code.as_bytes());
    let is_on = hold_on.is_some_and(|it| match code {
        None => it.contain_http(status),
        Some(code) => it.contain_grpc(code),
    });
    let is_refusal = is_on || code.is_none() && [429, 503].contains(&status.as_u16());
    let may_be_one = code.map_or(status == 403, |code| matches!(code, b"8" | b"14"));
    let answer = PartnerAnswer {
        headers,
        is_refusal,
        may_be_one: is_refusal || may_be_one,
    };
    let mut unread = None;
    for (field, says) in FORMS {
        match answer.read(field, says) {
            Some(Some(pause)) => return (!pause.is_zero()).then_some((pause, None)),
            Some(None) => unread = unread.or(Some(field)),
            None => {}
        }
    }
    (is_refusal || answer.may_be_one && unread.is_some()).then_some((UNTOLD, unread))
}

struct PartnerAnswer<'a> {
    headers: &'a HeaderMap,
    is_refusal: bool,
    /// Whether it is a refusal, or may be one.
    may_be_one: bool,
}

impl PartnerAnswer<'_> {
    /// When this field wants calls again. `None` if it says nothing of it, and `Some(None)` if what
    /// it says is not understood.
    fn read(&self, field: &str, says: Says) -> Option<Option<Duration>> {
        match says {
            Left => self.left(field),
            Reset => self.reset(field),
            _ if !self.may_be_one => None,
            Pause(unit) => {
                let time = self.time(self.text(field)?, unit);
                (self.is_refusal || time.is_some()).then_some(time)
            }
            Details => retry_delay(self.headers.get(field)?.as_bytes()).map(Some),
            ResetOfKinds => {
                let names = self.headers.keys().map(|name| name.as_str());
                let names = names.filter(|name| {
                    name.contains("limit") && name.split('-').any(|part| part == "reset")
                });
                names.filter_map(|name| self.reset(name)).max()
            }
        }
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

    /// The time of a quota, unless some of it is left. A refusal need not say that nothing is.
    fn reset(&self, field: &str) -> Option<Option<Duration>> {
        let field_of_left = field
            .trim_end_matches("-after")
            .replace("reset", "remaining");
        let left = self.text(&field_of_left);
        let left = left.and_then(|left| seconds(left.split(';').next()?));
        let time = self.text(field);
        let is_used_up = left.map_or(self.is_refusal && time.is_some(), |left| left == 0.0);
        is_used_up.then(|| self.time(time?, 1.0))
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
            return Some(UNTOLD);
        };
        let pause = (instant - now).max(0.0);
        Some(Duration::try_from_secs_f64(pause).unwrap_or(Duration::MAX))
    }

    fn text(&self, field: &str) -> Option<&str> {
        let value = self.headers.get(field)?;
        Some(value.to_str().unwrap_or_default().trim())
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

/// The seconds from 1970 to a date of HTTP, or of RFC 3339, which may lack its seconds.
fn since_1970(text: &str) -> Option<f64> {
    if let Ok(date) = httpdate::parse_http_date(text) {
        return Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs_f64());
    }
    let (time, zone) = text.split_at(text.rfind(['Z', 'z', '+', '-'])?);
    let numbers = time.split(['-', 'T', 't', ' ', ':']).map(seconds);
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let [year, month, day, hour, minute, ref second @ ..] = numbers[..] else {
        return None;
    };
    let east = match zone[1..].split_once(':') {
        None => Some(0.0).filter(|_| zone.len() == 1)?,
        Some((hours, minutes)) => seconds(hours)? * 60.0 + seconds(minutes)?,
    };
    let east = if zone.starts_with('-') { -east } else { east };
    // Years begin in March, so that a leap day is the last day of one.
    let year = year - f64::from(month < 3.0);
    let month = (month - 3.0).rem_euclid(12.0);
    let leap_days = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = year * 365.0 + leap_days + ((153.0 * month + 2.0) / 5.0).floor() + day - 719_469.0;
    let minutes = (days * 24.0 + hour) * 60.0 + minute - east;
    let since = minutes * 60.0 + second.iter().sum::<f64>();
    Some(since).filter(|it| it.is_finite())
}

/// A structured field ([RFC 9651](https://www.rfc-editor.org/rfc/rfc9651)) without its strings, such
/// as the names of quotas, which may contain any character. `None` if a string does not end.
fn without_strings(field: &str) -> Option<String> {
    let field = field.replace("\\\\", "").replace("\\\"", "");
    let has_ended = field.matches('"').count().is_multiple_of(2);
    has_ended.then(|| field.split('"').step_by(2).collect())
}
