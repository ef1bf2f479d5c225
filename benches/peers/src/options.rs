use tidegate_peers::Result;
use tidegate_peers::contenders::{NAMES, PLAIN};

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    /// In the order of the table; `plain` is always among them.
    pub(crate) names: Vec<&'static str>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: 5,
            seconds: 2,
            names: NAMES.to_vec(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--quick" => (options.rounds, options.seconds) = (1, 1),
                "--rounds" => options.rounds = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--only" => options.names = names(value()?)?,
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        if options.rounds == 0 || options.seconds == 0 {
            return Err("there is nothing to measure in no time".into());
        }
        Ok(options)
    }
}

fn names(list: &str) -> Result<Vec<&'static str>> {
    let wanted: Vec<&str> = list.split(',').collect();
    if let Some(unknown) = wanted.iter().find(|name| !NAMES.contains(name)) {
        return Err(format!("unknown contender {unknown}; known: {}", NAMES.join(", ")).into());
    }
    let known = NAMES.into_iter();
    Ok(known
        .filter(|name| *name == PLAIN || wanted.contains(name))
        .collect())
}
