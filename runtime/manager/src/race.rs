//! Two futures of which one is enough.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{self, Either};

/// Whichever comes first; `stop` is looked at first whenever both could continue.
pub(crate) async fn first<A, B>(
    stop: impl Future<Output = A>,
    work: impl Future<Output = B>,
) -> Either<A, B> {
    match future::select(pin!(stop), pin!(work)).await {
        Either::Left((stopped, _)) => Either::Left(stopped),
        Either::Right((worked, _)) => Either::Right(worked),
    }
}
