use super::byte_reader::{ByteReader, ByteWriter, check};
use super::constants::LOG_MAX_RANGES;
use super::count::CountError;

/// Units that were given back, of all that were ever charged to a key.
///
/// The units of a key are numbered in the order of their charges, and units that were given back
/// are ranges of such numbers. A range begins where the charge did that they were given back of, or
/// earlier: of more ranges than it may keep, the nearest two become one, as if the later units had
/// been given back of charges before their own. So what was given back is exact for few ranges. For
/// more, units that still count are taken for later ones: they count longer, and never shorter.
#[derive(Debug, Clone, Default)]
pub(super) struct RefundedRanges(Option<Box<RangeList>>);

#[derive(Debug, Clone, Default)]
struct RangeList {
    /// An instant that the algorithm keeps with the ranges.
    since: u64,
    /// The oldest first.
    list: Vec<Range>,
}

/// Units that are next to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    units: u64,
}

impl Range {
    const fn end(self) -> u64 {
        self.start + self.units
    }
}

impl RefundedRanges {
    fn ranges(&self) -> &[Range] {
        self.0.as_ref().map_or(&[], |ranges| &ranges.list)
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
        self.0.as_ref().map_or(0, |ranges| ranges.since)
    }

    /// Keeps an instant with the ranges, if there are some.
    pub(super) fn set_since(&mut self, since: u64) {
        if let Some(ranges) = &mut self.0 {
            ranges.since = since;
        }
    }

    /// How many of the units from this one on were given back.
    #[inline]
    pub(super) fn from(&self, unit: u64) -> u64 {
        match &self.0 {
            None => 0,
            Some(ranges) => units_from(&ranges.list, unit),
        }
    }

    /// The number behind the last unit that was given back.
    pub(super) fn end(&self) -> u64 {
        self.ranges().last().map_or(0, |range| range.end())
    }

    /// Gives back so many units of a charge, or of charges that begin with this unit. No unit
    /// before `first` counts any more. No more than `max` ranges are kept. Returns whether that was
    /// too few.
    pub(super) fn add(&mut self, unit: u64, units: u64, first: u64, max: usize) -> bool {
        let ranges = &mut self.0.get_or_insert_default().list;
        let mut at = ranges.partition_point(|range| range.start <= unit);
        match at.checked_sub(1).map(|before| ranges[before]) {
            Some(range) if range.end() >= unit => {
                at -= 1;
                ranges[at].units += units;
            }
            _ => ranges.insert(at, Range { start: unit, units }),
        }
        while let Some(next) = ranges.get(at + 1)
            && next.start <= ranges[at].end()
        {
            join(ranges, at);
        }
        let is_inexact = ranges.len() > max;
        if is_inexact {
            // Between these two are the fewest units that still count: none, if both count no more.
            let between = |pair: &[Range]| match pair[1].end() <= first {
                true => 0,
                false => pair[1].start - pair[0].end(),
            };
            let pairs = ranges.windows(2).map(between).enumerate();
            let nearest = pairs.min_by_key(|(_, between)| *between);
            join(ranges, nearest.map_or(0, |(at, _)| at));
        }
        is_inexact
    }

    /// There are no units from this one on any more.
    pub(super) fn cut(&mut self, end: u64) {
        let Some(ranges) = &mut self.0 else {
            return;
        };
        let ranges = &mut ranges.list;
        ranges.retain(|range| range.start < end);
        match ranges.last_mut() {
            Some(last) => last.units = last.units.min(end - last.start),
            None => self.clear(),
        }
    }

    /// Writes the ranges, with numbers from `first` on, the number of the first unit that matters.
    /// If there are no ranges, a 0 alone is written.
    pub(super) fn write(&self, writer: &mut ByteWriter, first: u64) {
        let ranges = self.ranges().iter().filter(|range| range.end() > first);
        writer.number(ranges.clone().count() as u64);
        writer.number(self.since());
        let mut end = first;
        for range in ranges {
            let start = range.start.max(first);
            writer.number(start - end);
            writer.number(range.end() - start);
            end = range.end();
        }
    }

    /// Reads what [`write`](Self::write) has written, of units before `charged`.
    pub(super) fn read(reader: &mut ByteReader<'_>, charged: u64) -> Result<Self, CountError> {
        let length = reader.length(LOG_MAX_RANGES, "the number of ranges")?;
        if length == 0 {
            return Ok(Self::default());
        }
        let since = reader.number()?;
        let mut list = Vec::new();
        let mut end = 0;
        for at in 0..length {
            let gap = reader.number_up_to(charged - end, "where a range begins")?;
            check(gap > 0 || at == 0, "where a range begins")?;
            let start = end + gap;
            let units = reader.number_up_to(charged - start, "a range's units")?;
            check(units > 0, "a range's units")?;
            list.push(Range { start, units });
            end = start + units;
        }
        Ok(Self(Some(Box::new(RangeList { since, list }))))
    }
}

fn units_from(ranges: &[Range], unit: u64) -> u64 {
    let mut units = 0;
    for range in ranges.iter().rev() {
        if range.start < unit {
            return units + range.end().saturating_sub(unit);
        }
        units += range.units;
    }
    units
}

/// Makes one range of this one and the next.
fn join(ranges: &mut Vec<Range>, at: usize) {
    ranges[at].units += ranges.remove(at + 1).units;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_become_one() {
        let mut ranges = RefundedRanges::default();
        for (unit, units) in [(10, 2), (10, 1), (14, 3), (20, 1), (13, 1)] {
            ranges.add(unit, units, 0, 8);
        }
        assert_eq!(
            ranges.ranges(),
            [
                Range {
                    start: 10,
                    units: 7
                },
                Range {
                    start: 20,
                    units: 1
                }
            ]
        );
        assert_eq!(
            [0, 10, 12, 17, 20, 21].map(|unit| ranges.from(unit)),
            [8, 8, 6, 1, 1, 0]
        );
        ranges.cut(15);
        assert_eq!(ranges.from(0), 5);
        ranges.cut(10);
        assert!(ranges.is_empty());
    }

    #[test]
    fn of_too_many_the_nearest_become_one_or_those_that_count_no_more() {
        for (first, expected) in [
            (0, [(0, 1), (10, 2), (30, 1)]),
            (12, [(0, 2), (13, 1), (30, 1)]),
        ] {
            let mut ranges = RefundedRanges::default();
            for unit in [0, 10, 13, 30] {
                assert_eq!(ranges.add(unit, 1, first, 3), unit == 30);
            }
            let found = ranges.ranges().iter().map(|it| (it.start, it.units));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{first}");
        }
    }

    /// However many there are, never more of the last units were given back than should be.
    #[test]
    fn of_many_ranges_none_comes_later() {
        for stride in [1, 7, 334, 998] {
            let mut ranges = RefundedRanges::default();
            let mut exact = [0; 999];
            let (mut all, mut later) = (0, 0);
            for nth in 0..999 {
                let unit = nth * stride % 999;
                if unit % 3 == 0 {
                    exact[unit as usize] = 1;
                    all += 1;
                    ranges.add(unit, 1, 0, 16);
                }
                assert_eq!(ranges.from(0), all);
                assert!(ranges.ranges().len() <= 16);
            }
            for unit in (0..999).rev() {
                later += exact[unit as usize];
                let kept = ranges.from(unit);
                assert!(
                    kept <= later && later <= kept + 666 / 3,
                    "{kept} for {later}"
                );
            }
        }
    }
}
