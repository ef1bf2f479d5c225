//! What the environment says.

use std::env;

/// Found from wherever the app is started.
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.toml");

const PORT: u16 = 3000;

/// What the app is started with.
pub(crate) struct Settings {
    /// `PORT`
    pub(crate) port: u16,
    /// `REDIS_URL`; without one, this process decides alone.
    pub(crate) redis_url: Option<String>,
    /// `LIMITS`, the file with the rules.
    pub(crate) limits: String,
}

impl Settings {
    /// The variables of this process; an empty one is one that is not set.
    pub(crate) fn from_env() -> Result<Self, String> {
        Ok(Self {
            port: variable("PORT")?.map_or(Ok(PORT), |text| port(&text))?,
            redis_url: variable("REDIS_URL")?,
            limits: variable("LIMITS")?.unwrap_or_else(|| LIMITS.to_owned()),
        })
    }
}

fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        // Not the value: it may hold a password.
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not UTF-8")),
    }
}

fn port(text: &str) -> Result<u16, String> {
    let wrong = |_| format!("PORT is {text:?}, expected a number up to 65535");
    text.parse().map_err(wrong)
}
