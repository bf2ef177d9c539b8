//! Its own thread for tasks that nothing else may delay.
//!
//! Tasks of one runtime share its threads: where all of them run code that never awaits, no other task gets a turn and
//! no timer fires. What must be done in time whatever else continues (renewing a lease, above all) is therefore put
//! aside. Under virtual time there is one thread, and aside is where everybody is.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::Env;
use crate::tasks::Task;

/// A place for tasks next to those of the runtime. Clones are the same place; it is given up with the last of them, and
/// what still runs there is then dropped where it stands.
#[derive(Clone)]
pub struct DedicatedRuntime {
    env: Env,
    thread: Option<Arc<Thread>>,
}

/// A thread with a runtime, which ends when this is dropped.
struct Thread {
    runtime: Handle,
    end: Arc<Notify>,
}

impl Env {
    /// A thread called `name` for tasks that the load of all others must not delay; under virtual time the runtime that
    /// everything runs in.
    ///
    /// # Errors
    /// When the operating system grants no thread, or what its timers and sockets need.
    pub fn dedicated_runtime(&self, name: &str) -> io::Result<DedicatedRuntime> {
        let thread = if self.clock.is_virtual() { None } else { Some(Arc::new(Thread::start(name)?)) };
        Ok(DedicatedRuntime { env: self.clone(), thread })
    }
}

impl DedicatedRuntime {
    /// Like [`Env::spawn`], on this thread.
    ///
    /// # Panics
    /// Under virtual time, outside a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.enter(|| self.env.spawn(name, future))
    }

    /// Calls `make`, and what it spawns runs on this thread: a client that keeps its own task, for instance.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _inside = self.thread.as_ref().map(|thread| thread.runtime.enter());
        make()
    }
}

impl Thread {
    fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let ended = Arc::clone(&end);
        let run = move || runtime.block_on(ended.notified());
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, end })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Kept for the thread if it has not begun to wait.
        self.end.notify_one();
    }
}

impl fmt::Debug for DedicatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("own_thread", &self.thread.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    // parity: renewals-next-workers-scheduler
    #[tokio::test(flavor = "current_thread")]
    async fn task_aside_has_its_turns_and_timers_while_the_runtime_is_blocked() {
        let env = Env::system("aside");
        let aside = env.dedicated_runtime("aside").expect("a thread");
        let done = Arc::new(AtomicBool::new(false));
        let (sleeper, told) = (env.clone(), Arc::clone(&done));
        let task = aside.spawn("sleeper", async move {
            for _ in 0..3 {
                sleeper.sleep(Duration::from_millis(1)).await;
            }
            told.store(true, Ordering::Release);
        });
        // Never awaits, so that nothing else runs here.
        let begun = env.now();
        while !done.load(Ordering::Acquire) {
            assert!(env.now().saturating_duration_since(begun) < Duration::from_secs(60), "it has no turn");
            std::hint::spin_loop();
        }
        assert_eq!(task.await, Ok(()));
        env.wait_for_tasks().await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_still_aside_when_the_place_is_given_up_is_dropped_and_ends_like_any_task() {
        let env = Env::system("aside");
        let aside = env.dedicated_runtime("aside").expect("a thread");
        let task = aside.spawn("for ever", std::future::pending::<()>());
        drop(aside);
        assert_eq!(task.await, Err(crate::TaskError::Aborted));
        env.wait_for_tasks().await;
    }

    #[tokio::test(start_paused = true)]
    async fn under_virtual_time_aside_is_where_everybody_is() {
        let env = Env::virtual_time(1);
        let aside = env.dedicated_runtime("aside").expect("no thread is needed");
        assert!(aside.thread.is_none());
        let (sleeper, begun) = (env.clone(), env.now());
        let task = aside.spawn("sleeper", async move { sleeper.sleep(Duration::from_secs(3600)).await });
        assert_eq!(task.await, Ok(()));
        assert_eq!(env.now().saturating_duration_since(begun), Duration::from_secs(3600));
    }
}
