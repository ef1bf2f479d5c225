//! What thousands of plans of one rule cost: in proportion to their number, never to its square.

use std::fmt::Write;

use allocation_counter::{AllocationInfo, measure};

use crate::*;

const FEW: usize = 500;
const MANY: usize = 8 * FEW;

/// A rule with this many plans, each with a window of its own.
fn file(algorithm: Algorithm, plans: usize) -> String {
    let name = algorithm.name();
    let mut text = format!("[rules.api]\nmax-count = 5\nwindow = \"1s\"\nalgorithm = \"{name}\"\n");
    for number in 0..plans {
        let millis = 60_000 + number;
        let quotas = format!(
            "quotas = [{{ max-count = {number}, window = \"{millis}ms\" }}, \
             {{ max-count = 9, window = \"1h\", name = \"of-{number}\" }}]"
        );
        writeln!(text, "[rules.api.plans.p{number}]\n{quotas}").expect("a text");
    }
    text
}

fn load(text: &str) -> Arc<Rule> {
    let rules = Rules::from_toml(text).expect("valid");
    Arc::clone(rules.get("api").expect("a rule"))
}

/// Asks once about each plan.
fn ask_all(rule: &Arc<Rule>, store: &dyn Store) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let names: Vec<_> = rule.plans().map(str::to_owned).collect();
    for name in names {
        let take = Take::new(rule.of_plan(&name).expect("a plan"), Key::from("alice"));
        let decision = runtime.block_on(async { store.take(&take).await });
        decision.expect("a decision");
    }
}

/// Whether eight times as many plans take at most twelve times as much, of what is allocated in
/// all and of what stays.
#[track_caller]
fn is_linear(what: &str, cost: impl Fn(usize) -> AllocationInfo) {
    let (few, many) = (cost(FEW), cost(MANY));
    let total = many.bytes_total as f64 / few.bytes_total as f64;
    let kept = many.bytes_max as f64 / few.bytes_max as f64;
    let is_right = total <= 12.0 && kept <= 12.0;
    assert!(is_right, "{what}: {total:.1} times, {kept:.1} at most");
}

#[test]
fn plans_cost_in_proportion_to_their_number() {
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        is_linear(&format!("{name}: load"), |plans| {
            let text = file(algorithm, plans);
            measure(|| drop(load(&text)))
        });
        is_linear(&format!("{name}: first request"), |plans| {
            let rule = load(&file(algorithm, plans));
            measure(|| drop(rule.of_plan("p7")))
        });
        is_linear(&format!("{name}: all plans"), |plans| {
            let rule = load(&file(algorithm, plans));
            measure(|| ask_all(&rule, &MemoryStore::new()))
        });
        is_linear(&format!("{name}: all plans in a fallback"), |plans| {
            let rule = load(&file(algorithm, plans));
            let store =
                Resilient::bare(MemoryStore::with_max_keys(0)).fallback(Share::of_processes(3));
            measure(|| ask_all(&rule, &store))
        });
    }
}
