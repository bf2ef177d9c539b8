//! Read-your-writes, judged: when a reconcile begins, each cache of its controller contains what its key wrote before.
//!
//! Which key sent a request follows from the task that polls it: a layer around each reconcile notes its key for as long
//! as the reconcile is polled, and the wire records a request within that poll. What was written, and at which version,
//! is the server's own record, so that a write whose answer was lost counts exactly if it took effect.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use windlass_api_server::faults::{ProcessId, RequestSummary};
use windlass_controller::host::CacheVersions;
use windlass_informer::ObjectLocation;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Uid, Verb};

use crate::violation::Violation;

/// One key of one controller in one life of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) who: ProcessId,
    pub(crate) controller: &'static str,
    pub(crate) key: ObjectKey,
}

/// A collection that was written to: its resource, and the namespace, or the UID of an object without one, since shards
/// share such objects by their UID.
type Collection = (GroupResource, Option<String>, Option<Uid>);

/// What each key wrote, by the server's account.
#[derive(Default)]
pub(crate) struct Reads {
    in_flight: BTreeMap<u64, Subject>,
    written: BTreeMap<Subject, BTreeMap<Collection, u64>>,
}

thread_local! {
    /// Whose reconcile is polled now.
    static POLLED: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

impl Reads {
    /// A write left.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(subject) = POLLED.with_borrow(Option::clone) {
            self.in_flight.insert(id, subject);
        }
    }

    /// The server executed a write, or rejected it.
    pub(crate) fn served(&mut self, id: u64, asked: &RequestSummary, code: u16, body: &[u8]) {
        let Some(subject) = self.in_flight.remove(&id).filter(|_| code < 300) else { return };
        // The end of an object is known by its UID and not by a version.
        if !matches!(asked.verb, Some(Verb::Create | Verb::Update | Verb::Patch)) {
            return;
        }
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        let Some(version) = version.filter(|_| asked.subresource != "token") else { return };
        let resource = GroupResource::new(asked.group.clone(), asked.resource.clone());
        let namespace = Some(asked.namespace.clone()).filter(|it| !it.is_empty());
        let uid = object["metadata"]["uid"].as_str().filter(|_| namespace.is_none()).map(Uid::from);
        let collection = (resource, namespace, uid);
        let last = self.written.entry(subject).or_default().entry(collection).or_default();
        *last = version.max(*last);
    }

    /// What is wrong with a reconcile that begins over these caches.
    pub(crate) fn begins(&self, subject: &Subject, caches: &CacheVersions) -> Option<Violation> {
        let written = self.written.get(subject)?;
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
                who: subject.who.to_string(),
                key: format!("{} {}", subject.controller, subject.key),
                written: format!("{resource} at version {version}"),
                cache: stale,
            })
        })
    }
}

/// Notes whose reconcile is polled, until it is dropped: also when the reconcile panics.
pub(crate) struct Polled;

impl Polled {
    pub(crate) fn by(subject: &Subject) -> Polled {
        POLLED.set(Some(subject.clone()));
        Polled
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        POLLED.set(None);
    }
}
