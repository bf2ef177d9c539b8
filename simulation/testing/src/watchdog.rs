//! A thread that looks on from outside of virtual time, for the one thing nobody inside can see: a poll that never
//! returns.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use windlass_env::PollMonitor;

/// How long, in real time, nothing may be polled. A single poll of a sound simulation takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches over a run. `what` is printed when it hangs.
    pub(crate) fn over(vigil: PollMonitor, what: String) -> Self {
        let (over, ended) = mpsc::channel::<()>();
        let watch = move || {
            let mut polled = vigil.polled();
            while ended.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let now = vigil.polled();
                if now == polled {
                    give_up(&vigil, &what);
                }
                polled = now;
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it only looks on; nothing in the simulation waits for it"
        )]
        let thread = std::thread::spawn(watch);
        Watchdog { over: Some(over), thread: Some(thread) }
    }
}

/// A thread that never comes back cannot be ended: only its process can, and that is a test's.
fn give_up(vigil: &PollMonitor, what: &str) -> ! {
    let task = vigil.polling();
    #[expect(clippy::print_stderr, reason = "the last words of a test that hangs")]
    {
        eprintln!("a poll of the task {task:?} did not return within {TIMEOUT:?} of real time, in\n{what}");
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
