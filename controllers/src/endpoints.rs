//! The Endpoints controller: for each Service, the addresses of the pods it selects.
//!
//! Watches Services, pods and Endpoints; writes Endpoints. A Service without a selector, or with an external name, is
//! left to whoever writes its Endpoints. Without a Service there are no Endpoints: they are deleted, whoever made
//! them, also those left over from a time when nobody watched.
//!
//! Of Endpoints only deletions are acted on, so what somebody else writes into them stays until the Service or one of
//! its pods changes. A key that fails 15 times in a row is dropped until then as well.
//!
//! Refuses to write what changes nothing: both sides are packed and sorted before they are compared. Refuses to act on
//! not knowing: the runtime withholds keys whose Service or Endpoints cannot be decoded, and the addresses of such pods
//! stay as they are.

mod addresses;
mod apply;
mod plan;
mod ports;
mod relevance;
mod subsets;
mod trigger_time;
mod truncate;
mod undecodable_pods;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use windlass_controller::{
    Context, Controller, Descriptor, Enqueuer, Outcome, ReconcileError, Setup, SetupError, Writer,
};
use windlass_informer::{Event, Lister};
use windlass_object::{LabelSelector, ObjectKey, Verb};

use self::apply::EndpointsApi;
use self::relevance::{AffectedServices, among, concerned_by};
use self::trigger_time::TriggerTimes;
use crate::ControllerOptions;
use crate::shared::LOOK_AGAIN;
use crate::shared::pods;

/// After how many failures in a row a Service is dropped until its next change: the last pause is 82 s.
const MAX_RETRIES: u32 = 15;

/// The annotation on Endpoints that old leader elections used as their lock. No Service goes with those.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The Endpoints controller.
#[derive(Debug)]
pub struct EndpointsController {
    services: Lister<Service>,
    pods: Lister<Pod>,
    endpoints: Lister<Endpoints>,
    writer: Writer<Endpoints>,
    trigger_times: Mutex<TriggerTimes>,
}

impl EndpointsController {
    async fn sync(
        &self,
        key: &ObjectKey,
        service: &Service,
        api: &EndpointsApi<'_>,
    ) -> Result<Outcome, ReconcileError> {
        let Some(selector) = plan::selector(service) else { return Ok(Outcome::Done) };
        // In this order a pod that cannot be decoded any more is in one of the two at least.
        let pods = self.pods.select(key.namespace(), &LabelSelector::from_map(selector));
        let unreadable = self.pods.undecodable();
        let trigger_time = self.trigger_times().observe(key, service, &pods);
        let current = self.endpoints.get(key)?;
        let kept = undecodable_pods::kept(current.as_deref(), &unreadable);
        api.apply(service, plan::plan(service, &pods, &kept, current.as_deref(), trigger_time)).await?;
        self.trigger_times().carried_out(key);
        // Nobody is told when such a pod goes, or turns out to be selected no more.
        Ok(if kept.is_empty() { Outcome::Done } else { Outcome::RequeueAfter(LOOK_AGAIN) })
    }

    async fn clean_up(&self, key: &ObjectKey, api: &EndpointsApi<'_>) -> Result<Outcome, ReconcileError> {
        api.delete(key, self.endpoints.get(key)?.as_deref()).await?;
        self.trigger_times().forget(key);
        Ok(Outcome::Done)
    }

    fn trigger_times(&self) -> MutexGuard<'_, TriggerTimes> {
        // A panic while it was held left it whole: every change is a single insertion or removal.
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
        // Pods decide the addresses, so some may lie outside the cluster's own range.
        let writer = setup.writer::<Endpoints>().create().update().delete();
        let writer = writer.subresource("restricted", Verb::Create).build();

        let services = setup.primary::<Service>().lister();
        let (batch_period, selecting) = (options.endpoint_updates_batch_period, services.clone());
        let pods = setup
            .watch::<Pod>()
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
        let api = EndpointsApi::new(&self.writer, cx);
        match self.services.get(key)? {
            Some(service) => self.sync(key, &service, &api).await,
            None => self.clean_up(key, &api).await,
        }
    }

    /// Endpoints whose Service was deleted while nobody watched bring no event of their own.
    fn started(&self, queue: &Enqueuer) {
        self.endpoints.list().iter().filter(|endpoints| !is_lock(endpoints)).for_each(|endpoints| {
            queue.add(ObjectKey::of(&endpoints.metadata));
        });
    }
}

fn is_lock(endpoints: &Endpoints) -> bool {
    endpoints.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER))
}

/// Enqueues the Services a change of a pod concerns, after the period in which several such changes become one write.
fn enqueue_services(
    event: &Event<Arc<Pod>>,
    services: &Lister<Service>,
    batch_period: Duration,
    queue: &Enqueuer,
) {
    let concerned = concerned_by(event);
    if concerned == AffectedServices::Nobody {
        return;
    }
    let neighbours = services.namespace(pods::namespace(&event.object().metadata));
    for key in among(&concerned, &neighbours) {
        queue.add_after(key, batch_period);
    }
}

/// Deleted Endpoints are made again if their Service is still there. If it is not there yet, its own arrival will see
/// to them; if it is no more, they were meant to go.
fn enqueue_deleted(event: &Event<Arc<Endpoints>>, services: &Lister<Service>, queue: &Enqueuer) {
    if let Event::Deleted { last, .. } = event {
        let key = ObjectKey::of(&last.metadata);
        if services.cached(&key).is_some() {
            queue.add(key);
        }
    }
}
