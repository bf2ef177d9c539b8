//! Keys from a stream: a message queue, a socket, the file system.
//!
//! A stream that ends, or panics, is opened again after a back-off, which begins at one second, doubles up to a minute,
//! and begins again once a key has come. It runs while its controller does, and what it brings counts as a change.

use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use windlass_env::catch_panic;
use windlass_object::ObjectKey;

use crate::enqueue::history::EnqueueReason;
use crate::enqueue::source::{Call, Means};

/// How long the first wait is before a stream is opened again, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Queues what the streams bring that `open` opens, one after the other.
pub(crate) async fn follow(open: Call<BoxStream<'static, ObjectKey>>, means: Means) {
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
            Ok(()) => tracing::debug!(task = means.name, keys, "the stream has ended: it is opened again"),
            Err(message) => means.panicked(&message),
        }
        if keys > 0 {
            wait = first;
        }
        means.cx.env().sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}
