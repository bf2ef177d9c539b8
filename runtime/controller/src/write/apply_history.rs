//! Records the last apply of a writer to each object, so that an apply that would change nothing is not sent.
//!
//! Guarantees:
//! - An apply counts as done only if its response arrived and no other apply to the same object overlapped with it.
//! - The record is valid for the object with the UID of that response while the cache contains the state of that
//!   response: the same resource version, or the same content apart from the status and the metadata that the server
//!   maintains. After a cache detects a restored server the record is not valid.
//! - Memory: a fixed size per object, for at most about twice as many objects as the cache contained at the last sweep.
//!   A sweep also drops objects that are not in the cache yet; these are applied once more.
//!
//! After a restart no record exists, so each object is applied once.
//!
//! `metadata.generation` is not used: kinds such as PriorityClass set it when an object is created and keep it when the
//! object changes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::core::ObjectMeta;
use serde_json::Value;
use windlass_env::Env;
use windlass_object::ObjectKey;

use crate::error::WriteError;

/// Number of recorded objects before the first sweep.
const SWEPT_FROM: usize = 64;

/// The last apply to each object.
pub(super) struct ApplyHistory {
    /// The start of every hash. It is random because users control the hashed documents and must not be able to
    /// construct collisions.
    seed: u64,
    records: Mutex<Records>,
}

struct Records {
    by_key: BTreeMap<ObjectKey, Record>,
    /// The number of the next apply.
    next: u64,
    /// At this size, the records of objects that the cache does not contain are dropped.
    swept_at: usize,
}

/// The last apply to one object.
enum Record {
    /// The apply with this number was sent. Its outcome is unknown until its response arrives.
    InFlight(u64),
    Complete(State),
}

/// An apply, and the object after it. Documents are kept as hashes.
struct State {
    desired: u64,
    /// The epoch of the cache: in each epoch the server assigns the same versions again.
    epoch: u64,
    uid: Option<String>,
    version: Option<String>,
    content: u64,
}

/// An apply that was sent.
pub(super) struct PendingApply {
    key: ObjectKey,
    number: u64,
    desired: u64,
    epoch: u64,
}

impl ApplyHistory {
    pub(super) fn new(env: &Env) -> Self {
        let records = Records { by_key: BTreeMap::new(), next: 0, swept_at: SWEPT_FROM };
        Self { seed: env.hash_seed("applies"), records: Mutex::new(records) }
    }

    /// Returns whether the last apply to the object was one of `desired` and the object has not changed since. The
    /// cache contains `present` and was in `epoch` after `present` was read; `object` encodes it, if its version does
    /// not decide.
    pub(super) fn is_unchanged(
        &self,
        key: &ObjectKey,
        desired: &Value,
        present: &ObjectMeta,
        epoch: u64,
        object: impl FnOnce() -> Result<Value, WriteError>,
    ) -> Result<bool, WriteError> {
        let desired = self.hash(desired);
        let content = match self.lock().by_key.get(key) {
            Some(Record::Complete(last))
                if last.desired == desired && last.epoch == epoch && last.uid == present.uid =>
            {
                if last.version.is_some() && last.version == present.resource_version {
                    return Ok(true);
                }
                last.content
            }
            Some(_) | None => return Ok(false),
        };
        Ok(content == self.hash_content(object()?))
    }

    /// Records that `desired` is sent while the cache is in `epoch`. The state of the object is unknown until
    /// [`complete`](Self::complete).
    pub(super) fn begin(
        &self,
        key: ObjectKey,
        desired: &Value,
        epoch: u64,
        is_cached: impl Fn(&ObjectKey) -> bool,
    ) -> PendingApply {
        let desired = self.hash(desired);
        let mut records = self.lock();
        // Swept here because an apply that fails leaves its record.
        records.sweep(is_cached);
        let number = records.next;
        records.next += 1;
        records.by_key.insert(key.clone(), Record::InFlight(number));
        PendingApply { key, number, desired, epoch }
    }

    /// Records the response to an apply: its metadata and the whole object.
    pub(super) fn complete(&self, pending: PendingApply, answer: &ObjectMeta, object: Value) {
        let PendingApply { key, number, desired, epoch } = pending;
        let (uid, version) = (answer.uid.clone(), answer.resource_version.clone());
        let state = State { desired, epoch, uid, version, content: self.hash_content(object) };
        let mut records = self.lock();
        // The order of two overlapping applies at the server is unknown, so neither counts.
        let last = records.by_key.remove(&key);
        if matches!(last, Some(Record::InFlight(last)) if last == number) {
            records.by_key.insert(key, Record::Complete(state));
        }
    }

    /// Returns the hash of the fields that an apply can change.
    fn hash_content(&self, mut object: Value) -> u64 {
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind" | "status"));
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let of_server = ["resourceVersion", "generation", "managedFields"];
            metadata.retain(|name, _| !of_server.contains(&name.as_str()));
        }
        self.hash(&object)
    }

    fn hash(&self, document: &Value) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(document.to_string().as_bytes());
        hasher.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // Each change is a single insertion or removal, so a panic leaves the records valid.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn sweep(&mut self, is_cached: impl Fn(&ObjectKey) -> bool) {
        if self.by_key.len() >= self.swept_at {
            self.by_key.retain(|key, _| is_cached(key));
            self.swept_at = SWEPT_FROM.max(2 * self.by_key.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced("shop", &format!("m-{number}"))
    }

    fn history() -> ApplyHistory {
        ApplyHistory::new(&Env::virtual_time(1))
    }

    fn present(change: impl FnOnce(&mut Value)) -> Value {
        let mut object =
            json!({ "metadata": { "uid": "u", "resourceVersion": "1", "generation": 1 }, "spec": 1 });
        change(&mut object);
        object
    }

    fn meta(object: &Value) -> ObjectMeta {
        serde_json::from_value(object["metadata"].clone()).expect("metadata")
    }

    fn complete(history: &ApplyHistory, pending: PendingApply) {
        let answer = present(|_| ());
        history.complete(pending, &meta(&answer), answer);
    }

    fn begin(history: &ApplyHistory, desired: &Value) -> PendingApply {
        history.begin(key(1), desired, 1, |_| true)
    }

    /// Applies `desired`; the server responds with [`present`].
    fn apply(history: &ApplyHistory, desired: &Value) {
        complete(history, begin(history, desired));
    }

    fn is_unchanged(history: &ApplyHistory, desired: &Value, present: Value, epoch: u64) -> bool {
        history.is_unchanged(&key(1), desired, &meta(&present), epoch, || Ok(present)).expect("encoded")
    }

    #[test]
    fn apply_is_unchanged_until_bytes_or_content_change() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        apply(&history, &desired);
        let unchanged = |present| is_unchanged(&history, &desired, present, 1);
        assert!(unchanged(present(|_| ())));
        // A status change sets a new version, and every write changes the field managers.
        assert!(unchanged(present(|it| {
            it["metadata"]["resourceVersion"] = json!("9");
            it["metadata"]["managedFields"] = json!([{ "manager": "another" }]);
            it["status"] = json!({ "ready": true });
        })));
        assert!(!is_unchanged(&history, &json!({ "spec": 2 }), present(|_| ()), 1));
        assert!(!is_unchanged(&history, &desired, present(|_| ()), 2), "the server was restored");
        // These changes keep the generation: some kinds never increase it.
        let changed = [
            ("/metadata/uid", json!("another")),
            ("/spec", json!(2)),
            ("/metadata/labels", json!({ "a": "b" })),
            ("/metadata/annotations", json!({ "a": "b" })),
            ("/metadata/finalizers", json!(["a"])),
            (
                "/metadata/ownerReferences",
                json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o" }]),
            ),
        ];
        for (path, value) in changed {
            let present = present(|it| {
                let (parent, name) = path.rsplit_once('/').expect("a path");
                it.pointer_mut(parent).expect("there")[name] = value;
                it["metadata"]["resourceVersion"] = json!("9");
            });
            assert!(!unchanged(present), "{path}");
        }
    }

    /// A transform makes the cached content differ from the response.
    #[test]
    fn object_is_unchanged_while_its_version_is_that_of_the_answer() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        apply(&history, &desired);
        let transformed = |version: &str| {
            present(|it| {
                it["spec"].take();
                it["metadata"]["resourceVersion"] = json!(version);
            })
        };
        assert!(is_unchanged(&history, &desired, transformed("1"), 1));
        assert!(!is_unchanged(&history, &desired, transformed("2"), 1));
    }

    #[test]
    fn apply_without_answer_is_not_recorded() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        apply(&history, &desired);
        let _failed = begin(&history, &desired);
        assert!(!is_unchanged(&history, &desired, present(|_| ()), 1));
    }

    #[test]
    fn applies_that_overlap_are_not_recorded() {
        let (one, other) = (json!({ "spec": 1 }), json!({ "spec": 2 }));
        for first_answers_first in [true, false] {
            let history = history();
            let mut pending = vec![begin(&history, &one), begin(&history, &other)];
            if !first_answers_first {
                pending.reverse();
            }
            pending.into_iter().for_each(|pending| complete(&history, pending));
            assert!(![&one, &other].iter().any(|it| is_unchanged(&history, it, present(|_| ()), 1)));
        }
    }

    #[test]
    fn records_are_bounded_by_the_cache() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        let cached = 0..100;
        let is_cached = |it: &ObjectKey| cached.clone().any(|number| key(number) == *it);
        for number in 0..2000 {
            let pending = history.begin(key(number), &desired, 1, is_cached);
            // The later applies fail.
            if number < 1000 {
                complete(&history, pending);
            }
            assert!(history.lock().by_key.len() <= 200);
        }
        assert!(is_unchanged(&history, &desired, present(|_| ()), 1), "a record of a cached object stays");
    }
}
