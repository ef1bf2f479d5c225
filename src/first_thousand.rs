use std::sync::atomic::{AtomicU32, Ordering};

/// Whether something came in the first thousand times that it could.
#[derive(Debug, Default)]
pub(crate) struct FirstThousand(AtomicU32);

impl FirstThousand {
    /// It came once.
    const CAME: u32 = u32::MAX;

    /// It could come now, and did, or did not.
    #[inline]
    pub(crate) fn note(&self, has_come: bool) {
        let before = self.0.load(Ordering::Relaxed);
        if has_come && before != Self::CAME {
            self.0.store(Self::CAME, Ordering::Relaxed);
        } else if !has_come && before < 1_000 {
            // One that comes at the same time stays known.
            let next = before + 1;
            let relaxed = Ordering::Relaxed;
            let _ = self.0.compare_exchange(before, next, relaxed, relaxed);
        }
    }

    /// Whether it never came.
    pub(crate) fn is_without(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1_000
    }
}
