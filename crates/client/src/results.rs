//! What results of operations mean to callers who want their bytes.

use crate::{CallError, OpResult};
use bytes::Bytes;

/// The result of a package's only operation.
pub(crate) fn one(results: Vec<OpResult>) -> Result<Bytes, CallError> {
    let result = results.into_iter().next();
    bytes(result.expect("a package has results for all of its operations"))
}

/// The results of all operations of a package.
pub(crate) fn all(results: Vec<OpResult>) -> Result<Vec<Bytes>, CallError> {
    results.into_iter().map(bytes).collect()
}

fn bytes(result: OpResult) -> Result<Bytes, CallError> {
    match result {
        OpResult::Executed(result) => Ok(result),
        OpResult::BeyondWindow => Err(CallError::NoResult(
            "its number is too far above the lowest one that was not executed",
        )),
        OpResult::NoLongerKept => Err(CallError::NoResult(
            "its number was executed earlier, and the result is no longer kept (was this client's \
             number used before?)",
        )),
        OpResult::Unsupported => {
            Err(CallError::NoResult("the replicas do not know this kind of request"))
        }
        OpResult::OutsideFootprint => Err(CallError::NoResult(
            "it was aborted and changed nothing: it touched what the application does not declare \
             for it (a mistake in the application)",
        )),
        OpResult::Panicked => Err(CallError::NoResult(
            "it was aborted and changed nothing: the application panicked over it (a mistake in the \
             application)",
        )),
        OpResult::Declined(why) => {
            Err(CallError::Declined(String::from_utf8_lossy(&why).into_owned()))
        }
    }
}
