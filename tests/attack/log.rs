//! What a thread's events say, down to the finest level.
//!
//! There is one subscriber for all tests: with one for each, an event that is met first where there
//! is none could be switched off for the others.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::Once;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

thread_local! {
    /// Threads that do not listen pay nothing for the events of others.
    static IS_LISTENING: Cell<bool> = const { Cell::new(false) };
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ON_EVENT: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy)]
pub(crate) struct Log;

impl Log {
    pub(crate) fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .without_time()
                .with_span_events(FmtSpan::FULL)
                .with_writer(|| Self)
                .with_filter(dynamic_filter_fn(|_, _| IS_LISTENING.get()));
            tracing_subscriber::registry().with(layer).init();
        });
        IS_LISTENING.set(true);
        WRITTEN.take();
        Self
    }

    /// All since it was asked last.
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(&WRITTEN.take()).into_owned()
    }
}

#[cfg(feature = "config")]
impl Log {
    /// Calls this at each event.
    pub(crate) fn on_event(self, call: impl Fn() + 'static) {
        ON_EVENT.set(Some(Rc::new(call)));
    }

    pub(crate) fn lines(self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// The lines of this level.
    pub(crate) fn lines_of(self, level: tracing::Level) -> Vec<String> {
        let level = level.to_string();
        let mut lines = self.lines();
        lines.retain(|line| line.trim_start().starts_with(&level));
        lines
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // What it calls may tell of events itself.
        if let Some(call) = ON_EVENT.take() {
            call();
            ON_EVENT.set(Some(call));
        }
        WRITTEN.with_borrow_mut(|written| written.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
