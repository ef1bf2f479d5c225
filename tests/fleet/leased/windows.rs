use std::io::Write;
use std::path::Path;

/// A unit was used at some instant between these, in microseconds of the host's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Use {
    pub(super) fn write_all(uses: &[Self], file: &Path) {
        let file = std::fs::File::create(file).expect("a file");
        let mut file = std::io::BufWriter::new(file);
        for Self { from, until } in uses {
            let numbers = [from.to_le_bytes(), until.to_le_bytes()];
            file.write_all(numbers.as_flattened()).expect("is written");
        }
        file.flush().expect("is written");
    }

    pub(super) fn read_all(file: &Path) -> Vec<Self> {
        let bytes = std::fs::read(file).expect("a file");
        let (pairs, []) = bytes.as_chunks::<16>() else {
            panic!("half a pair of numbers");
        };
        let read = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
        let pairs = pairs.iter().map(|pair| pair.split_at(8));
        let uses = pairs.map(|(from, until)| Self {
            from: read(from),
            until: read(until),
        });
        uses.collect()
    }
}

/// All uses, and the windows that begin with each of them.
///
/// A unit that may have been used outside of a window is not counted in it, so a window that is
/// above max here was above it for sure.
pub(super) struct Windows {
    /// In order; the units with the ends are not those with the beginnings at the same place.
    from: Vec<u64>,
    until: Vec<u64>,
    window: u64,
    uses: u64,
}

impl Windows {
    pub(super) fn of(uses: impl Iterator<Item = Use>, window: u64) -> Self {
        let (mut from, mut until, mut all) = (Vec::new(), Vec::new(), 0);
        for one in uses {
            all += 1;
            // Others lie in no window for sure.
            if one.until - one.from < window {
                from.push(one.from);
                until.push(one.until);
            }
        }
        from.sort_unstable();
        until.sort_unstable();
        Self {
            from,
            until,
            window,
            uses: all,
        }
    }

    pub(super) const fn uses(&self) -> u64 {
        self.uses
    }

    /// The number of units in each window: those that ended before its end, without those that
    /// began before its beginning.
    fn certainly(&self) -> impl Iterator<Item = u64> {
        let mut ended = 0;
        (0..).zip(&self.from).map(move |(began, begin)| {
            while self
                .until
                .get(ended)
                .is_some_and(|end| *end < begin + self.window)
            {
                ended += 1;
            }
            (ended as u64).saturating_sub(began)
        })
    }

    /// How many windows were above max.
    pub(super) fn above(&self, max: u64) -> u64 {
        self.certainly().filter(|units| *units > max).count() as u64
    }

    /// The units in the fullest window.
    pub(super) fn fullest(&self) -> u64 {
        self.certainly().max().unwrap_or(0)
    }

    /// The same with all units that may have been used in the window.
    pub(super) fn possibly_fullest(&self) -> u64 {
        let (mut began, mut most) = (0, 0);
        for (ended, begin) in self.until.iter().enumerate() {
            while self
                .from
                .get(began)
                .is_some_and(|from| *from < begin + self.window)
            {
                began += 1;
            }
            most = most.max(began - ended);
        }
        most as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_was_used_in_it_for_sure() {
        let uses = [(0, 1), (5, 6), (9, 10), (9, 12), (10, 10), (3, 80)];
        let uses = uses.map(|(from, until)| Use { from, until });
        let windows = Windows::of(uses.into_iter(), 10);
        // From 5 to 14: all but the first, and the last, which may have been used at 80.
        assert_eq!(windows.fullest(), 4);
        assert_eq!((windows.above(3), windows.above(4)), (1, 0));
        // From 1 to 10: the first one, too.
        assert_eq!(windows.possibly_fullest(), 5);
    }
}
