use super::Script;
use crate::decision::{Decision, Token};
use crate::error::StoreError;
use crate::rule::Rule;
use redis::{Cmd, Value};
pub(crate) struct Batch<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) name: &'a str,
    pub(crate) rows: &'a [Row],
}
pub(crate) struct Row {
    pub(crate) cost: u64,
    pub(crate) takes: u16,
    pub(crate) deadline: u64,
}
pub(crate) enum Answer {
    Decided(Decision),
    Late,
    Failed(StoreError),
}
pub(crate) fn write_questions(_: &[Batch<'_>], _: &mut Vec<u8>) {}
pub(crate) fn read_answers(
    _: &[u8],
    _: u64,
    _: &[Batch<'_>],
    _: impl FnMut(usize, Answer),
) -> Result<u64, StoreError> {
    todo!()
}
pub(crate) fn script_of(_: &Rule) -> &'static Script {
    &super::GCRA
}
pub(crate) fn write_refund(_: &mut Cmd, _: Option<u64>, _: &Token, _: u64) {}
pub(crate) fn read_refund(_: &Value, _: u64) -> Result<u64, StoreError> {
    todo!()
}
