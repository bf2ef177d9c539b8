//! The lock of the fan-out, as a separate module: `tests/models` compiles the fan-out with loom's lock instead.

pub(crate) use std::sync::{Mutex, MutexGuard};
