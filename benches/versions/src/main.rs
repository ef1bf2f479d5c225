//! Compares two builds of `subject`: see "Two versions" in benches/README.md.
//!
//! ```text
//! versions OLD_SUBJECT NEW_SUBJECT [--rows NAME,...] [--pairs N] [--no-counts]
//! ```

mod measured;
mod options;
mod report;
mod servers;

use measured::{Cell, Counts, Version};
use options::{Options, Row};

/// Errors only ever end the bench, with their text.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Connections, or tasks.
const WIDTHS: [usize; 3] = [1, 64, 256];

/// What is known of a row: for each width its pairs of the old and the new version, and the counts
/// of both.
struct Measured {
    row: Row,
    pairs: [Vec<[Cell; 2]>; 3],
    counts: Option<[Counts; 2]>,
}

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let [old, new] = &options.subjects;
    let mut versions = [Version::start(old)?, Version::start(new)?];
    let mut measured = Vec::new();
    for &row in &options.rows {
        for version in &mut versions {
            version.warm_up(row)?;
        }
        let pairs = Default::default();
        let counts = None;
        measured.push(Measured { row, pairs, counts });
    }
    // Each pair runs through all rows, so that a disturbance of a few seconds meets few pairs of one.
    for pair in 0..options.pairs {
        for measured in &mut measured {
            eprintln!(
                "pair {} of {}: {}",
                pair + 1,
                options.pairs,
                measured.row.name()
            );
            for (width, pairs) in WIDTHS.into_iter().zip(&mut measured.pairs) {
                let [old, new] = &mut versions;
                // In turns the one and the other comes first.
                pairs.push(if pair % 2 == 0 {
                    let first = old.measure(measured.row, width)?;
                    [first, new.measure(measured.row, width)?]
                } else {
                    let first = new.measure(measured.row, width)?;
                    [old.measure(measured.row, width)?, first]
                });
            }
        }
    }
    if options.counts {
        for measured in &mut measured {
            eprintln!("instructions and allocations: {}", measured.row.name());
            let [old, new] = &versions;
            measured.counts = Some([old.count(measured.row)?, new.count(measured.row)?]);
        }
    }
    report::print(&options, &measured);
    Ok(())
}
