//! The page under attack: other sites, readers who may not change anything, text that an attacker
//! chose, broken requests, broken stores, floods. By the page's contract, from outside.

mod acl;
mod addresses;
mod blocked;
mod bodies;
mod fleet;
mod let_through;
mod limited;
mod pollers;
mod script;
mod secrets;
mod shared;
mod slow;

use kit::page::{
    Answer, App, GET_VIEWS, HOST, ORIGIN, about, count, empty, hourly, posted, send, shop, store,
    user,
};
use kit::page_steps::play;
use tidegate::Page;
use tidegate::store::{Fleet, FleetState, OperatorKey, OperatorKind, PeerReport, ProcessReport};
use tokio::time::Instant;

use crate::*;

/// What a busy machine may add to a bound of seconds.
const SLACK: Duration = Duration::from_secs(3);

/// What the processes of a service tell each other, in a store of somebody else.
#[derive(Debug)]
struct Told {
    version: u64,
    /// By how much the version grows at each report.
    step: u64,
    /// As it was when it was asked.
    list: Vec<OperatorKey>,
    /// How late it answers a report, and a change. `None`: never.
    late: [Option<Duration>; 2],
    others: Vec<PeerReport>,
    /// How many processes it knows beside them, which all say what the last one has said.
    processes: usize,
    said: Arc<str>,
    /// Which of its functions does so.
    panics: &'static str,
}

#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Told>>);

impl Shared {
    /// It answers at once, but where the test says otherwise.
    fn new(change: impl FnOnce(&mut Told)) -> Self {
        let mut told = Told {
            version: 0,
            step: 0,
            list: Vec::new(),
            late: [Some(Duration::ZERO); 2],
            others: Vec::new(),
            processes: 0,
            said: "".into(),
            panics: "",
        };
        change(&mut told);
        Self(Arc::new(Mutex::new(told)))
    }

    /// With a list from the beginning.
    fn with_list(list: Vec<OperatorKey>) -> Self {
        Self::new(|told| (told.version, told.list) = (1, list))
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().expect("no panic")
    }

    /// Over such a store, for all to see.
    fn app(&self) -> App {
        self.app_over(Stub::in_memory(), |page| page.allow_changes().show_keys())
    }

    fn app_over(&self, store: Stub, page: fn(Page) -> Page) -> App {
        let store = store.named("foreign zorro").with_fleet(self.clone());
        App::keyed(Limits::new([hourly("search", 2)]).store(store), page)
    }

    fn panics_in(&self, name: &str) {
        let panics = self.told().panics;
        assert!(panics != name, "{name} zorro");
    }
}

/// An answer so late.
fn later<T: Send + 'static>(late: Option<Duration>, answer: StoreFuture<T>) -> StoreFuture<T> {
    StoreFuture::boxed(async move {
        match late {
            Some(late) => sleep(late).await,
            None => std::future::pending().await,
        }
        answer.await
    })
}

impl Fleet for Shared {
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState> {
        self.panics_in("report");
        let mut told = self.told();
        told.said = Arc::clone(&report.text);
        told.version = told.version.wrapping_add(told.step);
        let state = FleetState {
            secret: report.random,
            version: told.version,
            deciding: 1,
            keys: (told.version != report.known_version).then(|| told.list.clone()),
        };
        later(told.late[0], StoreFuture::ready(Ok(state)))
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        self.panics_in("reports");
        let told = self.told();
        let alike = (0..told.processes).map(|at| PeerReport {
            process: format!("{at:016x}").into(),
            text: Arc::clone(&told.said),
            ago: Duration::ZERO,
        });
        StoreFuture::ready(Ok(told.others.iter().cloned().chain(alike).collect()))
    }

    fn set_key(&self, one: &OperatorKey) -> StoreFuture<Option<OperatorKey>> {
        self.panics_in("set_key");
        let mut told = self.told();
        told.version += 1;
        told.list.retain(|it| it.key != one.key);
        told.list.extend((!one.time.is_zero()).then(|| one.clone()));
        later(told.late[1], StoreFuture::ready(Ok(Some(one.clone()))))
    }
}

/// As a list has it.
fn operator_key(kind: OperatorKind, key: &str, time: Duration) -> OperatorKey {
    OperatorKey {
        kind,
        path: "search".into(),
        key: key.into(),
        by: None,
        note: None,
        only: [].into(),
        replaces: false,
        time,
    }
}
