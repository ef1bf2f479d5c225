//! Contenders side by side: each round times all of them, so that a noisy neighbour hits them alike,
//! and what is compared are the ratios within a round.
#![allow(dead_code)]

use std::time::Instant;

/// How many rounds ROUNDS says; without it so many.
pub(crate) fn number_of_rounds(usual: usize) -> usize {
    let text = std::env::var("ROUNDS").ok();
    text.and_then(|it| it.parse().ok()).unwrap_or(usual)
}

/// A table of measurements, as Markdown.
pub(crate) struct Table {
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn print(&self) {
        println!("| {} |", self.head.join(" | "));
        let line = self.head.iter().enumerate();
        let line: Vec<_> = line
            .map(|(at, _)| if at == 0 { "---" } else { "---:" })
            .collect();
        println!("| {} |", line.join(" | "));
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
        println!();
    }
}

/// A named piece of work.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut() + 'a>,
}

pub(crate) fn contender<'a>(name: &'static str, run: impl FnMut() + 'a) -> Contender<'a> {
    let run = Box::new(run);
    Contender { name, run }
}

/// Nanoseconds of each contender in each round: `rounds[round][contender]`.
pub(crate) fn rounds(
    contenders: &mut [Contender<'_>],
    rounds: usize,
    calls: usize,
) -> Vec<Vec<f64>> {
    for contender in &mut *contenders {
        (0..calls).for_each(|_| (contender.run)());
    }
    let mut time = |contender: &mut Contender<'_>| {
        let started = Instant::now();
        (0..calls).for_each(|_| (contender.run)());
        started.elapsed().as_nanos() as f64 / calls as f64
    };
    (0..rounds)
        .map(|_| contenders.iter_mut().map(&mut time).collect())
        .collect()
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Callgrind counts the instructions between the entry of this function and its end.
#[inline(never)]
pub(crate) fn counted(run: &mut dyn FnMut()) {
    run();
    std::hint::black_box(());
}
