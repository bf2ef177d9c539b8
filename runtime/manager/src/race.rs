//! A race between two futures.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{self, Either};

/// Returns the output of the future that completes first. `stop` is polled first, so it wins if both are ready.
pub(crate) async fn first<A, B>(
    stop: impl Future<Output = A>,
    work: impl Future<Output = B>,
) -> Either<A, B> {
    match future::select(pin!(stop), pin!(work)).await {
        Either::Left((stopped, _)) => Either::Left(stopped),
        Either::Right((worked, _)) => Either::Right(worked),
    }
}
