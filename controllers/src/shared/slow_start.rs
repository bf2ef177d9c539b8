//! Calls in growing batches.
//!
//! If one pod cannot be created, usually none can: a quota is exhausted, or a webhook is unavailable. With batches of
//! 1, 2, 4, ... the first failure costs one request. The calls of a batch run concurrently, within the limit of
//! [`join_all`].

use std::future::Future;

use super::concurrency::join_all;

/// Size of the first batch: the number of failed requests if none can succeed.
const FIRST_BATCH: usize = 1;

/// Maximum size of a batch.
const MAX_BATCH: usize = 500;

/// Makes `count` calls in growing batches, and stops after a batch with a failure. A call receives its number, from 0.
/// Returns the failures of the last batch in the order of the calls; none if all calls succeeded.
pub(crate) async fn slow_start<E, F>(count: usize, call: impl Fn(usize) -> F) -> Vec<E>
where
    F: Future<Output = Result<(), E>>,
{
    let (mut next, mut size) = (0, FIRST_BATCH);
    let mut failures = Vec::new();
    while next < count && failures.is_empty() {
        size = size.min(count - next);
        let results = join_all(size, |number| call(next + number)).await;
        failures.extend(results.into_iter().filter_map(Result::err));
        next += size;
        size = (size * 2).min(MAX_BATCH);
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::slow_start;
    use std::cell::{Cell, RefCell};

    /// Runs a call that succeeds `limit` times, and checks the number of calls and the failures.
    async fn check(count: usize, limit: usize, calls: usize, failures: &[usize]) {
        let made = Cell::new(0);
        let failed = slow_start(count, |number| {
            assert_eq!(number, made.replace(made.get() + 1), "calls have consecutive numbers");
            let call = made.get();
            async move { if call > limit { Err(call) } else { Ok(()) } }
        })
        .await;
        assert_eq!((made.get(), &*failed), (calls, failures));
    }

    #[tokio::test]
    async fn no_batch_follows_one_with_a_failure() {
        check(0, 0, 0, &[]).await;
        check(10, 0, 1, &[1]).await;
        check(10, 10, 10, &[]).await;
        check(10, 5, 7, &[6, 7]).await;
        check(500, 500, 500, &[]).await;
    }

    #[tokio::test]
    async fn calls_of_one_batch_run_concurrently() {
        let (running, most) = (Cell::new(0), RefCell::new(Vec::new()));
        slow_start(10, |_| async {
            running.set(running.get() + 1);
            tokio::task::yield_now().await;
            most.borrow_mut().push(running.get());
            tokio::task::yield_now().await;
            running.set(running.get() - 1);
            Ok::<_, ()>(())
        })
        .await;
        assert_eq!(*most.borrow(), [1, 2, 2, 4, 4, 4, 4, 3, 3, 3]);
    }
}
