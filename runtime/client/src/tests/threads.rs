//! What requests on several threads share: the fence before the wire, and the limiter's queue. No connection, no TLS and no kube client, so `cargo xtask miri` can interpret these tests: it objects to a race,
//! to memory that is used after it was freed, and to a wakeup that is lost, after which every thread waits.

use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::FencedError;
use crate::stack::fence::{AttachFence, FenceMiddleware};
use crate::stack::limit::RequestLimiter;
use crate::stack::wire::ServiceWire;
use crate::stack::{Next, before, over};

/// How many requests there are. An interpreter takes a thousand times as long; it is to see many orders of a few requests
/// and not one order of many.
const ROUNDS: u32 = if cfg!(miri) { 3 } else { 1_000 };

/// Turns a hang into a failure. Nothing depends on speed; interpreted time continues with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Waits on this thread.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

/// Whether a request has come to the wire.
#[derive(Clone, Default)]
struct Arrived(Arc<AtomicBool>);

/// Behind a fence, a wire that answers after other tasks had their turn.
fn stack(env: &Env, fence: Arc<dyn Fence>) -> Next {
    let service = service_fn(|request: Request<Body>| async move {
        let arrived = request.extensions().get::<Arrived>().expect("it is told apart").clone();
        arrived.0.store(true, Ordering::Relaxed);
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(Response::new(full(Bytes::new())))
    });
    let wire = Arc::new(ServiceWire(over(service)));
    let gate = FenceMiddleware { env: env.clone(), fence: Some(Arc::new(OpenFence)), wire };
    before(AttachFence(fence), Arc::new(gate))
}

#[test]
fn write_that_races_the_end_of_its_fence_is_answered_or_said_not_to_be_sent_only_if_it_was_not() {
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

/// Sends a write; whether it was answered.
async fn write(next: &Next) -> bool {
    let arrived = Arrived::default();
    let request = Request::post("/api/v1/namespaces/web/configmaps").extension(arrived.clone());
    let answer = next.send(request.body(Body::empty()).expect("a request")).await;
    let came = arrived.0.load(Ordering::Relaxed);
    match answer.map_err(|error| *error.downcast::<FencedError>().expect("the fence's")) {
        Ok(_) => assert!(came, "who answered it?"),
        Err(FencedError::NotSent) => assert!(!came, "it was sent"),
        // It may have come, and may not.
        Err(FencedError::Interrupted) => return false,
    }
    came
}

#[test]
fn requests_of_several_threads_pass_a_limiter_one_after_another_and_all_of_them() {
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
