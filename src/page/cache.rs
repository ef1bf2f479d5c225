use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;

use super::Page;
use super::views::View;
use crate::sync::lock;

/// The views of this second: however many browsers ask, each is made once.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<View, (String, Bytes)>>);

impl Cache {
    /// A view as of now, with its tag.
    pub(super) fn get(&self, page: &Page, view: View) -> (String, Bytes) {
        let tick = page.limits.reports.state().second.tick;
        let view = view.bounded(tick);
        let tag = view.tag(page, tick);
        // Requests that come meanwhile wait for the one that makes it.
        let mut views = lock(&self.0);
        if let Some(known) = views.get(&view).filter(|(known, _)| *known == tag) {
            return known.clone();
        }
        // There are few views that differ: what is earlier than some seconds ago is all of it.
        views.retain(|one, _| one.is_due(tick));
        let made = (tag, view.json(page, tick).to_string().into());
        views.insert(view, made.clone());
        made
    }
}
