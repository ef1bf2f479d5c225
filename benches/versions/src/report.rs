//! The tables.

use crate::Measured;
use crate::measured::Cell;
use crate::options::Options;

/// A row holds if its geometric mean and each of its cells reach these.
const MIN_MEAN: f64 = 0.97;
const MIN_CELL: f64 = 0.90;
/// No more instructions than this for one of the old version.
const MAX_INSTRUCTIONS: f64 = 1.03;

pub(crate) fn print(options: &Options, measured: &[Measured]) {
    println!("Medians of {} pairs, with the spread.\n", options.pairs);
    println!("| throughput, new to old | 1 | 64 | 256 | geometric mean | holds |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for row in measured {
        let ratios = row.pairs.each_ref().map(|pairs| Ratios::new(pairs));
        let mean = ratios.iter().map(|ratio| ratio.median.ln()).sum::<f64>() / 3.0;
        let mean = mean.exp();
        let holds = mean >= MIN_MEAN && ratios.iter().all(|ratio| ratio.median >= MIN_CELL);
        let [one, few, many] = ratios.map(|ratio| ratio.to_string());
        let (name, holds) = (row.row.name(), if holds { "yes" } else { "**no**" });
        println!("| {name} | {one} | {few} | {many} | {mean:.3} | {holds} |");
    }
    println!();
    println!(
        "| an operation in Redis, old / new at 1, 64, 256 | script calls | script µs \
         | processor µs |\n| --- | ---: | ---: | ---: |"
    );
    for row in measured.iter().filter(|row| row.row.asks_redis()) {
        let calls = row.cells(|cell| cell.calls, 3);
        let script = row.cells(|cell| cell.script_micros, 2);
        let processor = row.cells(|cell| cell.redis_micros, 2);
        println!("| {} | {calls} | {script} | {processor} |", row.row.name());
    }
    println!();
    println!(
        "| an operation in the program, old / new | processor µs at 1, 64, 256 | instructions \
         | new to old | allocations |\n| --- | ---: | ---: | ---: | ---: |"
    );
    for row in measured {
        let processor = row.cells(|cell| cell.program_micros, 2);
        let counts = row.counts.map_or_else(
            || " | | ".to_owned(),
            |[old, new]| {
                let ratio = new.instructions / old.instructions;
                let mark = if ratio > MAX_INSTRUCTIONS { "**" } else { "" };
                format!(
                    "{:.0} / {:.0} | {mark}{ratio:.3}{mark} | {:.1} / {:.1}",
                    old.instructions, new.instructions, old.allocations, new.allocations
                )
            },
        );
        println!("| {} | {processor} | {counts} |", row.row.name());
    }
}

impl Measured {
    /// For each width the medians of both versions.
    fn cells(&self, field: fn(&Cell) -> f64, digits: usize) -> String {
        let cells = self.pairs.each_ref().map(|pairs| {
            let of =
                |version: usize| median(pairs.iter().map(|pair| field(&pair[version])).collect());
            format!("{:.digits$} / {:.digits$}", of(0), of(1))
        });
        cells.join(", ")
    }
}

/// The new version's throughput to the old one's.
struct Ratios {
    median: f64,
    least: f64,
    most: f64,
}

impl Ratios {
    fn new(pairs: &[[Cell; 2]]) -> Self {
        let ratios = pairs
            .iter()
            .map(|[old, new]| new.per_second / old.per_second);
        let ratios: Vec<f64> = ratios.collect();
        Self {
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            median: median(ratios),
        }
    }
}

impl std::fmt::Display for Ratios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.2} ({:.2} to {:.2})",
            self.median, self.least, self.most
        )
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}
