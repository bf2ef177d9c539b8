//! Checks read-your-writes: when a reconcile begins, each cache of its controller contains the earlier writes of its
//! key.
//!
//! The key of a request follows from the polled task: a layer around each reconcile sets the key while the reconcile is
//! polled, and the link records requests within that poll. The server records each write and its version, so that a
//! write with a lost response counts only if it took effect.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use windlass_api_server::faults::{ProcessId, RequestSummary};
use windlass_controller::host::CacheVersions;
use windlass_informer::ObjectLocation;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Uid, Verb};

use crate::violation::Violation;

/// One key of one controller in one incarnation of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReconcileId {
    pub(crate) process: ProcessId,
    pub(crate) controller: &'static str,
    pub(crate) key: ObjectKey,
}

/// A collection that was written to: its resource, and the namespace, or the UID of a cluster-scoped object, because
/// shards divide those objects by UID.
type Collection = (GroupResource, Option<String>, Option<Uid>);

/// Writes of each key, as recorded by the server.
#[derive(Default)]
pub(crate) struct Reads {
    in_flight: BTreeMap<u64, ReconcileId>,
    written: BTreeMap<ReconcileId, BTreeMap<Collection, u64>>,
}

thread_local! {
    /// Key whose reconcile is currently polled.
    static POLLED: RefCell<Option<ReconcileId>> = const { RefCell::new(None) };
}

impl Reads {
    /// Records that a write was sent.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(reconcile_id) = POLLED.with_borrow(Option::clone) {
            self.in_flight.insert(id, reconcile_id);
        }
    }

    /// Records that the server executed or rejected a write.
    pub(crate) fn served(&mut self, id: u64, request: &RequestSummary, code: u16, body: &[u8]) {
        let Some(reconcile_id) = self.in_flight.remove(&id).filter(|_| code < 300) else { return };
        // A deletion is identified by the UID of the object, not by a version.
        if !matches!(request.verb, Some(Verb::Create | Verb::Update | Verb::Patch)) {
            return;
        }
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        let Some(version) = version.filter(|_| request.subresource != "token") else { return };
        let resource = GroupResource::new(request.group.clone(), request.resource.clone());
        let namespace = Some(request.namespace.clone()).filter(|it| !it.is_empty());
        let uid = object["metadata"]["uid"].as_str().filter(|_| namespace.is_none()).map(Uid::from);
        let collection = (resource, namespace, uid);
        let last = self.written.entry(reconcile_id).or_default().entry(collection).or_default();
        *last = version.max(*last);
    }

    /// Returns the violation of a reconcile that begins on these caches.
    pub(crate) fn begins(&self, reconcile_id: &ReconcileId, caches: &CacheVersions) -> Option<Violation> {
        let written = self.written.get(reconcile_id)?;
        written.iter().find_map(|((resource, namespace, uid), version)| {
            let site = ObjectLocation { namespace: namespace.as_deref(), uid: uid.as_ref() };
            let wanted = ResourceVersion::new(&version.to_string());
            let held = |cache: Option<ResourceVersion>| cache.map(|it| it.as_str().to_owned());
            let stale = caches.of(resource).into_iter().find_map(|cache| {
                let version = cache.version_in(site);
                let is_fresh = version.as_ref().is_none_or(|it| it.reached(&wanted).unwrap_or(true));
                (!is_fresh).then(|| held(version).unwrap_or_default())
            })?;
            Some(Violation::StaleRead {
                process: reconcile_id.process.to_string(),
                key: format!("{} {}", reconcile_id.controller, reconcile_id.key),
                written: format!("{resource} at version {version}"),
                cache: stale,
            })
        })
    }
}

/// Guard that marks the polled reconcile until it is dropped, also by a panic.
pub(crate) struct Polled;

impl Polled {
    pub(crate) fn by(reconcile_id: &ReconcileId) -> Polled {
        POLLED.set(Some(reconcile_id.clone()));
        Polled
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        POLLED.set(None);
    }
}
