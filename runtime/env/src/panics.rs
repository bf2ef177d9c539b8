//! Panics turned into values, message and all.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

/// The output of `future`, or the message of the panic that ended it.
///
/// Unwind safety is asserted for the caller: state that `future` shares must stay usable after a panic, so locks
/// around it treat poison as no obstacle.
///
/// # Errors
/// The panic's message. The panic hook has already run and reported it.
///
/// # Cancel safety
/// As that of `future`.
pub async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| message(payload.as_ref()))
}

/// The result of `f`, or the message of the panic that ended it; see [`catch_panic`].
///
/// # Errors
/// The panic's message.
pub fn catch_panic_sync<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| message(payload.as_ref()))
}

/// What a panic's payload says: `panic!` carries a `&str` or a `String`; anything else has no words.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
