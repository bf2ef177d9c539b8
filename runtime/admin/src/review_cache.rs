//! Answers that are remembered for a while, and asked for once however many want them.
//!
//! Guarantees: bounded; what is good news for somebody never makes room for bad news about strangers; a question that
//! failed is not remembered; whoever asks while the same question is under way waits for that one, and it continues for as
//! long as anybody waits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use windlass_env::{Env, Instant};

/// What is asked, as a digest: questions hold secrets, and may be long.
pub(crate) type ReviewKey = [u8; 32];

/// What was answered, for how long that holds, and whether it is good news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedReview<V> {
    pub(crate) value: V,
    pub(crate) holds: Duration,
    pub(crate) good: bool,
}

type InFlightReview<V, E> = BoxFuture<'static, Result<CachedReview<V>, E>>;

/// Answers by question.
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
    /// Remembers at most `most` answers that are good news, and as many that are not.
    pub(crate) fn new(env: Env, most: usize) -> Self {
        let (good, bad, asking) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { env, most, state: Mutex::new(State { good, bad, asking }) }
    }

    /// The answer that is remembered.
    pub(crate) fn remembered(&self, question: &ReviewKey) -> Option<V> {
        let now = self.env.now();
        let state = self.lock();
        let found = state.good.get(question).or_else(|| state.bad.get(question));
        found.filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    /// Asks, or joins who is asking already.
    ///
    /// # Errors
    /// What asking ended with. The next who wants to know asks again.
    ///
    /// # Cancel safety
    /// Dropping it leaves those who wait for the same answer waiting for it.
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
            // Whoever waited with us may have put it there: then it holds no longer for that.
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
        // An answer that has run out is replaced, not kept next to the new one.
        state.good.remove(&question);
        state.bad.remove(&question);
        // Those whose askers have all left.
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

/// Drops what has run out, and if that is not enough what runs out first.
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
        f.debug_struct("Memo").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    struct Asked {
        env: Env,
        memo: ReviewCache<u32, ()>,
        times: Arc<AtomicUsize>,
    }

    impl Asked {
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
    async fn answer_is_asked_for_once_by_all_who_come_meanwhile_and_again_when_it_has_run_out() {
        let asked = Asked::new(8);
        let all = join_all((0..50).map(|_| asked.ask(1, Ok(holding(MINUTE))))).await;
        assert_eq!((all, asked.times()), (vec![Ok(1); 50], 1));
        asked.env.sleep(MINUTE - Duration::from_millis(1)).await;
        assert_eq!((asked.ask(1, Ok(holding(MINUTE))).await, asked.times()), (Ok(1), 1));
        asked.env.sleep(Duration::from_millis(1)).await;
        assert_eq!((asked.ask(1, Ok(holding(MINUTE))).await, asked.times()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_and_what_holds_for_no_time_is_not_remembered() {
        let asked = Asked::new(8);
        assert_eq!(asked.ask(1, Err(())).await, Err(()));
        assert_eq!((asked.ask(1, Ok(holding(Duration::ZERO))).await, asked.times()), (Ok(1), 2));
        assert_eq!((asked.ask(1, Ok(holding(MINUTE))).await, asked.times()), (Ok(1), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asked_first_may_leave_and_the_others_are_answered() {
        let asked = Asked::new(8);
        let mut first = Box::pin(asked.ask(1, Ok(holding(MINUTE))));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(asked.ask(1, Err(())));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!((second.await, asked.times()), (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_bad_news_drops_what_runs_out_first_and_no_good_news() {
        let asked = Asked::new(3);
        assert_eq!(asked.ask(255, Ok(holding(MINUTE))).await, Ok(1));
        for stranger in 0..20 {
            let refused = CachedReview { value: 0, holds: MINUTE, good: false };
            assert_eq!(asked.ask(stranger, Ok(refused)).await, Ok(0));
        }
        let remembered = |question: u8| asked.memo.remembered(&[question; 32]);
        assert_eq!((remembered(255), remembered(16), remembered(17)), (Some(1), None, Some(0)));
    }
}
