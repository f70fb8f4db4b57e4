//! Running commands and questions.

use bytes::Bytes;
use tercio_execution::{AppError, Application, Context, Operation, Replies};
use tercio_kv::{Query, Reply};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Timestamp};
use tercio_wire::Encode;

pub(crate) fn run(app: &mut impl Application, ops: &[Bytes]) -> Vec<Reply> {
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let operation =
        |op: &Bytes| Operation { client: ClientId(1), seq: RequestSeq(1), op: op.clone() };
    let mut replies = Replies::default();
    app.execute(&context, &ops.iter().map(operation).collect::<Vec<_>>(), &mut replies);
    let reply = |i| Reply::parse(&Bytes::copy_from_slice(replies.get(i))).unwrap();
    (0..replies.len()).map(reply).collect()
}

pub(crate) fn ask(app: &impl Application, query: &Query) -> Result<Reply, AppError> {
    app.query(&query.to_bytes()).map(|answer| Reply::parse(&answer).unwrap())
}
