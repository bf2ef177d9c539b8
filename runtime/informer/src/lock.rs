//! The lock of the fan-out, under a name that the models can swap: `tests/models` compiles the fan-out once more with
//! loom's in its place.

pub(crate) use std::sync::{Mutex, MutexGuard};
