//! Evidence from the network: created pods, injected faults and lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::Method;
use serde_json::Value;
use windlass_api_server::faults::{Network, Record, RecordKind, RequestSummary};

/// The records of the network's journal.
pub(crate) struct FaultEvidence(Vec<Record>);

impl FaultEvidence {
    pub(crate) fn of(network: &Network) -> Self {
        Self(network.journal().records())
    }

    /// Returns the UIDs of all created pods, including those whose response was lost.
    pub(crate) fn pods_made(&self) -> BTreeSet<String> {
        let made = self.0.iter().filter_map(|record| match &record.kind {
            RecordKind::Served { request, code: 201, body, .. } if creates_a_pod(request) => Some(body),
            _ => None,
        });
        made.map(|body| uid(&parsed(body))).collect()
    }

    /// Counts the requests and watches with a fault that match, by request and fault.
    pub(crate) fn injected_count(&self, of_interest: impl Fn(&RequestSummary, &str) -> bool) -> usize {
        let mut asked_by_id = BTreeMap::new();
        let mut struck = BTreeSet::new();
        for record in &self.0 {
            match &record.kind {
                RecordKind::Sent { id, request } => drop(asked_by_id.insert(*id, request)),
                RecordKind::FaultInjected { id, how } => {
                    let hit = asked_by_id.get(id).is_some_and(|request| of_interest(request, how));
                    struck.extend(hit.then_some(*id));
                }
                _ => {}
            }
        }
        struck.len()
    }

    /// Counts the matching requests whose response took at least `late`.
    pub(crate) fn answered_late(
        &self,
        late: Duration,
        of_interest: impl Fn(&RequestSummary) -> bool,
    ) -> usize {
        let mut sent = BTreeMap::new();
        let mut count = 0;
        for record in &self.0 {
            match &record.kind {
                RecordKind::Sent { id, .. } => {
                    sent.insert(*id, record.at);
                }
                RecordKind::Answered { id, request, .. } if of_interest(request) => {
                    let took = sent.get(id).map(|sent| record.at.saturating_sub(*sent));
                    count += usize::from(took.is_some_and(|took| took >= late));
                }
                _ => {}
            }
        }
        count
    }

    /// Counts the pods whose first watch event came at least `late` after their creation.
    pub(crate) fn late_pod_events(&self, late: Duration) -> usize {
        let mut made = BTreeMap::new();
        let mut count = 0;
        for record in &self.0 {
            match &record.kind {
                RecordKind::Served { request, code: 201, body, .. } if creates_a_pod(request) => {
                    made.insert(uid(&parsed(body)), record.at);
                }
                RecordKind::WatchEventSent { request, frame, .. } if request.resource == "pods" => {
                    let made = made.remove(&uid(&parsed(frame)["object"]));
                    count += usize::from(made.is_some_and(|made| record.at.saturating_sub(made) >= late));
                }
                _ => {}
            }
        }
        count
    }

    /// Counts the list requests of this resource that the server answered, paged or streaming.
    pub(crate) fn lists(&self, resource: &str) -> usize {
        let listed = |record: &&Record| match &record.kind {
            RecordKind::Served { request, code: 200, .. } => {
                request.method == Method::GET
                    && request.resource == resource
                    && request.name.is_empty()
                    && (!request.is_watch() || request.uri.contains("sendInitialEvents=true"))
            }
            _ => false,
        };
        self.0.iter().filter(listed).count()
    }

    /// Returns the requests and their outcomes as text, for error messages.
    pub(crate) fn story(&self) -> String {
        let quiet = |record: &&Record| match &record.kind {
            RecordKind::Sent { request, .. } => !matches!(request.resource.as_str(), "leases" | "events"),
            RecordKind::Served { request, .. } => !matches!(request.resource.as_str(), "leases" | "events"),
            RecordKind::Answered { .. } => false,
            _ => true,
        };
        self.0.iter().filter(quiet).map(|record| format!("{record}\n")).collect()
    }
}

pub(crate) fn creates_a_pod(request: &RequestSummary) -> bool {
    request.method == Method::POST && request.resource == "pods" && request.subresource.is_empty()
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
