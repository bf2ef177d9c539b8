//! The one lock there is, under a name that the models can swap: `tests/models` compiles this crate's modules once
//! more with loom's in its place.

pub(crate) use std::sync::{Mutex, MutexGuard};
