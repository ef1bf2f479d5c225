//! The tables of the HTTP runs.

use tidegate_peers::contenders::{EVALSHA, PLAIN, Traffic};
use tidegate_peers::statistics::{median, thousands};
use tidegate_peers::table;

use crate::drive::{CONNECTIONS, Run};
use crate::options::Options;

const HEAD: [&str; 6] = [
    "throughput to `plain`",
    "p50, µs",
    "p99, µs",
    "Redis calls a request",
    "script µs a request",
    "Redis CPU µs a request",
];

pub(crate) fn print(options: &Options, runs: &[Run]) {
    println!(
        "Medians of {} rounds of {} s. Every cell: at {} connections.\n",
        options.rounds,
        options.seconds,
        CONNECTIONS.map(|number| number.to_string()).join(" / ")
    );
    for traffic in Traffic::ALL {
        let title = match traffic {
            Traffic::Hot => "one hot key, allowed",
            Traffic::Keys => "100,000 keys in turn, allowed",
            Traffic::Denied => "one key, denied",
        };
        let mut head = vec![title];
        head.extend(HEAD);
        let names = options.names.iter().filter(|name| traffic.includes(name));
        let rows: Vec<_> = names
            .map(|name| Group::new(runs, traffic, name).row(name))
            .collect();
        table::print(&head, &rows);
        let plain = Group::new(runs, traffic, PLAIN);
        let plain = plain.cells(|run| run.per_second, thousands);
        println!("`plain` answered {plain} requests a second.\n");
    }
    print_latency(options, runs);
}

/// How much longer one request takes than one with a bare `EVALSHA`, over one idle connection.
fn print_latency(options: &Options, runs: &[Run]) {
    if !options.names.contains(&EVALSHA) {
        return;
    }
    let p50s = |name: &str| -> Vec<f64> {
        let group = Group::new(runs, Traffic::Hot, name);
        group.at(1).map(|run| run.p50_micros).collect()
    };
    let evalsha = p50s(EVALSHA);
    let rows: Vec<_> = options
        .names
        .iter()
        .map(|name| {
            let p50s = p50s(name);
            let differences = p50s.iter().zip(&evalsha).map(|(own, bare)| own - bare);
            vec![(*name).to_owned(), format!("{:+.0}", median(differences))]
        })
        .collect();
    let head = [
        "p50 of one request at 1 connection",
        "to `evalsha`'s, µs of difference",
    ];
    table::print(&head, &rows);
}

/// The runs of one contender on one kind of traffic.
struct Group<'a> {
    runs: Vec<&'a Run>,
}

impl<'a> Group<'a> {
    fn new(runs: &'a [Run], traffic: Traffic, name: &str) -> Self {
        let runs = runs.iter();
        let runs = runs.filter(|run| run.traffic == traffic && run.name == name);
        Self {
            runs: runs.collect(),
        }
    }

    fn at(&self, connections: usize) -> impl Iterator<Item = &&'a Run> {
        let runs = self.runs.iter();
        runs.filter(move |run| run.connections == connections)
    }

    /// One number for each number of connections.
    fn cells(&self, number: fn(&Run) -> f64, format: impl Fn(f64) -> String) -> String {
        let medians = CONNECTIONS.map(|connections| {
            let runs = self.at(connections);
            format(median(runs.map(|run| number(run))))
        });
        medians.join(" / ")
    }

    fn row(&self, name: &str) -> Vec<String> {
        let two = |value| format!("{value:.2}");
        let one = |value| format!("{value:.1}");
        vec![
            name.to_owned(),
            self.cells(|run| run.to_plain, two),
            self.cells(|run| run.p50_micros, thousands),
            self.cells(|run| run.p99_micros, thousands),
            self.cells(|run| run.redis_calls, two),
            self.cells(|run| run.script_micros, one),
            self.cells(|run| run.redis_cpu_micros, one),
        ]
    }
}
