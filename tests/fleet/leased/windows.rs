use std::path::Path;

use kit::windows::{Spent, inside};

/// A unit was used at some instant between these, in microseconds of the host's clock.
pub(super) type Use = [u64; 2];

pub(super) fn write_all(uses: &[Use], file: &Path) {
    let numbers = uses.as_flattened().iter();
    let bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(file, bytes).expect("is written");
}

pub(super) fn read_all(file: &Path) -> Vec<Use> {
    let bytes = std::fs::read(file).expect("a file");
    let (pairs, []) = bytes.as_chunks::<16>() else {
        panic!("half a pair of numbers");
    };
    let read = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
    let pairs = pairs.iter().map(|pair| pair.split_at(8));
    pairs
        .map(|(from, until)| [read(from), read(until)])
        .collect()
}

/// How many units the window holds that ends with each of these uses.
///
/// A unit that may have been used outside of a window is not counted in it, so a window that is
/// above max here was above it for sure.
pub(super) fn windows_of(uses: impl Iterator<Item = Use>, window: u64) -> Vec<u64> {
    let spent = uses.map(|[from, until]| Spent {
        units: 1,
        from,
        until,
        bound: 0,
    });
    let mut spent: Vec<_> = spent.collect();
    spent.sort_unstable_by_key(|spent| spent.until);
    inside(&spent, window).map(|units| units as u64).collect()
}

#[test]
fn a_window_holds_what_was_used_in_it_for_sure() {
    let uses = [[0, 1], [5, 6], [9, 10], [9, 12], [10, 10], [3, 80]];
    let windows = windows_of(uses.into_iter(), 10);
    // Until 12: all but the first, and the last, which may have been used at 80.
    assert_eq!(windows.iter().max(), Some(&4));
    assert_eq!(windows.iter().filter(|units| **units > 3).count(), 1);
}
