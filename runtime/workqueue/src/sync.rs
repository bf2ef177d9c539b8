//! The lock of the queue: the standard library's, but a thread that finds it taken retries before it blocks. Most calls
//! hold it for less than 100 ns; to block and wake a thread takes about 5 µs.
//!
//! `tests/models` compiles this crate's modules again with the types of loom.

use std::hint::spin_loop;
use std::sync::{LockResult, TryLockError};
use std::thread::yield_now;

pub(crate) use std::sync::MutexGuard;

/// Number of retries after pauses of 1, 2, 4, … iterations, 30 to 90 µs in total, depending on
/// the processor. Pauses that grow let the other thread keep
/// the data in its cache for many operations; without them each operation moves it. Measured by `cargo xtask bench
/// queue`.
const PAUSES: u32 = 11;

/// Later retries, after other threads of this processor have run: the one with the lock can be among them.
const YIELDS: u32 = 4;

pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.try_lock().unwrap_or_else(|| self.lock_taken())
    }

    /// Returns `None` if another thread has the lock.
    #[inline]
    fn try_lock(&self) -> Option<LockResult<MutexGuard<'_, T>>> {
        match self.0.try_lock() {
            Ok(guard) => Some(Ok(guard)),
            Err(TryLockError::Poisoned(error)) => Some(Err(error)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[cold]
    fn lock_taken(&self) -> LockResult<MutexGuard<'_, T>> {
        for retry in 0..PAUSES + YIELDS {
            if retry < PAUSES {
                (0..1 << retry).for_each(|_| spin_loop());
            } else {
                yield_now();
            }
            if let Some(locked) = self.try_lock() {
                return locked;
            }
        }
        self.0.lock()
    }
}
