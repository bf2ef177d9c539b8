//! Limits the request rate of an identity.
//!
//! The limiter is a token bucket on the clock of the environment. Requests are admitted in arrival order: waiters queue
//! behind a fair lock, and only the first one checks the bucket. Watches are exempt, so that a caller that must
//! reconnect a hundred watches is not throttled when it is furthest behind. A request with [`Unthrottled`] is exempt as
//! well.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use tokio::sync::Mutex;
use windlass_env::Env;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult, metrics::RequestMeter};

/// A request extension that skips the rate limiter, because the caller limits such requests by other means.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Unthrottled;

/// A rate limiter: a burst of `burst` requests, then `qps` per second.
#[derive(Clone)]
pub(crate) struct RequestLimiter {
    env: Env,
    bucket: Option<Arc<Bucket>>,
}

struct Bucket {
    limiter: RateLimiter<NotKeyed, InMemoryState, EnvClock, NoOpMiddleware<Duration>>,
    /// Fair: tokio's mutex is first in, first out.
    queue: Mutex<()>,
}

#[derive(Clone)]
struct EnvClock(Env);

impl Clock for EnvClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.now().since_origin()
    }
}

impl RequestLimiter {
    /// Creates a full bucket from options that are [valid](crate::ClientOptions::validate). `qps` of zero or less means
    /// no limit.
    pub(crate) fn new(env: Env, qps: f64, burst: u32) -> Self {
        let bucket = quota(qps, burst).map(|quota| {
            let limiter = RateLimiter::direct_with_clock(quota, EnvClock(env.clone()));
            Arc::new(Bucket { limiter, queue: Mutex::new(()) })
        });
        Self { env, bucket }
    }

    /// Waits until a request can be sent. Returns the waiting time.
    ///
    /// Cancel safe: a dropped waiter leaves the queue and uses no token.
    pub(crate) async fn admit(&self) -> Duration {
        let Some(bucket) = &self.bucket else { return Duration::ZERO };
        let arrived = self.env.now();
        let _turn = bucket.queue.lock().await;
        while let Err(full) = bucket.limiter.check() {
            self.env.sleep(full.wait_time_from(self.env.now().since_origin())).await;
        }
        self.env.now().saturating_duration_since(arrived)
    }
}

fn quota(qps: f64, burst: u32) -> Option<Quota> {
    if qps <= 0.0 {
        return None;
    }
    let period = Duration::try_from_secs_f64(qps.recip()).ok()?;
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(period).map(|quota| quota.allow_burst(burst))
}

#[derive(Clone)]
pub(crate) struct RateLimit {
    pub(crate) limiter: RequestLimiter,
    pub(crate) meter: RequestMeter,
}

impl Middleware for RateLimit {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let exempt = state.info().is_watch() || request.extensions().get::<Unthrottled>().is_some();
        if !exempt {
            let waited = self.limiter.admit().await;
            state.add_wait(waited);
            self.meter.throttled(&request, &state, waited);
        }
        next.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use futures_util::future::{FutureExt as _, join_all};

    use super::*;
    use crate::{ClientOptions, ClientOptionsError};

    // parity: client-limits-qps-burst
    #[tokio::test(start_paused = true)]
    async fn burst_passes_immediately_and_then_requests_are_paced() {
        let env = Env::virtual_time(1);
        let limiter = RequestLimiter::new(env.clone(), 10.0, 5);
        let mut admitted = Vec::new();
        for _ in 0..10 {
            limiter.admit().await;
            admitted.push(env.now().since_origin().as_millis());
        }
        assert_eq!(admitted, [0, 0, 0, 0, 0, 100, 200, 300, 400, 500]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_bucket_fills_up_to_its_burst_only() {
        let env = Env::virtual_time(1);
        let limiter = RequestLimiter::new(env.clone(), 10.0, 3);
        join_all((0..3).map(|_| limiter.admit())).await;
        env.sleep(Duration::from_secs(3600)).await;
        let start = env.now();
        join_all((0..4).map(|_| limiter.admit())).await;
        assert_eq!(env.now().saturating_duration_since(start), Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn rate_limiter_admits_requests_in_arrival_order() {
        let env = Env::virtual_time(1);
        let (limiter, order) = (RequestLimiter::new(env, 100.0, 1), StdMutex::new(Vec::new()));
        let mut waiters: Vec<_> = (0..20)
            .map(|number| {
                let (limiter, order) = (&limiter, &order);
                Box::pin(async move {
                    limiter.admit().await;
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        for waiter in &mut waiters {
            waiter.as_mut().now_or_never();
        }
        // The first request passed immediately; the others are awaited in reverse, which must not matter.
        drop(waiters.remove(0));
        waiters.reverse();
        join_all(waiters).await;
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_does_not_delay_others() {
        let env = Env::virtual_time(1);
        let limiter = RequestLimiter::new(env.clone(), 1.0, 1);
        limiter.admit().await;
        let mut head = Box::pin(limiter.admit());
        let mut second = Box::pin(limiter.admit());
        assert!(head.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(head);
        second.await;
        assert_eq!(env.now().since_origin(), Duration::from_secs(1), "the dropped waiter used no token");
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_limit_means_no_waiting() {
        for qps in [0.0, -1.0] {
            let env = Env::virtual_time(1);
            let limiter = RequestLimiter::new(env.clone(), qps, 1);
            join_all((0..1000).map(|_| limiter.admit())).await;
            assert_eq!(env.now().since_origin(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn valid_limits_are_enforced_and_others_rejected() {
        let options = |qps, burst| ClientOptions { qps, burst, ..ClientOptions::default() };
        let rates = [ClientOptions::MIN_QPS, 0.5, ClientOptions::MAX_QPS];
        let bursts = [0, 1, 30, ClientOptions::MAX_BURST];
        for (qps, burst) in rates.into_iter().flat_map(|qps| bursts.map(|burst| (qps, burst))) {
            assert_eq!(options(qps, burst).validate(), Ok(()), "{qps} {burst}");
            let env = Env::virtual_time(1);
            let limiter = RequestLimiter::new(env.clone(), qps, burst);
            for _ in 0..burst.clamp(1, 100) {
                limiter.admit().now_or_never().expect("within the burst");
            }
            if burst < 100 {
                limiter.admit().await;
                // Timers have a resolution of one millisecond.
                let (waited, period) = (env.now().since_origin().as_secs_f64(), qps.recip());
                assert!((period - 1e-6..period + 2e-3).contains(&waited), "{qps} {burst}: {waited}");
            }
        }
        assert_eq!(options(0.0, 1).validate(), Ok(()));
        assert_eq!(options(-1.0, 1).validate(), Ok(()));
        for qps in [1e-20, 1e-11, 1e-9, 0.000_9, 1_000_000.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let refused = options(qps, 30).validate();
            assert_eq!(refused, Err(ClientOptionsError::Rate(qps.to_string())), "{qps}");
        }
        let most = ClientOptions::MAX_BURST;
        assert_eq!(options(20.0, most + 1).validate(), Err(ClientOptionsError::Burst(most + 1)));
    }
}
