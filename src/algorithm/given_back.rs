use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;

/// Units that were given back, of all that were ever charged to a key.
///
/// The units of a key are numbered in the order of their charges, and units that were given back
/// are runs of such numbers. A run begins where the charge did that they were given back of, or
/// earlier: of more runs than it may keep, two become one, as if the later units had been given
/// back of charges before their own. So what was given back is exact for few runs. For more, units
/// that still count are taken for later ones: they count longer, and never shorter.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenBack(Option<Box<Runs>>);

#[derive(Debug, Clone, Default)]
struct Runs {
    /// What the algorithm has to know about the runs: an instant.
    since: u64,
    /// The oldest first.
    list: Vec<Run>,
}

/// Units that are next to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: u64,
    units: u64,
}

impl Run {
    const fn end(self) -> u64 {
        self.start + self.units
    }
}

/// All units so far, and how many of them may still count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged {
    /// The number behind the last unit.
    pub(super) end: u64,
    /// The most units that count.
    pub(super) held: u64,
}

impl GivenBack {
    fn runs(&self) -> &[Run] {
        self.0.as_ref().map_or(&[], |runs| &runs.list)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// The instant that was [set](Self::set_since), or 0.
    pub(super) fn since(&self) -> u64 {
        self.0.as_ref().map_or(0, |runs| runs.since)
    }

    /// Keeps an instant with the runs, if there are some.
    pub(super) fn set_since(&mut self, since: u64) {
        if let Some(runs) = &mut self.0 {
            runs.since = since;
        }
    }

    /// How many of the units from this one on were given back.
    #[inline]
    pub(super) fn from(&self, unit: u64) -> u64 {
        match &self.0 {
            None => 0,
            Some(runs) => units_from(&runs.list, unit),
        }
    }

    /// The number behind the last unit that was given back.
    pub(super) fn end(&self) -> u64 {
        self.runs().last().map_or(0, |run| run.end())
    }

    /// Gives back so many units of a charge, or of charges that begin with this unit. No more than
    /// `max` runs are kept. Returns whether that was too few.
    pub(super) fn add(&mut self, unit: u64, units: u64, charged: Charged, max: usize) -> bool {
        let runs = &mut self.0.get_or_insert_default().list;
        let mut at = runs.partition_point(|run| run.start <= unit);
        match at.checked_sub(1).map(|before| runs[before]) {
            Some(run) if run.end() >= unit => {
                at -= 1;
                runs[at].units += units;
            }
            _ => runs.insert(at, Run { start: unit, units }),
        }
        while let Some(next) = runs.get(at + 1).copied()
            && next.start <= runs[at].end()
        {
            runs[at].units += next.units;
            runs.remove(at + 1);
        }
        if runs.len() <= max {
            return false;
        }
        let counts = |run: &Run| net_behind(runs, *run, charged.end) <= charged.held;
        let useless = runs.iter().take_while(|run| !counts(run)).count();
        runs.drain(..useless);
        if runs.is_empty() {
            self.clear();
            return false;
        }
        if runs.len() <= max {
            return false;
        }
        while runs.len() > max - max / 5 {
            let later = least_harm(runs, charged.end);
            let units = runs.remove(later).units;
            runs[later - 1].units += units;
        }
        true
    }

    /// There are no units from this one on any more.
    pub(super) fn cut(&mut self, end: u64) {
        let Some(runs) = &mut self.0 else {
            return;
        };
        let runs = &mut runs.list;
        runs.retain(|run| run.start < end);
        match runs.last_mut() {
            Some(last) => last.units = last.units.min(end - last.start),
            None => self.clear(),
        }
    }

    /// Writes the runs, with numbers from `first` on, the number of the first unit that matters.
    pub(super) fn write(&self, writer: &mut ByteWriter, first: u64) {
        let runs = self.runs().iter().filter(|run| run.end() > first);
        writer.number(self.since());
        writer.number(runs.clone().count() as u64);
        let mut end = first;
        for run in runs {
            let start = run.start.max(first);
            writer.number(start - end);
            writer.number(run.end() - start);
            end = run.end();
        }
    }

    /// Reads what [`write`](Self::write) has written, of units before `charged`.
    pub(super) fn read(reader: &mut ByteReader<'_>, charged: u64) -> Result<Self, CountError> {
        let since = reader.number()?;
        let length = reader.length(MAX_RUNS, "the number of runs")?;
        let mut list = Vec::new();
        let mut end = 0;
        for at in 0..length {
            let gap = reader.number_up_to(charged - end, "where a run begins")?;
            check(gap > 0 || at == 0, "where a run begins")?;
            let start = end + gap;
            let units = reader.number_up_to(charged - start, "a run's units")?;
            check(units > 0, "a run's units")?;
            list.push(Run { start, units });
            end = start + units;
        }
        let runs = Box::new(Runs { since, list });
        Ok(Self((length > 0).then_some(runs)))
    }
}

/// The most runs of any algorithm.
pub(super) const MAX_RUNS: usize = 32;

fn units_from(runs: &[Run], unit: u64) -> u64 {
    let mut units = 0;
    for run in runs.iter().rev() {
        if run.start < unit {
            return units + run.end().saturating_sub(unit);
        }
        units += run.units;
    }
    units
}

/// Units behind a run that were not given back.
fn net_behind(runs: &[Run], run: Run, end: u64) -> u64 {
    end.saturating_sub(run.end())
        .saturating_sub(units_from(runs, run.end()))
}

/// The run that has to be moved to the end of the one before it. Between the two are units that
/// still count: few of them, and more where many more units are behind, since all that long windows
/// look at is older.
fn least_harm(runs: &[Run], end: u64) -> usize {
    let (mut least, mut later, mut behind) = (f64::INFINITY, runs.len() - 1, 0);
    let mut next = Run {
        start: end,
        units: 0,
    };
    for (at, run) in runs.iter().enumerate().skip(1).rev() {
        behind += next.start.saturating_sub(run.end());
        let between = run.start.saturating_sub(runs[at - 1].end()) as f64;
        let harm = between * between / (behind + 1) as f64;
        if harm < least {
            (least, later) = (harm, at);
        }
        next = *run;
    }
    later
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charged(end: u64) -> Charged {
        Charged { end, held: end }
    }

    #[test]
    fn runs_that_meet_become_one() {
        let mut given_back = GivenBack::default();
        for (unit, units) in [(10, 2), (14, 2), (20, 1), (12, 2), (10, 1)] {
            given_back.add(unit, units, charged(30), 8);
        }
        assert_eq!(
            given_back.runs(),
            [
                Run {
                    start: 10,
                    units: 7
                },
                Run {
                    start: 20,
                    units: 1
                }
            ]
        );
        assert_eq!(
            [0, 10, 12, 17, 20, 21].map(|unit| given_back.from(unit)),
            [8, 8, 6, 1, 1, 0]
        );
        given_back.cut(15);
        assert_eq!(given_back.from(0), 5);
        given_back.cut(10);
        assert!(given_back.is_empty());
    }

    /// However many there are, never more of the last units were given back than should be.
    #[test]
    fn of_many_runs_none_comes_later() {
        for stride in [1, 7, 334, 998] {
            let mut given_back = GivenBack::default();
            let mut exact = [0; 999];
            for nth in 0..999 {
                let unit = nth * stride % 999;
                if unit % 3 == 0 {
                    exact[unit as usize] = 1;
                    given_back.add(unit, 1, charged(999), 16);
                }
                let all: u64 = exact.iter().sum();
                assert_eq!(given_back.from(0), all);
                assert!(given_back.runs().len() <= 16);
            }
            for unit in 0..999 {
                let exact: u64 = exact[unit as usize..].iter().sum();
                let kept = given_back.from(unit);
                assert!(
                    kept <= exact && exact <= kept + 666 / 3,
                    "{kept} for {exact}"
                );
            }
        }
    }
}
