//! The counter, which says what it is asked for.

use super::counter;
use bytes::Bytes;
use std::sync::Arc;
use tercio_execution::{AppError, Application, Context, Operation, PreCheck, Replies, Snapshot};
use tercio_types::Digest;

/// What an application is asked for.
pub(crate) enum Call<'a> {
    /// To look whether a request makes sense.
    Check,
    /// To execute these.
    Execute(&'a [Operation]),
    /// To take another state.
    Restore,
}

/// The counter; tells `told` of each call, on the thread that makes it, before it answers.
struct Watched {
    counter: Box<dyn Application>,
    told: fn(Call<'_>),
}

/// A counter that tells `told` of each call.
pub(crate) fn watched(told: fn(Call<'_>)) -> Box<dyn Application> {
    Box::new(Watched { counter: counter(), told })
}

struct Look(fn(Call<'_>));

impl PreCheck for Look {
    fn check(&self, _operation: &[u8]) -> Result<(), AppError> {
        (self.0)(Call::Check);
        Ok(())
    }
}

impl Application for Watched {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        (self.told)(Call::Execute(operations));
        self.counter.execute(context, operations, replies);
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.counter.query(question)
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        Arc::new(Look(self.told))
    }

    fn state_digest(&mut self) -> Digest {
        self.counter.state_digest()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.counter.snapshot()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        (self.told)(Call::Restore);
        self.counter.restore(chunks)
    }
}
