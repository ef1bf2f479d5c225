use std::path::PathBuf;

use crate::Result;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    Hot,
    Keys,
    Denied,
    Memory,
    MemoryDenied,
    Acquire,
    Lock,
}

impl Row {
    const ALL: [Self; 7] = [
        Self::Hot,
        Self::Keys,
        Self::Denied,
        Self::Memory,
        Self::MemoryDenied,
        Self::Acquire,
        Self::Lock,
    ];

    /// As `--rows` and `subject` know it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Keys => "keys",
            Self::Denied => "denied",
            Self::Memory => "memory",
            Self::MemoryDenied => "memory-denied",
            Self::Acquire => "acquire",
            Self::Lock => "lock",
        }
    }

    /// Whether it is measured over HTTP. The others are tasks inside of a process.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Hot | Self::Keys | Self::Denied)
    }

    /// Whether Redis is asked.
    pub(crate) fn asks_redis(self) -> bool {
        !matches!(self, Self::Memory | Self::MemoryDenied)
    }

    /// The operations that are counted.
    pub(crate) fn counted(self) -> u64 {
        if self.asks_redis() { 500 } else { 20_000 }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    /// The old one and the new one.
    pub(crate) subjects: [PathBuf; 2],
    pub(crate) rows: Vec<Row>,
    pub(crate) pairs: usize,
    pub(crate) counts: bool,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut subject = || arguments.next().ok_or("versions OLD_SUBJECT NEW_SUBJECT");
        let mut options = Self {
            subjects: [subject()?.into(), subject()?.into()],
            rows: Row::ALL.to_vec(),
            pairs: 9,
            counts: true,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--rows" => options.rows = rows(&value()?)?,
                "--pairs" => options.pairs = value()?.parse()?,
                "--no-counts" => options.counts = false,
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        match options.pairs {
            0 => Err("--pairs wants 1 or more".into()),
            _ => Ok(options),
        }
    }
}

fn rows(names: &str) -> Result<Vec<Row>> {
    let row = |name: &str| {
        let mut all = Row::ALL.into_iter();
        let row = all.find(|row| row.name() == name);
        row.ok_or_else(|| format!("there is no row {name}").into())
    };
    names.split(',').map(row).collect()
}
