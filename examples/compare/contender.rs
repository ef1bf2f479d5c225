//! Who is compared: every algorithm, and GCRA twice, as its burst is a setting of its own.

use tidegate::rule::QuotaError;
use tidegate::{Algorithm, Quota};

use crate::limit::{MAX, SMALL_BURST, WINDOW};

pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
}

pub(crate) fn all() -> Result<Vec<Contender>, QuotaError> {
    let quota = Quota::new(WINDOW, MAX)?;
    let small_burst = quota.with_burst(SMALL_BURST)?;
    let contenders = Algorithm::ALL
        .into_iter()
        .flat_map(|algorithm| match algorithm {
            Algorithm::Gcra => vec![gcra(quota), gcra(small_burst)],
            _ => vec![plain(algorithm, quota)],
        });
    Ok(contenders.collect())
}

fn plain(algorithm: Algorithm, quota: Quota) -> Contender {
    Contender {
        name: algorithm.name().to_owned(),
        algorithm,
        quota,
    }
}

fn gcra(quota: Quota) -> Contender {
    let algorithm = Algorithm::Gcra;
    Contender {
        name: format!("{}, burst {}", algorithm.name(), quota.burst()),
        algorithm,
        quota,
    }
}
