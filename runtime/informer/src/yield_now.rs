//! Cooperation with other tasks, as a separate module: `tests/models` replaces it.

use std::future::poll_fn;
use std::task::Poll;

/// Lets other tasks run before the caller continues. Writers and handlers call it in long loops so that they do not
/// occupy a thread.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
