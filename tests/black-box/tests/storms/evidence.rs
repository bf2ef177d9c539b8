//! What the network saw: which pods were made, what faults struck, what was listed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::Method;
use serde_json::Value;
use windlass_api_server::faults::{Network, Record, RecordKind, RequestSummary};

/// The network's journal, read.
pub(crate) struct FaultEvidence(Vec<Record>);

impl FaultEvidence {
    pub(crate) fn of(network: &Network) -> Self {
        Self(network.journal().records())
    }

    /// The UIDs of all pods that were made, whether the manager heard of it or not.
    pub(crate) fn pods_made(&self) -> BTreeSet<String> {
        let made = self.0.iter().filter_map(|record| match &record.what {
            RecordKind::Served { asked, code: 201, body, .. } if creates_a_pod(asked) => Some(body),
            _ => None,
        });
        made.map(|body| uid(&parsed(body))).collect()
    }

    /// How many of these requests and watches a fault struck, told by what was asked and by how it was struck.
    pub(crate) fn struck(&self, of_interest: impl Fn(&RequestSummary, &str) -> bool) -> usize {
        let mut asked_by_id = BTreeMap::new();
        let mut struck = BTreeSet::new();
        for record in &self.0 {
            match &record.what {
                RecordKind::Sent { id, asked } => drop(asked_by_id.insert(*id, asked)),
                RecordKind::FaultInjected { id, how } => {
                    let hit = asked_by_id.get(id).is_some_and(|asked| of_interest(asked, how));
                    struck.extend(hit.then_some(*id));
                }
                _ => {}
            }
        }
        struck.len()
    }

    /// How many of these requests were answered no sooner than this after they were sent.
    pub(crate) fn answered_late(
        &self,
        late: Duration,
        of_interest: impl Fn(&RequestSummary) -> bool,
    ) -> usize {
        let mut sent = BTreeMap::new();
        let mut count = 0;
        for record in &self.0 {
            match &record.what {
                RecordKind::Sent { id, .. } => {
                    sent.insert(*id, record.at);
                }
                RecordKind::Answered { id, asked, .. } if of_interest(asked) => {
                    let took = sent.get(id).map(|sent| record.at.saturating_sub(*sent));
                    count += usize::from(took.is_some_and(|took| took >= late));
                }
                _ => {}
            }
        }
        count
    }

    /// Of how many pods a watch told no sooner than this after they were made.
    pub(crate) fn pods_told_late(&self, late: Duration) -> usize {
        let mut made = BTreeMap::new();
        let mut count = 0;
        for record in &self.0 {
            match &record.what {
                RecordKind::Served { asked, code: 201, body, .. } if creates_a_pod(asked) => {
                    made.insert(uid(&parsed(body)), record.at);
                }
                RecordKind::WatchEventSent { asked, frame, .. } if asked.resource == "pods" => {
                    let made = made.remove(&uid(&parsed(frame)["object"]));
                    count += usize::from(made.is_some_and(|made| record.at.saturating_sub(made) >= late));
                }
                _ => {}
            }
        }
        count
    }

    /// How many lists of this resource the server answered, in pages or as a stream.
    pub(crate) fn lists(&self, resource: &str) -> usize {
        let listed = |record: &&Record| match &record.what {
            RecordKind::Served { asked, code: 200, .. } => {
                asked.method == Method::GET
                    && asked.resource == resource
                    && asked.name.is_empty()
                    && (!asked.is_watch() || asked.uri.contains("sendInitialEvents=true"))
            }
            _ => false,
        };
        self.0.iter().filter(listed).count()
    }

    /// What was asked and what came of it, for whoever has to find out why.
    pub(crate) fn story(&self) -> String {
        let quiet = |record: &&Record| match &record.what {
            RecordKind::Sent { asked, .. } => !matches!(asked.resource.as_str(), "leases" | "events"),
            RecordKind::Served { asked, .. } => !matches!(asked.resource.as_str(), "leases" | "events"),
            RecordKind::Answered { .. } => false,
            _ => true,
        };
        self.0.iter().filter(quiet).map(|record| format!("{record}\n")).collect()
    }
}

pub(crate) fn creates_a_pod(asked: &RequestSummary) -> bool {
    asked.method == Method::POST && asked.resource == "pods" && asked.subresource.is_empty()
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
