//! The tasks of a running informer: the processing loop, and one task per handler.

use std::pin::pin;
use std::sync::{Arc, PoisonError};

use futures_util::future;
use windlass_env::Task;
use windlass_object::ObjectKey;

use super::Informer;
use super::locked::PendingHandler;
use crate::delta_fifo::Batch;
use crate::handler::Event;
use crate::object::Object;
use crate::store::{Applied, PartitionContents, Snapshot};
use crate::yield_now::yield_now;

/// A callback that receives the key of a changed object.
pub(crate) type ChangeObserver = Arc<dyn Fn(&ObjectKey) + Send + Sync>;

impl Informer {
    pub(super) fn spawn_processing_loop(self: &Arc<Self>) -> Task<()> {
        let (inner, alive) = (Arc::clone(self), self.core_task_died.clone().drop_guard());
        self.spawn("processing loop", async move {
            let _alive = alive;
            let known = PartitionContents { store: &inner.store, head: inner.codec.head };
            while inner.fifo.pop(&known, |batch| inner.process(batch)).await.is_ok() {
                // This wakes another thread of tokio, which can then drive timers and I/O while a handler blocks this
                // one.
                yield_now().await;
            }
            // Readers can keep the objects, but the cache no longer follows its source.
            inner.objects.set(0);
            inner.queued.set(0);
            inner.budget.close();
        })
    }

    /// Spawns the task of a handler, with its own resync timer: relists do not restart the timer.
    pub(super) fn spawn_handler(&self, waiting: PendingHandler) -> Task<()> {
        let PendingHandler { listener, handler, resync } = waiting;
        let name = format!("handler {}", listener.name());
        let (env, fifo, target) = (self.env.clone(), Arc::clone(&self.fifo), listener.resync_target());
        let delivery = listener.run(handler);
        self.spawn(&name, async move {
            let Some(period) = resync else { return delivery.await };
            let ticks = async {
                loop {
                    env.sleep(period).await;
                    fifo.resync(target);
                }
            };
            future::select(pin!(delivery), pin!(ticks)).await;
        })
    }

    /// Drops the decoded forms of deleted objects: the store no longer returns them.
    fn forget_deleted(&self, applied: &Applied<Object>) {
        let Applied::Changes(changes) = applied else { return };
        let deleted = changes.iter().filter(|change| matches!(change.event, Event::Deleted { .. }));
        deleted.for_each(|change| self.codec.forget(&change.key));
    }

    /// Processes one batch: first the store, then the waiters for versions, then the handlers.
    fn process(&self, batch: Batch<Object>) {
        let began = self.env.now();
        let changed;
        // Dropped without a lock, because dropping it runs user code.
        let _removed;
        {
            let mut state = self.lock();
            _removed = state.remove_indexes(self.take_retired());
            let panics = state.writer.index_panics();
            let applied = state.writer.apply(batch);
            self.metrics.handler_panics.inc_by(state.writer.index_panics() - panics);
            self.publish_progress(&state.writer.snapshot());
            changed = self.observed_keys(&applied, &state.writer.snapshot());
            self.forget_deleted(&applied);
            state.distribute(applied);
        }
        self.notify_observers(&changed);
        self.queued.set(count(self.fifo.len()));
        let took = self.env.now().saturating_duration_since(began);
        self.metrics.processing_latency.observe(took.as_secs_f64());
    }

    fn publish_progress(&self, snapshot: &Snapshot<Object>) {
        self.objects.set(count(snapshot.objects().len()));
        let progress = snapshot.progress();
        if progress.is_unchanged_since(&self.progress.get()) {
            return;
        }
        if let Some(version) = &progress.version {
            self.metrics.reached(version.as_str());
        }
        if progress.epoch != self.progress.get().epoch {
            self.reflectors.distrust_old_epochs(progress);
        }
        self.progress.set(progress.clone());
    }

    /// Returns the changed keys for the observers, if there are observers.
    fn observed_keys(&self, applied: &Applied<Object>, snapshot: &Snapshot<Object>) -> Vec<ObjectKey> {
        if self.observers.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Vec::new();
        }
        match applied {
            Applied::Resync(_) => Vec::new(),
            Applied::Filled => snapshot.objects().keys().cloned().collect(),
            Applied::Changes(changes) => changes.iter().map(|change| change.key.clone()).collect(),
        }
    }

    fn notify_observers(&self, changed: &[ObjectKey]) {
        let observers = self.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (observer, key) in observers.iter().flat_map(|it| changed.iter().map(move |key| (it, key))) {
            observer(key);
        }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
