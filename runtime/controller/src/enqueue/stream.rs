//! Enqueues keys from a stream, such as a message queue, a socket or the file system.
//!
//! A stream that ends or panics is reopened after a backoff, which starts at one second, doubles up to one minute, and
//! is reset when a stream has yielded a key. A stream runs while its controller runs. Its keys count as changes.

use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use windlass_env::catch_panic;
use windlass_object::ObjectKey;

use crate::enqueue::history::EnqueueReason;
use crate::enqueue::source::{Call, SourceContext};

/// The initial and the maximum backoff before a stream is reopened.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Enqueues the keys of the streams that `open` returns, one stream after another.
pub(crate) async fn follow(open: Call<BoxStream<'static, ObjectKey>>, means: SourceContext) {
    let (first, longest) = BACK_OFF;
    let queue = means.queue.of(EnqueueReason::Stream);
    let mut wait = first;
    loop {
        let mut keys = 0_u64;
        let read = async {
            let mut stream = open(means.cx.clone());
            while let Some(key) = stream.next().await {
                keys += 1;
                queue.add(key);
            }
        };
        match catch_panic(read).await {
            Ok(()) => tracing::debug!(task = means.name, keys, "stream ended; reopening it"),
            Err(message) => means.panicked(&message),
        }
        if keys > 0 {
            wait = first;
        }
        means.cx.env().sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}
