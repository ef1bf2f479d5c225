//! What the log is told, for tests that read it.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

thread_local! {
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The lines that this thread's events make.
///
/// There is one subscriber for all tests: with one for each, an event that is met first where there
/// is none would be switched off for the others.
pub struct Log;

impl Log {
    pub fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt()
                .with_ansi(false)
                .without_time()
                .with_max_level(LevelFilter::DEBUG)
                .with_span_events(FmtSpan::CLOSE)
                .with_writer(|| Self)
                .init();
        });
        WRITTEN.take();
        Self
    }

    /// What was written since it was asked last, without what is below info.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.lines_with_debug();
        lines.retain(|line| !line.trim_start().starts_with("DEBUG"));
        lines
    }

    /// The same with events of the level debug, and a line for the end of each span.
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
