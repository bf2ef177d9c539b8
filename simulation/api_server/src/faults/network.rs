//! The links of one simulated world, and the server at their end.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::Value;
use windlass_env::Env;

use super::connection::Bounds;
use super::journal::{Journal, ProcessId, RecordKind};
use super::link::Link;
use super::plan::{FaultAction, FaultPlan};
use super::server::Server;
use super::shared::NetworkState;

/// The links of one world. Clones share one network.
#[derive(Clone)]
pub struct Network {
    pub(super) shared: Arc<NetworkState>,
}

impl Network {
    /// Creates a network in front of this server. Tasks of `world` freeze the stale replicas at their time.
    pub fn new(world: &Env, server: Arc<dyn Server>, plan: FaultPlan, journal: Journal) -> Self {
        let shared = Arc::new(NetworkState::new(world, server, plan, journal));
        shared.keep_stale_replicas();
        Network { shared }
    }

    /// Returns the link of one incarnation of a process. It shares the process's gate and is subject to the plan.
    ///
    /// # Panics
    /// If this incarnation already has a link: both would use the same random numbers.
    pub fn link(&self, sender: &Env) -> Link {
        self.link_with_max_delay(sender, Duration::MAX)
    }

    /// Returns a link in a network that delivers fenced writes and resets at most `lateness` late. Clock drift leaves
    /// that much time between the end of a fence and the end of its lease.
    ///
    /// # Panics
    /// See [`Network::link`].
    pub fn link_with_max_delay(&self, sender: &Env, lateness: Duration) -> Link {
        Link::new(&self.shared, sender, self.shared.active_faults(sender), (true, Bounds::within(lateness)))
    }

    /// Returns a link without faults, for an observing user. Its writes are not counted.
    ///
    /// # Panics
    /// See [`Network::link`].
    pub fn reliable_link(&self, sender: &Env) -> Link {
        Link::new(&self.shared, sender, Vec::new(), (false, Bounds::default()))
    }

    /// Returns the number of writes that processes have sent, except those to Leases and Events.
    pub fn writes(&self) -> u64 {
        self.shared.writes()
    }

    /// Returns the fault plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.shared.plan
    }

    /// Returns the journal of this network.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Returns the server.
    pub fn server(&self) -> &Arc<dyn Server> {
        &self.shared.server
    }

    /// Returns all objects of the server.
    pub fn objects(&self) -> Arc<Vec<Value>> {
        self.shared.objects()
    }

    /// Calls a webhook that the process serves, with the faults of the plan.
    ///
    /// # Errors
    /// The reason why the server receives no response.
    pub async fn call_webhook<F: Future<Output = Response<Bytes>>>(
        &self,
        process: &Env,
        request: Request<Bytes>,
        call: impl FnOnce(Request<Bytes>) -> F,
    ) -> Result<Response<Bytes>, String> {
        if !self.shared.plan.faults.iter().any(|fault| fault.affects_webhooks()) {
            return Ok(call(request).await);
        }
        let resource = reviewed_resource(request.body());
        let Some(fault) = self.shared.webhook_fault(process.instance(), &resource) else {
            return Ok(call(request).await);
        };
        self.note(process, format!("!! {fault:?} for a request to {resource:?}"));
        match fault {
            FaultAction::WebhookSilent => pending().await,
            FaultAction::WebhookFails => {
                let mut response = Response::new(Bytes::from_static(b"a fault"));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(response)
            }
            _ => Err("connect: connection refused".to_owned()),
        }
    }

    /// Adds a note to the journal.
    pub fn note(&self, process: &Env, text: impl Into<String>) {
        let process = ProcessId { instance: process.instance().into(), incarnation: process.incarnation() };
        self.shared.record(process, RecordKind::Note(text.into()));
    }
}

/// Returns the plural name of the resource in a review; empty for a conversion.
fn reviewed_resource(review: &[u8]) -> String {
    let review: Value = serde_json::from_slice(review).unwrap_or_default();
    review["request"]["resource"]["resource"].as_str().unwrap_or_default().to_owned()
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("plan", &self.shared.plan).finish_non_exhaustive()
    }
}
