use crate::Result;

/// How often and how long everything is measured.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    pub rounds: usize,
    pub seconds: u64,
}

impl Rounds {
    /// The options of `peers`, for a program whose contenders are fixed.
    pub fn from_arguments() -> Result<Self> {
        let (mut rounds, mut seconds) = (5, 2);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--quick" => (rounds, seconds) = (1, 1),
                "--rounds" => rounds = value()?.parse()?,
                "--seconds" => seconds = value()?.parse()?,
                "--only" => drop(value()?),
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        Ok(Self { rounds, seconds })
    }
}
