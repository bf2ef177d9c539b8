//! The shared state of one controller, from its setup until after its end. Its workers, its handlers, `ShardHandoff`
//! and `explain` use it.

pub(crate) mod activity;
pub(crate) mod denials;
pub(crate) mod lifecycle;
pub(crate) mod reconcile_ids;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_env::{Env, TaskGroup};
use windlass_metrics::ReconcileMetrics;

use crate::consistency::caches::{Cache, check_synced};
use crate::consistency::read_your_writes::ReadYourWritesBarrier;
use crate::consistency::stale_skips::StaleSkips;
use crate::core::activity::WorkerActivity;
use crate::core::denials::DenialLog;
use crate::core::lifecycle::ControllerPhase;
use crate::core::reconcile_ids::ReconcileIds;
use crate::descriptor::Descriptor;
use crate::enqueue::keys::Keys;
use crate::enqueue::poll::Polls;
use crate::enqueue::source::{Source, SourceContext, TaskContext};
use crate::enqueue::watches::DynamicWatches;
use crate::enqueue::wiring::HandlerContext;

/// The shared state of one controller. Idle controllers have no cost.
pub(crate) struct Core {
    pub(crate) descriptor: Descriptor,
    pub(crate) env: Env,
    pub(crate) metrics: ReconcileMetrics,
    pub(crate) policy: Policy,
    pub(crate) keys: Keys,
    pub(crate) barrier: ReadYourWritesBarrier,
    pub(crate) stale_skips: StaleSkips,
    /// The caches that the start waits for.
    pub(crate) start_caches: Vec<Cache>,
    pub(crate) watches: DynamicWatches,
    /// Connects handlers, triggers and timers to the queue.
    pub(crate) handler_context: HandlerContext,
    pub(crate) activity: WorkerActivity,
    pub(crate) denials: DenialLog,
    pub(crate) reconcile_ids: ReconcileIds,
    /// Canceled when the workers must stop.
    pub(crate) stop: CancellationToken,
    pub(crate) phase: PhaseCell,
    pub(crate) polls: Polls,
    /// Tasks of reconciles that were dropped.
    pub(crate) dropped_tasks: TaskGroup,
}

/// Concurrency, retries and time limits of reconciles.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) workers: usize,
    pub(crate) max_retries: Option<u32>,
    pub(crate) reconcile_timeout: Option<Duration>,
}

/// The lifecycle phase of the controller.
pub(crate) struct PhaseCell {
    current: Mutex<ControllerPhase>,
    /// Whether the start has begun, which also starts the controller's own sources.
    begun: AtomicBool,
}

impl Core {
    pub(crate) fn name(&self) -> &'static str {
        self.descriptor.name
    }

    /// Runs `source` in a named task until the controller is stopped.
    pub(crate) fn run_source(
        &self,
        source: Source,
        cx: &TaskContext,
    ) -> (String, impl Future<Output = ()> + Send + 'static + use<>) {
        let name = format!("{} {}", self.name(), source.name);
        let (queue, panics) = (self.handler_context.queue.clone(), self.handler_context.panics.clone());
        let run = (source.run)(SourceContext {
            cx: cx.clone(),
            name: name.clone(),
            queue,
            background: self.handler_context.background,
            panics,
        });
        let stop = self.stop.clone();
        (name, async move {
            stop.run_until_cancelled(run).await;
        })
    }

    /// Returns the missing caches and the causes, or `None` if the start waits for nothing.
    pub(crate) fn missing_caches(&self) -> Option<String> {
        let caches = check_synced(&self.expected()).err().map(|behind| behind.to_string());
        let polls = if self.phase.has_begun() { self.polls.unanswered() } else { Vec::new() };
        let lacking: Vec<String> = caches.into_iter().chain(polls).collect();
        (!lacking.is_empty()).then(|| lacking.join("; "))
    }

    /// Returns the caches that should be synced by now. The controller's own sources start with the controller, so a
    /// standby replica does not wait for them.
    pub(crate) fn expected(&self) -> Vec<Cache> {
        if self.phase.has_begun() { self.start_caches.clone() } else { self.barrier.caches.all() }
    }
}

impl PhaseCell {
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
        self.set(ControllerPhase::WaitingForCaches);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, phase: ControllerPhase) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(crate) fn get(&self) -> ControllerPhase {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for PhaseCell {
    fn default() -> Self {
        Self { current: Mutex::new(ControllerPhase::NotStarted), begun: AtomicBool::new(false) }
    }
}
