//! Watchdog thread outside virtual time. It detects a poll that never returns, which no simulated task can detect.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use windlass_env::PollMonitor;

/// Maximum real time without a poll. A single poll of a correct simulation takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Watchdog that is active until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts a watchdog for a run. `what` is printed if the run hangs.
    pub(crate) fn over(poll_monitor: PollMonitor, what: String) -> Self {
        let (over, ended) = mpsc::channel::<()>();
        let watch = move || {
            let mut polled = poll_monitor.polled();
            while ended.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let now = poll_monitor.polled();
                if now == polled {
                    give_up(&poll_monitor, &what);
                }
                polled = now;
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it only observes; nothing in the simulation waits for it"
        )]
        let thread = std::thread::spawn(watch);
        Watchdog { over: Some(over), thread: Some(thread) }
    }
}

/// Aborts the process: a thread that never returns cannot be stopped in another way.
fn give_up(poll_monitor: &PollMonitor, what: &str) -> ! {
    let task = poll_monitor.polling();
    #[expect(clippy::print_stderr, reason = "reports a test that hangs")]
    {
        eprintln!("poll of task {task:?} did not return within {TIMEOUT:?} of real time, in\n{what}");
    }
    std::process::abort();
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
