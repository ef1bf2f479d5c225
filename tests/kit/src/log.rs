//! What the log is told, for tests that read it.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::Once;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::full_log;

thread_local! {
    static IS_LISTENING: Cell<bool> = const { Cell::new(false) };
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Installs what both logs write with, once.
///
/// There is one subscriber for all tests: with one for each, an event that is met first where there
/// is none would be switched off for the others. Threads that do not listen pay nothing for the
/// events of others.
pub(crate) fn install() {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let short = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(|| Log)
            .with_filter(dynamic_filter_fn(|event, _| {
                IS_LISTENING.get() && *event.level() <= LevelFilter::DEBUG
            }));
        let full = tracing_subscriber::fmt::layer()
            .fmt_fields(full_log::Fields::default())
            .with_ansi(false)
            .without_time()
            .with_span_events(FmtSpan::FULL)
            .with_writer(|| full_log::Log)
            .with_filter(dynamic_filter_fn(|_, _| full_log::is_listening()));
        tracing_subscriber::registry().with(short).with(full).init();
    });
}

/// The lines that this thread's events make.
pub struct Log;

impl Log {
    pub fn start() -> Self {
        install();
        IS_LISTENING.set(true);
        WRITTEN.take();
        Self
    }

    /// What was written since it was asked last, without what is below info.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.lines_with_debug();
        lines.retain(|line| !line.trim_start().starts_with("DEBUG"));
        lines
    }

    /// How many lines have this in them of those that were written since it was asked last.
    pub fn count(&self, what: &str) -> usize {
        self.lines().iter().filter(|it| it.contains(what)).count()
    }

    /// As [`Self::lines`], with events of the level debug, and a line for the end of each span.
    pub fn lines_with_debug(&self) -> Vec<String> {
        let text = String::from_utf8(WRITTEN.take()).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
