use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::decision::Receipt;

/// Numbers in scripts are doubles, and in questions they have 7 bytes.
const BITS: u64 = (1 << 52) - 1;

/// What names this process among the holders of permits: random.
pub(super) fn process() -> u64 {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| Uuid::new_v4().as_u64_pair().1 & BITS);
    *PROCESS
}

/// The holder of the permits of one take. No other take has it.
pub(super) fn next() -> Receipt {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    Receipt::new(process(), number & BITS, 1)
}
