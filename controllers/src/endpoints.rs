//! The Endpoints controller: maintains the addresses of the pods that each Service selects.
//!
//! Watches Services, pods and Endpoints; writes Endpoints. The controller ignores Services without a selector or with
//! an external name, because other clients write their Endpoints. It deletes Endpoints without a Service, regardless of
//! their creator. At its start it also deletes those that remained while no controller was running.
//!
//! Of the events of Endpoints it processes only deletions, so a change by another client stays until the Service or one
//! of its pods changes. A key that fails 15 times in a row is also dropped until then.
//!
//! It sends no write without a change: both sides are packed and sorted before they are compared. It does not act on
//! incomplete data: the runtime withholds keys whose Service or Endpoints are undecodable, and the addresses of
//! undecodable pods are kept.

mod addresses;
mod apply;
mod plan;
mod ports;
mod relevance;
mod service_view;
mod subsets;
mod trigger_time;
mod truncate;
mod undecodable_pods;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Endpoints;
use windlass_controller::{
    Context, Controller, Descriptor, Enqueuer, Outcome, ReconcileError, Setup, SetupError, Writer,
};
use windlass_informer::{Event, Lister};
use windlass_object::{LabelSelector, ObjectKey, Verb};

use self::apply::EndpointsApi;
use self::plan::Action;
use self::relevance::{AffectedServices, affected_by, among};
use self::service_view::ServiceView;
use self::trigger_time::TriggerTimes;
use crate::ControllerOptions;
use crate::shared::UNDECODABLE_RECHECK_INTERVAL;
use crate::shared::pod_view::PodView;
use crate::shared::pods;
use crate::shared::rest::RestPerPod;

/// Consecutive failures after which a Service is dropped until its next change: the last backoff is 82 s.
const MAX_RETRIES: u32 = 15;

/// Delay before deleted Endpoints are created again. The server deletes them together with their Service, and the event
/// of the Service can arrive last.
const RECREATION_DELAY: Duration = Duration::from_millis(500);

/// Rest of a Service after a write. A write contains all addresses, and each change of a pod causes one: after the
/// rest, one write contains many changes. The maximum is short next to the seconds in which a kubelet notices that a
/// pod does not serve. A new spec of the Service ends the rest.
const REST: RestPerPod = RestPerPod { each: Duration::from_micros(250), most: Duration::from_millis(250) };

/// Annotation on Endpoints that old leader elections used as their lock. They have no Service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The Endpoints controller.
#[derive(Debug)]
pub struct EndpointsController {
    services: Lister<ServiceView>,
    pods: Lister<PodView>,
    endpoints: Lister<Endpoints>,
    writer: Writer<Endpoints>,
    trigger_times: Mutex<TriggerTimes>,
}

impl EndpointsController {
    async fn sync(
        &self,
        key: &ObjectKey,
        service: &ServiceView,
        cx: &Context,
    ) -> Result<Outcome, ReconcileError> {
        let Some(selector) = plan::selector(service) else { return Ok(Outcome::Done) };
        // In this order, a pod that becomes undecodable is in at least one of the two lists.
        let pods = self.pods.select(key.namespace(), &LabelSelector::from_map(selector));
        let undecodable: Vec<_> = self.pods.undecodable().iter().cloned().collect();
        let trigger_time = self.trigger_times().observe(key, service, &pods);
        let current = self.endpoints.get(key)?;
        let kept = undecodable_pods::addresses_of_undecodable_pods(current.as_deref(), &undecodable);
        let action = plan::plan(service, &pods, &kept, current.as_deref(), trigger_time);
        if action != Action::Nothing {
            cx.rest_at_least(REST.of(pods.len()));
        }
        EndpointsApi::new(&self.writer, cx).apply(service, action).await?;
        self.trigger_times().carried_out(key);
        // No event reports that such a pod was deleted or is no longer selected.
        Ok(if kept.is_empty() { Outcome::Done } else { Outcome::RequeueAfter(UNDECODABLE_RECHECK_INTERVAL) })
    }

    async fn clean_up(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        EndpointsApi::new(&self.writer, cx).delete(key, self.endpoints.get(key)?.as_deref()).await?;
        self.trigger_times().forget(key);
        Ok(Outcome::Done)
    }

    fn trigger_times(&self) -> MutexGuard<'_, TriggerTimes> {
        // The map is consistent after a panic, because each change is one insertion or removal.
        self.trigger_times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for EndpointsController {
    const NAME: &'static str = "endpoints-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["endpoint"])
        .with_client_name("endpoint-controller")
        .with_queue_name("endpoint");
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        setup.workers(options.concurrent_endpoint_syncs);
        setup.max_retries(Some(MAX_RETRIES));
        // Addresses are IPs of pods, so they can be outside of the cluster's own range.
        let writer = setup.writer::<Endpoints>().create().update().delete();
        let writer = writer.subresource("restricted", Verb::Create).build();

        // Each change of a pod reads all Services of its namespace.
        let services = setup.primary::<ServiceView>().decoded().on_event(end_rest).lister();
        let (batch_period, selecting) = (options.endpoint_updates_batch_period, services.clone());
        let pods = setup
            .watch::<PodView>()
            .on_event(move |event, queue| enqueue_services(event, &selecting, batch_period, queue))
            .lister();
        let owning = services.clone();
        let endpoints = setup
            .watch::<Endpoints>()
            .on_event(move |event, queue| enqueue_deleted(event, &owning, queue))
            .lister();
        Ok(Self { services, pods, endpoints, writer, trigger_times: Mutex::default() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        match self.services.get(key)? {
            Some(service) => self.sync(key, &service, cx).await,
            None => self.clean_up(key, cx).await,
        }
    }

    /// Enqueues Endpoints whose Service was deleted while no controller was running: there is no event for them.
    fn started(&self, queue: &Enqueuer) {
        self.endpoints.list().iter().filter(|endpoints| !is_lock(endpoints)).for_each(|endpoints| {
            queue.add(ObjectKey::of(&endpoints.metadata));
        });
    }
}

/// Ends the rest of a Service with a new spec.
fn end_rest(event: &Event<Arc<ServiceView>>, queue: &Enqueuer) {
    if let Event::Updated { old, new, .. } = event
        && !new.has_spec_of(old)
    {
        queue.end_rest(&new.metadata.header.key);
    }
}

fn is_lock(endpoints: &Endpoints) -> bool {
    endpoints.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER))
}

/// Enqueues the Services that an event of a pod affects, after the batch period.
fn enqueue_services(
    event: &Event<Arc<PodView>>,
    services: &Lister<ServiceView>,
    batch_period: Duration,
    queue: &Enqueuer,
) {
    let concerned = affected_by(event);
    if concerned == AffectedServices::None {
        return;
    }
    let neighbors = services.list_namespace(pods::namespace(&event.object().metadata));
    for key in among(&concerned, &neighbors) {
        queue.add_after(key, batch_period);
    }
}

/// Enqueues deleted Endpoints if their Service exists, to create them again after [`RECREATION_DELAY`]. If the Service
/// is not in the cache yet, its own event enqueues it. If it was deleted, its Endpoints must be deleted too.
fn enqueue_deleted(event: &Event<Arc<Endpoints>>, services: &Lister<ServiceView>, queue: &Enqueuer) {
    if let Event::Deleted { last, .. } = event {
        let key = ObjectKey::of(&last.metadata);
        if services.get_lossy(&key).is_some() {
            queue.add_after(key, RECREATION_DELAY);
        }
    }
}
