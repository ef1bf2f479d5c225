//! What a thread's events and spans say, down to the finest level.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

thread_local! {
    static IS_LISTENING: Cell<bool> = const { Cell::new(false) };
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ON_EVENT: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Fields as usual, under a type of its own: two formats of one type would share what they have
/// written of a span, and write it twice.
#[derive(Default)]
pub(crate) struct Fields(DefaultFields);

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> std::fmt::Result {
        self.0.format_fields(writer, fields)
    }
}

pub(crate) fn is_listening() -> bool {
    IS_LISTENING.get()
}

#[derive(Clone, Copy)]
pub struct Log;

impl Log {
    pub fn start() -> Self {
        crate::log::install();
        IS_LISTENING.set(true);
        WRITTEN.take();
        Self
    }

    /// All since it was asked last.
    pub fn text(self) -> String {
        String::from_utf8_lossy(&WRITTEN.take()).into_owned()
    }

    /// Calls this at each event.
    pub fn on_event(self, call: impl Fn() + 'static) {
        ON_EVENT.set(Some(Rc::new(call)));
    }

    pub fn lines(self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// The lines of this level.
    pub fn lines_of(self, level: tracing::Level) -> Vec<String> {
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
