use crate::quota::Quota;

/// Writes numbers in few bytes.
#[derive(Debug, Default)]
pub(super) struct ByteWriter(Vec<u8>);

impl ByteWriter {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// In LEB128: seven bits in each byte, the lowest first; the highest bit says that another byte
    /// follows.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A number as its distance from another one, which is small for two instants. Its lowest bit
    /// is the sign.
    pub(super) fn number_near(&mut self, number: u64, other: u64) {
        let distance = number.wrapping_sub(other) as i64;
        self.number(((distance << 1) ^ (distance >> 63)) as u64);
    }

    /// A window in microseconds, of whole milliseconds.
    pub(super) fn window(&mut self, window: u64) {
        self.number(window / 1_000);
    }

    /// A quota, but for its burst.
    pub(super) fn quota(&mut self, quota: &Quota) {
        self.number(quota.max());
        self.window(quota.window_micros());
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
