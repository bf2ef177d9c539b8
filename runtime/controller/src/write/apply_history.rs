//! What a writer applied last to each object, so that it does not send an apply that would change nothing.
//!
//! Guarantees:
//! - An apply counts as done only if its answer arrived, and no other apply to the same object overlapped with it.
//! - It holds for the object with the UID of that answer, and as long as the cache shows the state of that answer: the
//!   same generation (of kinds without one: the same resource version), labels, annotations, finalizers and owner
//!   references. A cache that detects a restored server shows no such state any more.
//! - Memory: a fixed size for each object, for at most twice as many objects as the cache contains, and a few more.
//!
//! After a restart nothing is known, so each object is applied once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::core::ObjectMeta;
use serde_json::{Value, json};
use windlass_env::Env;
use windlass_object::ObjectKey;

/// Up to this many objects are recorded before the first sweep.
const SWEPT_FROM: usize = 64;

/// The last apply to each object.
pub(super) struct ApplyHistory {
    /// Begins every hash: users choose what is hashed, and must not find two documents of one hash.
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
    /// It was sent, and has this number. Its outcome is unknown until its answer arrives.
    InFlight(u64),
    Complete(State),
}

/// An apply, and the object as it was after that. Documents are kept as hashes.
#[derive(PartialEq, Eq)]
struct State {
    desired: u64,
    /// Of the cache: in each epoch the server assigns the same versions and generations again.
    epoch: u64,
    uid: Option<String>,
    present: u64,
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

    /// Whether the last apply to the object was one of `desired`, and nothing changed since: the cache contains `present`,
    /// and was in `epoch` after that was read.
    pub(super) fn is_unchanged(
        &self,
        key: &ObjectKey,
        desired: &Value,
        present: &ObjectMeta,
        epoch: u64,
    ) -> bool {
        let state = self.state(self.hash(desired), present, epoch);
        matches!(self.lock().by_key.get(key), Some(Record::Complete(last)) if *last == state)
    }

    /// Records that `desired` is sent, while the cache is in `epoch`. Until [`complete`](Self::complete) nothing is known about the object.
    pub(super) fn begin(&self, key: ObjectKey, desired: &Value, epoch: u64) -> PendingApply {
        let desired = self.hash(desired);
        let mut records = self.lock();
        let number = records.next;
        records.next += 1;
        records.by_key.insert(key.clone(), Record::InFlight(number));
        PendingApply { key, number, desired, epoch }
    }

    /// Records the answer to an apply.
    pub(super) fn complete(
        &self,
        pending: PendingApply,
        answer: &ObjectMeta,
        is_cached: impl Fn(&ObjectKey) -> bool,
    ) {
        let PendingApply { key, number, desired, epoch } = pending;
        let state = self.state(desired, answer, epoch);
        let mut records = self.lock();
        // Which of two applies that overlap reached the server first is unknown: neither counts.
        let last = records.by_key.remove(&key);
        if matches!(last, Some(Record::InFlight(last)) if last == number) {
            records.by_key.insert(key, Record::Complete(state));
        }
        records.sweep(is_cached);
    }

    fn state(&self, desired: u64, meta: &ObjectMeta, epoch: u64) -> State {
        let version = meta.resource_version.as_ref().filter(|_| meta.generation.is_none());
        let labels: BTreeMap<_, _> = meta.labels.iter().flatten().collect();
        let annotations: BTreeMap<_, _> = meta.annotations.iter().flatten().collect();
        let finalizers: Vec<_> = meta.finalizers.iter().flatten().collect();
        let owners: Vec<_> = meta.owner_references.iter().flatten().collect();
        let present = json!([meta.generation, version, labels, annotations, finalizers, owners]);
        State { desired, epoch, uid: meta.uid.clone(), present: self.hash(&present) }
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
    use super::*;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced("shop", &format!("m-{number}"))
    }

    fn history() -> ApplyHistory {
        ApplyHistory::new(&Env::virtual_time(1))
    }

    fn meta(change: impl FnOnce(&mut ObjectMeta)) -> ObjectMeta {
        let mut meta = ObjectMeta { uid: Some("u".into()), generation: Some(1), ..ObjectMeta::default() };
        change(&mut meta);
        meta
    }

    /// Applies `desired`, which the server answers with `answer`.
    fn apply(history: &ApplyHistory, desired: &Value, answer: &ObjectMeta) {
        history.complete(history.begin(key(1), desired, 1), answer, |_| true);
    }

    #[test]
    fn apply_is_unchanged_until_bytes_or_metadata_change() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        apply(&history, &desired, &meta(|_| ()));
        let is_unchanged = |desired: &Value, present| history.is_unchanged(&key(1), desired, &present, 1);
        assert!(is_unchanged(&desired, meta(|_| ())));
        // An empty map is none, and kinds with a generation have a new version with every status.
        assert!(is_unchanged(&desired, meta(|it| it.labels = Some(BTreeMap::new()))));
        assert!(is_unchanged(&desired, meta(|it| it.resource_version = Some("9".into()))));
        assert!(!is_unchanged(&json!({ "spec": 2 }), meta(|_| ())));
        let changed = [
            meta(|it| it.uid = Some("another".into())),
            meta(|it| it.generation = Some(2)),
            meta(|it| it.labels = Some([("a".into(), "b".into())].into())),
            meta(|it| it.annotations = Some([("a".into(), "b".into())].into())),
            meta(|it| it.finalizers = Some(vec!["a".into()])),
            meta(|it| it.owner_references = Some(vec![Default::default()])),
        ];
        assert!(!history.is_unchanged(&key(1), &desired, &meta(|_| ()), 2), "the server was restored");
        assert!(!changed.into_iter().any(|present| is_unchanged(&desired, present)));
    }

    #[test]
    fn resource_version_counts_for_kinds_without_generation() {
        let (history, desired) = (history(), json!({ "data": 1 }));
        let at = |version: &str| {
            meta(|it| (it.generation, it.resource_version) = (None, Some(version.to_owned())))
        };
        apply(&history, &desired, &at("7"));
        assert!(history.is_unchanged(&key(1), &desired, &at("7"), 1));
        assert!(!history.is_unchanged(&key(1), &desired, &at("8"), 1));
    }

    #[test]
    fn apply_without_answer_is_not_recorded() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        apply(&history, &desired, &meta(|_| ()));
        let _failed = history.begin(key(1), &desired, 1);
        assert!(!history.is_unchanged(&key(1), &desired, &meta(|_| ()), 1));
    }

    #[test]
    fn applies_that_overlap_are_not_recorded() {
        let (one, other) = (json!({ "spec": 1 }), json!({ "spec": 2 }));
        for first_answers_first in [true, false] {
            let history = history();
            let mut pending = vec![history.begin(key(1), &one, 1), history.begin(key(1), &other, 1)];
            if !first_answers_first {
                pending.reverse();
            }
            pending.into_iter().for_each(|pending| history.complete(pending, &meta(|_| ()), |_| true));
            assert!(![&one, &other].iter().any(|it| history.is_unchanged(&key(1), it, &meta(|_| ()), 1)));
        }
    }

    #[test]
    fn records_are_bounded_by_the_cache() {
        let (history, desired) = (history(), json!({ "spec": 1 }));
        let cached = 0..100;
        let is_cached = |it: &ObjectKey| cached.clone().any(|number| key(number) == *it);
        for number in 0..2000 {
            history.complete(history.begin(key(number), &desired, 1), &meta(|_| ()), is_cached);
            assert!(history.lock().by_key.len() <= 200);
        }
        assert!(
            history.is_unchanged(&key(99), &desired, &meta(|_| ()), 1),
            "a record of a cached object stays"
        );
    }
}
