use super::algorithm::Algorithm;
use super::algorithm_definition::AlgorithmDefinition;
use super::algorithm_state::AlgorithmState;
use super::byte_reader::ByteReader;
use super::byte_writer::ByteWriter;
use super::count_error::CountError;
use super::counting::Counting;
use super::refunds::Refunds;
use super::table::with_algorithms;
use crate::decision::{Decision, Receipt};
use crate::quota::Quota;

macro_rules! define_any_state {
    ($($(#[$_attribute:meta])* $name:ident in $module:ident,)+) => {
        $(use super::$module::$name;)+

        /// The state of one of the algorithms.
        #[derive(Debug, Clone)]
        pub(super) enum AnyState {
            $($name(<$name as AlgorithmDefinition>::State),)+
        }

        impl AnyState {
            /// With nothing charged.
            pub(super) fn new(algorithm: Algorithm) -> Self {
                match algorithm { $(Algorithm::$name => Self::$name(Default::default()),)+ }
            }

            /// What a take makes of a new state where the cost fits.
            pub(super) fn charged_once(
                counting: Counting,
                now: u64,
                quota: &Quota,
                cost: u64,
            ) -> Self {
                let sub_windows = counting.number_of_sub_windows();
                match counting.algorithm() {
                    $(Algorithm::$name => {
                        Self::$name(AlgorithmState::charged_once(now, quota, sub_windows, cost))
                    })+
                }
            }

            /// Forgets what was charged, and gives nothing back of takes that were charged at `now`
            /// or before.
            pub(super) fn reset(&mut self, now: u64) {
                match self { $(Self::$name(state) => *state = AlgorithmState::reset_at(now),)+ }
            }

            /// The algorithm whose state it is.
            pub(super) const fn algorithm(&self) -> Algorithm {
                match self { $(Self::$name(_) => Algorithm::$name,)+ }
            }

            /// By its own algorithm.
            #[inline]
            pub(super) fn take(
                &mut self,
                now: u64,
                quotas: &[Quota],
                sub_windows: u16,
                cost: u64,
            ) -> Decision {
                match self {
                    $(Self::$name(state) => {
                        AlgorithmState::take(state, now, quotas, sub_windows, cost)
                    })+
                }
            }

            pub(super) fn refund(
                &mut self,
                now: u64,
                receipt: &Receipt,
                units: u64,
                earlier: &Refunds,
            ) -> u64 {
                match self {
                    $(Self::$name(state) => {
                        AlgorithmState::refund(state, now, receipt, units, earlier)
                    })+
                }
            }

            pub(super) fn forgotten_at(&self) -> u64 {
                match self { $(Self::$name(state) => state.forgotten_at(),)+ }
            }

            pub(super) fn longest_life(&self) -> u64 {
                match self { $(Self::$name(state) => state.longest_life(),)+ }
            }

            pub(super) fn write(&self, writer: &mut ByteWriter) {
                match self { $(Self::$name(state) => state.write(writer),)+ }
            }

            /// The state of the algorithm with this number.
            pub(super) fn read(
                number: u8,
                reader: &mut ByteReader<'_>,
            ) -> Result<Self, CountError> {
                match number {
                    $($name::NUMBER => AlgorithmState::read(reader).map(Self::$name),)+
                    _ => Err(CountError::UnknownAlgorithm(number)),
                }
            }
        }
    };
}

with_algorithms!(define_any_state);

impl Default for AnyState {
    fn default() -> Self {
        Self::new(Algorithm::default())
    }
}
