use super::count::CountError;
use crate::quota::Quota;

/// Reads what a [`ByteWriter`](super::byte_reader::ByteWriter) writes, from bytes that may hold
/// anything.
pub(super) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, CountError> {
        let (byte, rest) = self.0.split_first().ok_or(CountError::CutOff)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, CountError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(CountError::Impossible("a number of more than 64 bits"))
    }

    /// A number that is at most `max`.
    pub(super) fn number_up_to(&mut self, max: u64, what: &'static str) -> Result<u64, CountError> {
        let number = self.number()?;
        check(number <= max, what)?;
        Ok(number)
    }

    /// A number that is written as its distance from another one.
    pub(super) fn number_near(&mut self, other: u64) -> Result<u64, CountError> {
        let zigzag = self.number()?;
        let distance = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(other.wrapping_add(distance))
    }

    /// A window in microseconds, of whole milliseconds.
    pub(super) fn window(&mut self) -> Result<u64, CountError> {
        let max = Quota::MAX_WINDOW.as_millis() as u64;
        Ok(self.number_up_to(max, "a window")? * 1_000)
    }

    /// A quota without a burst.
    pub(super) fn quota(&mut self) -> Result<Quota, CountError> {
        let max = self.number_up_to(Quota::MAX_UNITS, "a quota's max")?;
        let window = self.window()?;
        check(window > 0, "a quota's window")?;
        Ok(Quota::from_micros(max, window))
    }

    /// The length of a list. Each of its items has at least one byte, so that a list which is read
    /// never needs much more memory than its bytes.
    pub(super) fn length(&mut self, max: usize, what: &'static str) -> Result<usize, CountError> {
        let length = self.number_up_to(max as u64, what)? as usize;
        match length > self.0.len() {
            true => Err(CountError::CutOff),
            false => Ok(length),
        }
    }

    /// Fails if bytes are left.
    pub(super) fn end(self) -> Result<(), CountError> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(CountError::TooLong(more)),
        }
    }
}

/// The bytes are those of a count only if `condition` holds.
pub(super) fn check(condition: bool, what: &'static str) -> Result<(), CountError> {
    match condition {
        true => Ok(()),
        false => Err(CountError::Impossible(what)),
    }
}

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
