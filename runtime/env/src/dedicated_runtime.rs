//! A dedicated thread for tasks that other tasks must not delay.
//!
//! Tasks of one runtime share its threads. If all threads run code that does not yield, no other task is polled and no
//! timer fires. Time-critical tasks, above all lease renewal, therefore run on a dedicated thread with its own runtime.
//! Virtual time has one thread for everything.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::Env;
use crate::tasks::Task;

/// A runtime on a dedicated thread. Clones refer to the same thread. When the last clone is dropped, the thread stops
/// and its remaining tasks are dropped.
#[derive(Clone)]
pub struct DedicatedRuntime {
    env: Env,
    thread: Option<Arc<Thread>>,
}

/// A thread with a runtime. Dropping this value stops the thread.
struct Thread {
    runtime: Handle,
    end: Arc<Notify>,
}

impl Env {
    /// Starts a thread called `name` for tasks that other tasks must not delay. Under virtual time, returns the current
    /// runtime instead.
    ///
    /// # Errors
    /// If the operating system cannot create the thread, or its timer and I/O driver.
    pub fn dedicated_runtime(&self, name: &str) -> io::Result<DedicatedRuntime> {
        let thread = if self.clock.is_virtual() { None } else { Some(Arc::new(Thread::start(name)?)) };
        Ok(DedicatedRuntime { env: self.clone(), thread })
    }
}

impl DedicatedRuntime {
    /// Like [`Env::spawn`], but on the dedicated thread.
    ///
    /// # Panics
    /// Under virtual time, outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.enter(|| self.env.spawn(name, future))
    }

    /// Calls `make` inside the dedicated runtime, so that tasks it spawns run there, for example a client's own task.
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
        // The permit is stored if the thread does not wait yet.
        self.end.notify_one();
    }
}

impl fmt::Debug for DedicatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedicatedRuntime").field("own_thread", &self.thread.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    // parity: renewals-next-workers-scheduler
    #[tokio::test(flavor = "current_thread")]
    async fn dedicated_runtime_polls_tasks_and_timers_while_main_is_blocked() {
        let env = Env::system("aside");
        let dedicated = env.dedicated_runtime("aside").expect("a thread");
        let done = Arc::new(AtomicBool::new(false));
        let (sleeper, flag) = (env.clone(), Arc::clone(&done));
        let task = dedicated.spawn("sleeper", async move {
            for _ in 0..3 {
                sleeper.sleep(Duration::from_millis(1)).await;
            }
            flag.store(true, Ordering::Release);
        });
        // Never yields, so that the main runtime polls no other task.
        let begun = env.now();
        while !done.load(Ordering::Acquire) {
            assert!(
                env.now().saturating_duration_since(begun) < Duration::from_secs(60),
                "the dedicated task is not polled"
            );
            std::hint::spin_loop();
        }
        assert_eq!(task.await, Ok(()));
        env.wait_for_tasks().await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn dropping_dedicated_runtime_aborts_its_tasks() {
        let env = Env::system("aside");
        let dedicated = env.dedicated_runtime("aside").expect("a thread");
        let task = dedicated.spawn("for ever", std::future::pending::<()>());
        drop(dedicated);
        assert_eq!(task.await, Err(crate::TaskError::Aborted));
        env.wait_for_tasks().await;
    }

    #[tokio::test(start_paused = true)]
    async fn dedicated_runtime_is_current_runtime_under_virtual_time() {
        let env = Env::virtual_time(1);
        let dedicated = env.dedicated_runtime("aside").expect("no thread is needed");
        assert!(dedicated.thread.is_none());
        let (sleeper, begun) = (env.clone(), env.now());
        let task = dedicated.spawn("sleeper", async move { sleeper.sleep(Duration::from_secs(3600)).await });
        assert_eq!(task.await, Ok(()));
        assert_eq!(env.now().saturating_duration_since(begun), Duration::from_secs(3600));
    }
}
