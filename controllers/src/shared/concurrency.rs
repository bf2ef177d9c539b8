//! Concurrent writes of one reconcile.

use std::future::Future;

use futures_util::stream::{self, StreamExt as _};

/// Maximum number of concurrent writes of one reconcile: as many requests as the client has in flight. Further requests
/// would only wait in its queue, in memory.
const MAX_CONCURRENT_WRITES: usize = 64;

/// Makes `count` calls concurrently, at most [`MAX_CONCURRENT_WRITES`] at a time, and returns their results in the
/// order of the calls. A call receives its number, from 0, and starts after the calls before it.
pub(crate) async fn join_all<F: Future>(count: usize, call: impl Fn(usize) -> F) -> Vec<F::Output> {
    let calls = (0..count).map(|number| {
        let call = call(number);
        async move { (number, call.await) }
    });
    let results = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_WRITES);
    let mut results: Vec<_> = results.collect().await;
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn results_are_in_order_and_few_calls_run_at_once() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let call = async |number: usize| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            for _ in 0..number % 3 {
                tokio::task::yield_now().await;
            }
            running.set(running.get() - 1);
            number
        };
        let results = join_all(500, call).await;
        assert_eq!((results, most.get()), ((0..500).collect(), MAX_CONCURRENT_WRITES));
    }
}
