//! The part of an informer behind its lock: the writer of the store, and those who receive what it writes.

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
use crate::erased::Object;
use crate::error::UnsyncedReason;
use crate::handler::Handler;
use crate::indexer::{IndexFunction, IndexId};
use crate::processor::{Listener, Processor, Replay};
use crate::settings::Transform;
use crate::store::{Applied, Change, Snapshot, StoreWriter};

/// How many objects of a snapshot are prepared at once for a handler that is told all of them.
const CHUNK: usize = 64;

pub(crate) struct InformerState {
    pub(crate) writer: StoreWriter<Object>,
    /// The indexes that can be shared, by their functions, and how many share each.
    pub(super) shared_indexes: BTreeMap<TypeId, (IndexId, usize)>,
    pub(super) transform: Option<Transform>,
    pub(super) processor: Processor<Object>,
    /// How many handlers there have been.
    pub(super) handlers: u64,
    pub(super) phase: Phase,
}

/// The end of an informer's tasks, for any number of waiters.
pub(super) type ShutdownFuture = Shared<BoxFuture<'static, ()>>;

/// A handler that has no task yet.
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
    /// Why there is no list, if that is for want of tasks.
    pub(super) fn lag(&self) -> Option<UnsyncedReason> {
        match self {
            Phase::Created(_) => Some(UnsyncedReason::NotStarted),
            Phase::Stopped(_) => Some(UnsyncedReason::Stopped),
            Phase::Running(_) => None,
        }
    }

    /// Moves to the last phase. What it returns ends when every task has; with it the handlers that had none.
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
    /// Lets a handler in. What it is told from here on is what follows the snapshot it is given: no gap, no
    /// overlap.
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
                Applied::Changes(changes) => self.tell(changes),
                Applied::Resync(audience) => self.look_again(audience),
            }
        }
        if self.writer.snapshot().progress().synced {
            self.processor.initial_list_ended();
        }
    }

    /// Undoes one use of each of these indexes, and removes those without users. Returns their functions, for the caller
    /// to drop under no lock.
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

    fn look_again(&mut self, audience: ResyncTarget) {
        let snapshot = self.writer.snapshot();
        self.processor.resync(audience, || replay(Arc::clone(&snapshot)));
    }

    fn tell(&mut self, changes: Vec<Change<Object>>) {
        for Change { key, uid, event } in changes {
            self.processor.distribute(&key, uid.as_ref(), &event);
        }
    }
}

/// The objects of a snapshot in the order of their keys, each made not long before it is told.
fn replay(snapshot: Arc<Snapshot<Object>>) -> Replay<Object> {
    let mut told: Option<ObjectKey> = None;
    let chunks = std::iter::from_fn(move || {
        let untold = (told.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let rest = snapshot.objects().range::<_, ObjectKey>(untold).take(CHUNK);
        let (keys, objects): (Vec<_>, Vec<_>) = rest.map(|(key, object)| (key, object.clone())).unzip();
        told = keys.last().map(|key| (*key).clone());
        told.is_some().then_some(objects)
    });
    Box::new(chunks.flatten())
}
