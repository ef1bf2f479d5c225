use super::Limits;
use crate::store::Fleet;

/// Without the feature `page` a process tells the others nothing of how it fares.
#[derive(Debug, Default)]
pub(crate) struct Reports;

impl Reports {
    pub(super) const fn forget_others(&self) {}
}

impl Limits {
    pub(super) const fn begin_reports(&self) {}

    pub(super) async fn sample_each_second(&self) {}

    pub(super) fn report(&self) -> String {
        String::new()
    }

    pub(super) async fn ask_others(&self, _: &dyn Fleet) {}

    pub(super) const fn was_denied(&self, _: &str, _: &str) -> bool {
        false
    }
}
