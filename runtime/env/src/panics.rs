//! Converts panics into values with their message.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

/// Returns the output of `future`, or the message of the panic that ended it.
///
/// The caller asserts unwind safety: state that `future` shares must stay usable after a panic, so users of its locks
/// ignore poisoning.
///
/// # Errors
/// The panic message. The panic hook has already run and reported it.
///
/// # Cancel safety
/// Same as `future`.
pub async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| message(payload.as_ref()))
}

/// Returns the result of `f`, or the message of the panic that ended it; see [`catch_panic`].
///
/// # Errors
/// The panic message.
pub fn catch_panic_sync<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| message(payload.as_ref()))
}

/// Returns the message of a panic payload. `panic!` passes a `&str` or a `String`; other payloads have no message.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
