//! Bytes as choices. What is missing at the end is zero, so that every input means something.

use std::sync::LazyLock;
use std::time::Duration;

use tidegate::algorithm::AlgorithmConfig;
use tidegate::{Algorithm, Quota};

/// Tells what an input does, line by line, where `TIDEGATE_STORY` is set.
pub fn tell(line: impl FnOnce() -> String) {
    static IS_ASKED_FOR: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("TIDEGATE_STORY").is_some());
    if *IS_ASKED_FOR {
        println!("{}", line());
    }
}

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn number(&mut self) -> u64 {
        let mut number = [0; 8];
        let bytes = self.bytes(8);
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    }

    /// Small ones, those around what the bounds are made of, and any.
    pub fn likely(&mut self) -> u64 {
        const BOUNDS: [u64; 12] = [
            0,
            1,
            1 << 32,
            Quota::MAX_UNITS,
            1 << 50,
            1 << 51,
            1 << 52,
            1 << 53,
            1 << 60,
            i64::MAX as u64,
            u64::MAX - 1,
            u64::MAX,
        ];
        let kind = self.byte();
        match kind {
            0..=127 => u64::from(kind),
            128..=159 => u64::from(self.byte()) * 1_000,
            160..=191 => u64::from(self.byte()) * 1_000_000,
            192..=223 => {
                let near = u64::from(self.byte() % 4);
                let bound = *self.pick(&BOUNDS);
                if kind.is_multiple_of(2) {
                    bound.wrapping_add(near)
                } else {
                    bound.wrapping_sub(near)
                }
            }
            _ => self.number(),
        }
    }

    pub fn pick<'b, T>(&mut self, from: &'b [T]) -> &'b T {
        &from[usize::from(self.byte()) % from.len()]
    }

    pub fn counting(&mut self) -> AlgorithmConfig {
        let kind = self.byte();
        let counting =
            AlgorithmConfig::from(Algorithm::ALL[usize::from(kind) % Algorithm::ALL.len()]);
        match kind {
            0..=127 => counting,
            _ => counting.sub_windows(u16::from(kind)),
        }
    }

    /// Valid, whatever the bytes.
    pub fn quota(&mut self) -> Quota {
        let kind = self.byte();
        let max = match kind % 4 {
            0..=2 => u64::from(self.byte()),
            _ => self.likely() % (Quota::MAX_UNITS + 1),
        };
        let window = match kind / 4 % 4 {
            0..=2 => Duration::from_millis(1 + u64::from(self.byte())),
            _ => {
                let longest = Quota::MAX_WINDOW.as_micros() as u64;
                Duration::from_micros(1 + self.likely() % longest)
            }
        };
        let quota = Quota::new(window, max).expect("it is within the bounds");
        match kind & 0x80 {
            0 => quota,
            _ => quota.with_burst(self.likely()).unwrap_or(quota),
        }
    }

    /// Quotas of one rule: no two of them are named alike, so no two windows are the same.
    pub fn quotas(&mut self, most: u8) -> Vec<Quota> {
        let number = 1 + self.byte() % most;
        let mut quotas: Vec<Quota> = Vec::new();
        for _ in 0..number {
            let quota = self.quota();
            if quotas.iter().all(|other| other.window() != quota.window()) {
                quotas.push(quota);
            }
        }
        quotas
    }
}
