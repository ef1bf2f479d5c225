//! The settings, from environment variables.

use std::env;
use std::path::Path;

use tidegate::rule::Share;

const PORT: u16 = 3000;

/// The settings of the app.
pub(crate) struct Settings {
    /// `PORT`
    pub(crate) port: u16,
    /// `REDIS_URL`
    pub(crate) redis: Redis,
    /// `PROCESSES`: at most so many share the limits. While Redis cannot decide, each admits its
    /// share by itself. Without this setting, requests get a 503 then.
    pub(crate) processes: Option<u32>,
    /// `LIMITS`, the file with the rules.
    pub(crate) limits: String,
}

/// Where the limits are counted.
pub(crate) enum Redis {
    /// No `REDIS_URL`: on a server that this app starts, or in memory if none is installed.
    Own,
    /// `REDIS_URL=memory`: in the memory of this process.
    Memory,
    At(String),
}

impl Settings {
    /// From the variables of this process. An empty variable counts as not set.
    pub(crate) fn from_env() -> Result<Self, String> {
        Ok(Self {
            port: variable("PORT")?.map_or(Ok(PORT), |text| port(&text))?,
            redis: match variable("REDIS_URL")? {
                None => Redis::Own,
                Some(url) if url == "memory" => Redis::Memory,
                Some(url) => Redis::At(url),
            },
            processes: variable("PROCESSES")?
                .map(|text| processes(&text))
                .transpose()?,
            limits: variable("LIMITS")?.unwrap_or_else(limits),
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

/// The file beside the folder of the app: an absolute path, so that it is found from any directory.
fn limits() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("limits.toml");
    file.display().to_string()
}

fn port(text: &str) -> Result<u16, String> {
    let wrong = |_| format!("PORT is {text:?}, expected a number up to 65535");
    text.parse().map_err(wrong)
}

fn processes(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| Share::checked(1, *number).is_some());
    number.ok_or_else(|| format!("PROCESSES is {text:?}, expected a number of at least 1"))
}
