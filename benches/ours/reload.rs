//! What a reload of 10,000 rules costs, of which layers use 100: time, and memory.
//!
//! `cargo bench --bench reload`. It fails if a reload takes 100 ms or more of processor time, unless
//! its rules have much in them. On a machine with other work the time of the clock is longer.

mod support;

use std::fs;
use std::time::Instant;

use allocation_counter::measure;
use support::{Table, median};
use tidegate::{Limits, Rules};

const RULES: usize = 10_000;
const USED: usize = 100;
const ROUNDS: u64 = 21;

/// What a line of the table has in common: the path of a rule and its lines.
struct Form {
    name: &'static str,
    rule: fn(usize, u64) -> String,
}

const FORMS: [Form; 2] = [
    Form {
        name: "a maximum and a window",
        rule: |number, max| {
            format!(
                "[rules.\"/api/v1/resource-{number}\"]\nmax-count = {max}\nwindow = \"10s\"\n\n"
            )
        },
    },
    Form {
        name: "two quotas and two keys",
        rule: |number, max| {
            format!(
                "[rules.\"/api/v1/resource-{number}\"]\nquotas = [\n  {{ max-count = {max}, window \
                 = \"1m\" }},\n  {{ max-count = 5000, window = \"1d\", name = \"daily\" }},\n]\n\
                 key = [\"client-ip\", \"header:x-tenant\"]\non-error = \"fallback\"\n\n"
            )
        },
    },
];

impl Form {
    fn text(&self, max: u64) -> String {
        let rules = (0..RULES).map(|number| (self.rule)(number, max));
        "[client-ip]\ntrusted = [\"10.0.0.0/8\"]\n\n".to_owned() + &rules.collect::<String>()
    }

    /// Half of the reloads lack the rules in use, which are kept then.
    fn text_without_used(&self, max: u64) -> String {
        let text = self.text(max);
        let (head, _) = text.split_once("[rules").expect("there are rules");
        let rules = (USED..RULES).map(|number| (self.rule)(number, max));
        head.to_owned() + &rules.collect::<String>()
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let head = [
        "10,000 rules, each with",
        "file",
        "a reload takes",
        "of the processor",
        "rules keep",
        "a reload needs at most",
    ];
    let mut table = Table::new(&head);
    let mut fastest = f64::MAX;
    for form in FORMS {
        fs::write(&file, form.text(5)).expect("is written");
        let limits = Limits::from_file(&file).expect("valid");
        let layers: Vec<_> = (0..USED)
            .map(|number| limits.layer(&format!("/api/v1/resource-{number}")))
            .collect();
        let times = (0..ROUNDS).map(|round| {
            let text = match round % 2 {
                0 => form.text(round + 10),
                _ => form.text_without_used(round + 10),
            };
            fs::write(&file, text).expect("is written");
            let (started, busy) = (Instant::now(), processor_millis());
            limits.reload(&file).expect("valid");
            let took = started.elapsed().as_secs_f64() * 1e3;
            (took, processor_millis() - busy)
        });
        let (times, busy): (Vec<f64>, Vec<f64>) = times.unzip();
        let busy = median(busy);
        let text = form.text(5);
        let mut rules = None;
        let kept = measure(|| rules = Some(Rules::from_toml(&text).expect("valid")));
        drop((rules, text));
        fs::write(&file, form.text(7)).expect("is written");
        let reload = measure(|| limits.reload(&file).expect("valid"));
        let per_rule = |bytes: f64| format!("{:.1} KB per rule", bytes / 1e3 / RULES as f64);
        table.row(&[
            form.name.to_owned(),
            format!("{:.2} MB", form.text(5).len() as f64 / 1e6),
            format!("{:.0} ms", median(times)),
            format!("{busy:.0} ms"),
            per_rule(kept.bytes_current as f64),
            per_rule(reload.bytes_max as f64),
        ]);
        fastest = busy.min(fastest);
        drop(layers);
    }
    table.print();
    assert!(fastest < 100.0, "a reload takes {fastest:.0} ms");
}

/// The time for which this thread has run, as Linux counts it.
fn processor_millis() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split(' ').next().expect("the time on a processor");
    nanos.parse::<f64>().expect("a number") / 1e6
}
