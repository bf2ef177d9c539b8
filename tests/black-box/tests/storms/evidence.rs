//! What the network saw: which pods were made, what faults struck, who was told that history is gone.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::Value;
use windlass_api_server::faults::{Asked, Happening, Network, Record};

/// The network's journal, read.
pub(crate) struct Evidence(Vec<Record>);

impl Evidence {
    pub(crate) fn of(network: &Network) -> Self {
        Self(network.journal().records())
    }

    /// The UIDs of all pods that were made, whether the manager heard of it or not.
    pub(crate) fn pods_made(&self) -> BTreeSet<String> {
        let made = self.0.iter().filter_map(|record| match &record.what {
            Happening::Served { asked, code: 201, body, .. } if creates_a_pod(asked) => Some(body),
            _ => None,
        });
        made.map(|body| {
            let pod: Value = serde_json::from_slice(body).unwrap_or_default();
            pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
        })
        .collect()
    }

    /// How many of these requests a fault struck.
    pub(crate) fn struck(&self, of_interest: impl Fn(&Asked) -> bool) -> usize {
        let mut asked_by_id = BTreeMap::new();
        let mut struck = BTreeSet::new();
        for record in &self.0 {
            match &record.what {
                Happening::Sent { id, asked } => drop(asked_by_id.insert(*id, asked)),
                Happening::Struck { id, .. } => drop(struck.insert(*id)),
                _ => {}
            }
        }
        struck.iter().filter_map(|id| asked_by_id.get(id)).filter(|asked| of_interest(asked)).count()
    }

    /// How many watches of this resource the server told that their version is gone.
    pub(crate) fn told_expired(&self, resource: &str) -> usize {
        let expired = |record: &&Record| match &record.what {
            Happening::Served { asked, code: 410, .. } => asked.is_watch() && asked.resource == resource,
            Happening::Told { asked, frame, .. } => asked.resource == resource && is_expired(frame),
            _ => false,
        };
        self.0.iter().filter(expired).count()
    }

    /// What was asked and what came of it, for whoever has to find out why.
    pub(crate) fn story(&self) -> String {
        let quiet = |record: &&Record| match &record.what {
            Happening::Sent { asked, .. } => !matches!(asked.resource.as_str(), "leases" | "events"),
            Happening::Served { asked, .. } => !matches!(asked.resource.as_str(), "leases" | "events"),
            Happening::Answered { .. } => false,
            _ => true,
        };
        self.0.iter().filter(quiet).map(|record| format!("{record}\n")).collect()
    }
}

pub(crate) fn creates_a_pod(asked: &Asked) -> bool {
    asked.method == Method::POST && asked.resource == "pods" && asked.subresource.is_empty()
}

fn is_expired(frame: &[u8]) -> bool {
    let event: Value = serde_json::from_slice(frame).unwrap_or_default();
    event["type"] == "ERROR" && event["object"]["code"] == 410
}
