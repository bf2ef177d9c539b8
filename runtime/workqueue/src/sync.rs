//! Re-exports the lock types of the crate. `tests/models` compiles this crate's modules again with the types of loom.

pub(crate) use std::sync::{Mutex, MutexGuard};
