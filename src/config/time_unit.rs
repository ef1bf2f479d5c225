use std::borrow::Cow;

use super::shorten;
use super::text::FromText;

/// The milliseconds of a unit of time that is named as in Java's `TimeUnit`.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeUnit(pub(super) u64);

impl FromText for TimeUnit {
    fn expected() -> Cow<'static, str> {
        "\"MILLISECONDS\", \"SECONDS\", \"MINUTES\", \"HOURS\" or \"DAYS\"".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let millis = match text.to_ascii_uppercase().as_str() {
            "MILLISECONDS" => 1,
            "SECONDS" => 1_000,
            "MINUTES" => 60_000,
            "HOURS" => 3_600_000,
            "DAYS" => 86_400_000,
            _ => return Err(format!("unknown unit \"{}\"", shorten::value(text))),
        };
        Ok(Self(millis))
    }
}
