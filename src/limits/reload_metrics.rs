use ::metrics::with_recorder;

use crate::live::ReloadStatus;
use crate::metrics::Metric;

const VERSION: Metric = Metric::gauge(
    "tidegate_config_version",
    "The version of the rules in force: 1 at the start, one more for each change.",
);
const FAILING: Metric = Metric::gauge(
    "tidegate_config_reload_failing",
    "1 while the file is refused and the old rules stay in force, else 0.",
);
const RELOADS: Metric = Metric::counter(
    "tidegate_config_reloads_total",
    "How often a file's new rules were applied.",
);
const ERRORS: Metric = Metric::counter(
    "tidegate_config_reload_errors_total",
    "How often a file was refused.",
);

/// Publishes which rules are in force, and whether reloading them fails.
pub(super) fn publish_reloads(status: &ReloadStatus) {
    with_recorder(|recorder| {
        for metric in [VERSION, FAILING, RELOADS, ERRORS] {
            metric.describe(recorder);
        }
        VERSION.set(recorder, Vec::new(), status.version as f64);
        let is_failing = status.error.is_some();
        FAILING.set(recorder, Vec::new(), f64::from(u8::from(is_failing)));
        RELOADS.count(recorder, Vec::new(), status.reloads);
        ERRORS.count(recorder, Vec::new(), status.failures);
    });
}
