//! The part of an informer behind its lock: the writer of the store and the receivers of its changes.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Shared};
use windlass_env::Task;
use windlass_object::ObjectKey;

use crate::delta_fifo::ResyncTarget;
use crate::error::UnsyncedReason;
use crate::handler::Handler;
use crate::indexer::{IndexFunction, IndexId};
use crate::object::Object;
use crate::processor::{Listener, Processor, Replay};
use crate::settings::Transform;
use crate::store::{Applied, Change, Snapshot, StoreWriter};

/// The number of objects that are prepared together when a handler receives a snapshot.
const CHUNK: usize = 64;

pub(crate) struct InformerState {
    pub(crate) writer: StoreWriter<Object>,
    /// The shareable indexes by function, with the number of users of each.
    pub(super) shared_indexes: BTreeMap<TypeId, (IndexId, usize)>,
    pub(super) transform: Option<Transform>,
    pub(super) processor: Processor<Object>,
    /// The number of handlers added so far.
    pub(super) handlers: u64,
    pub(super) phase: Phase,
}

/// The completion of the tasks of an informer, for any number of waiters.
pub(super) type ShutdownFuture = Shared<BoxFuture<'static, ()>>;

/// A handler without a task.
pub(super) struct PendingHandler {
    pub(super) listener: Arc<Listener<Object>>,
    pub(super) handler: Box<dyn Handler<Object>>,
    pub(super) resync: Option<Duration>,
}

pub(super) enum Phase {
    /// Not started: these handlers have no tasks yet.
    Created(Vec<PendingHandler>),
    Running(Vec<Task<()>>),
    Stopped(ShutdownFuture),
}

impl Phase {
    /// Returns why there is no list, if the informer has no tasks.
    pub(super) fn unsynced_reason(&self) -> Option<UnsyncedReason> {
        match self {
            Phase::Created(_) => Some(UnsyncedReason::NotStarted),
            Phase::Stopped(_) => Some(UnsyncedReason::Stopped),
            Phase::Running(_) => None,
        }
    }

    /// Moves to the last phase. Returns a future that completes when all tasks have stopped, and the handlers without a
    /// task.
    pub(super) fn stop(&mut self) -> (ShutdownFuture, Vec<PendingHandler>) {
        let mut never_ran = Vec::new();
        let ended: BoxFuture<'static, ()> = match std::mem::replace(self, Phase::Created(Vec::new())) {
            Phase::Stopped(ended) => ended.boxed(),
            Phase::Created(waiting) => {
                never_ran = waiting;
                future::ready(()).boxed()
            }
            Phase::Running(tasks) => async {
                for task in tasks {
                    // A panic in a task has been reported under its name by the Env.
                    let _ended = task.await;
                }
            }
            .boxed(),
        };
        let ended = ended.shared();
        *self = Phase::Stopped(ended.clone());
        (ended, never_ran)
    }
}

impl InformerState {
    /// Adds a handler. It receives a snapshot and then every later change: no gap, no overlap.
    pub(super) fn attach(&mut self, listener: &Arc<Listener<Object>>, task: Option<Task<()>>) {
        if let (Phase::Running(tasks), Some(task)) = (&mut self.phase, task) {
            tasks.retain(|task| !task.is_finished());
            tasks.push(task);
        }
        let snapshot = self.writer.snapshot();
        if !snapshot.objects().is_empty() {
            listener.replay(replay(Arc::clone(&snapshot)));
        }
        if snapshot.progress().synced {
            listener.initial_list_ended();
        }
        self.processor.add(Arc::clone(listener));
    }

    pub(super) fn distribute(&mut self, applied: Applied<Object>) {
        self.processor.forget_removed();
        if !self.processor.is_empty() {
            match applied {
                Applied::Filled => self.fill(),
                Applied::Changes(changes) => self.distribute_changes(changes),
                Applied::Resync(target) => self.resync(target),
            }
        }
        if self.writer.snapshot().progress().synced {
            self.processor.initial_list_ended();
        }
    }

    /// Releases one use of each of these indexes and removes indexes without users. Returns their functions, for the
    /// caller to drop without a lock.
    pub(super) fn remove_indexes(&mut self, ids: Vec<IndexId>) -> Vec<IndexFunction<Object>> {
        ids.into_iter().filter_map(|id| self.remove_index(id)).collect()
    }

    fn remove_index(&mut self, id: IndexId) -> Option<IndexFunction<Object>> {
        let shared = self.shared_indexes.iter_mut().find(|(_, (shared, _))| *shared == id);
        if let Some((function, (_, users))) = shared {
            let function = *function;
            *users -= 1;
            if *users > 0 {
                return None;
            }
            self.shared_indexes.remove(&function);
        }
        self.writer.remove_index(id)
    }

    fn fill(&mut self) {
        let snapshot = self.writer.snapshot();
        self.processor.fill(|| replay(Arc::clone(&snapshot)));
    }

    fn resync(&mut self, target: ResyncTarget) {
        let snapshot = self.writer.snapshot();
        self.processor.resync(target, || replay(Arc::clone(&snapshot)));
    }

    fn distribute_changes(&mut self, changes: Vec<Change<Object>>) {
        for Change { key, uid, event } in changes {
            self.processor.distribute(&key, uid.as_ref(), &event);
        }
    }
}

/// Returns the objects of a snapshot in the order of their keys, prepared shortly before their delivery.
fn replay(snapshot: Arc<Snapshot<Object>>) -> Replay<Object> {
    let mut last_key: Option<ObjectKey> = None;
    let chunks = std::iter::from_fn(move || {
        let remaining = (last_key.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let rest = snapshot.objects().range::<_, ObjectKey>(remaining).take(CHUNK);
        let (keys, objects): (Vec<_>, Vec<_>) = rest.map(|(key, object)| (key, object.clone())).unzip();
        last_key = keys.last().map(|key| (*key).clone());
        last_key.is_some().then_some(objects)
    });
    Box::new(chunks.flatten())
}
