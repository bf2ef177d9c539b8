//! The state that requests on several threads share: the fence before the wire, and the queue of the rate limiter.
//!
//! The tests use no connection, no TLS and no kube client, so that `cargo xtask miri` can interpret them. Miri detects
//! data races, use after free and lost wakeups, after which every thread waits.

use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::FencedError;
use crate::stack::fence::{AttachFence, FenceMiddleware};
use crate::stack::limit::RequestLimiter;
use crate::stack::wire::ServiceWire;
use crate::stack::{Next, layer, over};

/// Number of requests. Miri is a thousand times slower; it should explore many orders of a few requests instead of one
/// order of many.
const ROUNDS: u32 = if cfg!(miri) { 3 } else { 1_000 };

/// Turns a hang into a failure. No test depends on speed; under Miri, time advances with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Runs `future` on this thread.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("every wakeup arrives within the limit")
}

/// Whether a request has arrived at the wire.
#[derive(Clone, Default)]
struct Arrived(Arc<AtomicBool>);

/// Returns a fence in front of a wire that responds after other tasks were polled.
fn stack(env: &Env, fence: Arc<dyn Fence>) -> Next {
    let service = service_fn(|request: Request<Body>| async move {
        let arrived =
            request.extensions().get::<Arrived>().expect("every request has this extension").clone();
        arrived.0.store(true, Ordering::Relaxed);
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(Response::new(full(Bytes::new())))
    });
    let wire = Arc::new(ServiceWire(over(service)));
    let innermost = FenceMiddleware {
        env: env.clone(),
        fence: Some(Arc::new(OpenFence)),
        wire,
        unacknowledged_timeout: Duration::from_secs(5),
        server_allowance: Duration::ZERO,
    };
    layer(AttachFence(fence), Arc::new(innermost))
}

#[test]
fn write_racing_the_fence_reports_not_sent_only_when_not_sent() {
    let env = Env::virtual_time(1);
    let fence = TestFence::new(FenceState::Open);
    let (next, begun) = (stack(&env, Arc::clone(&fence) as _), Barrier::new(3));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                wait(&env, async {
                    begun.wait();
                    for _ in 0..ROUNDS {
                        write(&next).await;
                    }
                });
            });
        }
        scope.spawn(|| {
            begun.wait();
            for _ in 0..ROUNDS {
                fence.state.set(FenceState::Closed);
                fence.state.set(FenceState::Open);
            }
        });
    });
    let arrived = wait(&env, write(&next));
    assert!(arrived, "the fence is open at the end");
}

/// Sends a write and returns whether it was answered.
async fn write(next: &Next) -> bool {
    let arrived = Arrived::default();
    let request = Request::post("/api/v1/namespaces/web/configmaps").extension(arrived.clone());
    let answer = next.send(Box::new(request.body(Body::empty()).expect("a valid request"))).await;
    let came = arrived.0.load(Ordering::Relaxed);
    match answer.map_err(|error| *error.downcast::<FencedError>().expect("an error of the fence")) {
        Ok(_) => assert!(came, "an answered request has arrived"),
        Err(FencedError::NotSent) => assert!(!came, "the request has not arrived"),
        // The request might have arrived.
        Err(FencedError::Interrupted) => return false,
    }
    came
}

#[test]
fn rate_limiter_admits_all_requests_of_several_threads_in_turn() {
    let env = Env::virtual_time(1);
    let (limiter, begun) = (RequestLimiter::new(env.clone(), 1_000.0, 1), env.now());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                wait(&env, async {
                    for _ in 0..ROUNDS.div_ceil(20) {
                        limiter.admit().await;
                    }
                });
            });
        }
    });
    let least = Duration::from_millis(u64::from(3 * ROUNDS.div_ceil(20) - 1));
    assert!(env.now().saturating_duration_since(begun) >= least, "the limit was exceeded");
}
