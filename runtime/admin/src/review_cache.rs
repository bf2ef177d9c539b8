//! A cache of review results that deduplicates concurrent reviews.
//!
//! Guarantees: the size is bounded; a negative result never evicts a positive one; a failed review is not cached; a
//! request that needs a review in flight waits for it; and a review continues while any request waits for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use windlass_env::{Env, Instant};

/// The key of a review, as a digest: it can contain secrets and can be long.
pub(crate) type ReviewKey = [u8; 32];

/// The result of a review, its TTL, and whether it is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedReview<V> {
    pub(crate) value: V,
    pub(crate) holds: Duration,
    pub(crate) good: bool,
}

type InFlightReview<V, E> = BoxFuture<'static, Result<CachedReview<V>, E>>;

/// Results by key.
pub(crate) struct ReviewCache<V: Clone, E: Clone> {
    env: Env,
    most: usize,
    state: Mutex<State<V, E>>,
}

struct State<V: Clone, E: Clone> {
    good: BTreeMap<ReviewKey, (V, Instant)>,
    bad: BTreeMap<ReviewKey, (V, Instant)>,
    asking: BTreeMap<ReviewKey, WeakShared<InFlightReview<V, E>>>,
}

impl<V, E> ReviewCache<V, E>
where
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Returns a cache of at most `most` positive results and as many negative ones.
    pub(crate) fn new(env: Env, most: usize) -> Self {
        let (good, bad, asking) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { env, most, state: Mutex::new(State { good, bad, asking }) }
    }

    /// Returns the cached result.
    pub(crate) fn remembered(&self, question: &ReviewKey) -> Option<V> {
        let now = self.env.now();
        let state = self.lock();
        let found = state.good.get(question).or_else(|| state.bad.get(question));
        found.filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    /// Starts a review, or joins one in flight.
    ///
    /// # Errors
    /// Returns the error of the review. The next call starts a new review.
    ///
    /// # Cancel safety
    /// Dropping the future does not affect other callers that wait for the same review.
    pub(crate) async fn ask(
        &self,
        question: ReviewKey,
        asking: impl FnOnce() -> InFlightReview<V, E>,
    ) -> Result<V, E> {
        let shared = self.join(question, asking);
        let answered = shared.await;
        let mut state = self.lock();
        state.asking.remove(&question);
        let CachedReview { value, holds, good } = answered?;
        if !holds.is_zero() {
            let until = self.env.now() + holds;
            let kept = if good { &mut state.good } else { &mut state.bad };
            make_room(kept, self.most, self.env.now());
            // Another caller of the same review can have inserted it already; the first expiry time stays.
            kept.entry(question).or_insert_with(|| (value.clone(), until));
        }
        Ok(value)
    }

    fn join(
        &self,
        question: ReviewKey,
        asking: impl FnOnce() -> InFlightReview<V, E>,
    ) -> Shared<InFlightReview<V, E>> {
        let mut state = self.lock();
        if let Some(shared) = state.asking.get(&question).and_then(WeakShared::upgrade) {
            return shared;
        }
        // An expired result is replaced.
        state.good.remove(&question);
        state.bad.remove(&question);
        // Removes reviews that no caller waits for.
        state.asking.retain(|_, asking| asking.upgrade().is_some());
        let shared = asking().shared();
        if let Some(weak) = shared.downgrade() {
            state.asking.insert(question, weak);
        }
        shared
    }

    fn lock(&self) -> MutexGuard<'_, State<V, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired results, then, if necessary, the result that expires first.
fn make_room<V>(kept: &mut BTreeMap<ReviewKey, (V, Instant)>, most: usize, now: Instant) {
    if kept.len() < most {
        return;
    }
    kept.retain(|_, (_, until)| now < *until);
    if kept.len() >= most
        && let Some(first) = kept.iter().min_by_key(|(_, (_, until))| *until).map(|(question, _)| *question)
    {
        kept.remove(&first);
    }
}

impl<V: Clone, E: Clone> fmt::Debug for ReviewCache<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewCache").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    struct Fixture {
        env: Env,
        memo: ReviewCache<u32, ()>,
        times: Arc<AtomicUsize>,
    }

    impl Fixture {
        fn new(most: usize) -> Self {
            let env = Env::virtual_time(1);
            Self { memo: ReviewCache::new(env.clone(), most), env, times: Arc::default() }
        }

        async fn ask(&self, question: u8, answer: Result<CachedReview<u32>, ()>) -> Result<u32, ()> {
            let question = [question; 32];
            if let Some(value) = self.memo.remembered(&question) {
                return Ok(value);
            }
            let (env, times) = (self.env.clone(), Arc::clone(&self.times));
            let asking = async move {
                env.sleep(Duration::from_millis(1)).await;
                times.fetch_add(1, Ordering::Relaxed);
                answer
            };
            self.memo.ask(question, || asking.boxed()).await
        }

        fn times(&self) -> usize {
            self.times.load(Ordering::Relaxed)
        }
    }

    fn holding(holds: Duration) -> CachedReview<u32> {
        CachedReview { value: 1, holds, good: true }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_review_until_result_expires() {
        let fixture = Fixture::new(8);
        let all = join_all((0..50).map(|_| fixture.ask(1, Ok(holding(MINUTE))))).await;
        assert_eq!((all, fixture.times()), (vec![Ok(1); 50], 1));
        fixture.env.sleep(MINUTE - Duration::from_millis(1)).await;
        assert_eq!((fixture.ask(1, Ok(holding(MINUTE))).await, fixture.times()), (Ok(1), 1));
        fixture.env.sleep(Duration::from_millis(1)).await;
        assert_eq!((fixture.ask(1, Ok(holding(MINUTE))).await, fixture.times()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_review_and_zero_ttl_result_are_not_cached() {
        let fixture = Fixture::new(8);
        assert_eq!(fixture.ask(1, Err(())).await, Err(()));
        assert_eq!((fixture.ask(1, Ok(holding(Duration::ZERO))).await, fixture.times()), (Ok(1), 2));
        assert_eq!((fixture.ask(1, Ok(holding(MINUTE))).await, fixture.times()), (Ok(1), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn review_continues_for_others_when_first_caller_leaves() {
        let fixture = Fixture::new(8);
        let mut first = Box::pin(fixture.ask(1, Ok(holding(MINUTE))));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(fixture.ask(1, Err(())));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!((second.await, fixture.times()), (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn negative_results_evict_only_earliest_expiring_negatives() {
        let fixture = Fixture::new(3);
        assert_eq!(fixture.ask(255, Ok(holding(MINUTE))).await, Ok(1));
        for unknown in 0..20 {
            let refused = CachedReview { value: 0, holds: MINUTE, good: false };
            assert_eq!(fixture.ask(unknown, Ok(refused)).await, Ok(0));
        }
        let remembered = |question: u8| fixture.memo.remembered(&[question; 32]);
        assert_eq!((remembered(255), remembered(16), remembered(17)), (Some(1), None, Some(0)));
    }
}
