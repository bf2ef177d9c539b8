//! The compact form of cached objects: their bytes, compressed, decoded again when they are read.
//!
//! A decoded Pod takes 40 KB of memory, and its bytes about 1 KB in this form. Objects of one controller differ in
//! few bytes, so an object is compressed against a *base*: the first object with the same controller. A base, and an
//! object without a controller, is compressed against the *dictionary*, a few objects that differ from each other.
//!
//! Guarantees:
//! - The form is lossless, except that `managedFields` are dropped first by default: reading decodes exactly the bytes
//!   from which the object was decoded when it arrived. So
//!   reading cannot fail, if the decoder depends on the bytes alone
//!   ([`Representation::is_compactable`](windlass_object::Representation::is_compactable)).
//! - Header and labels are available without decompression.
//! - A read returns a recently decoded object from [`HotObjects`], whose size is limited.
//!
//! Out of scope: which informers use this form ([`ObjectForm`]).

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use foldhash::fast::FixedState;
use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use windlass_object::{MetadataRef, ObjectHeader, ObjectKey};

use crate::object::Object;

/// Compression ratio from which an object needs no further object in the dictionary: an object that shrinks sixfold.
const GOOD_RATIO: usize = 6;
/// Compression ratio against its base below which an object gets a new base.
const POOR_RATIO: usize = 3;
/// Maximum size of a base in bytes: each read of an object expands its base.
const MAX_BASE: usize = 64 * 1024;
/// Maximum size of the dictionary in bytes: the window of LZ4 is 64 KiB.
const MAX_DICTIONARY: usize = 32 * 1024;
/// Maximum size of the used part of the dictionary, in sizes of the object: compression visits all of this part, which
/// takes longer than the compression of a small object.
const DICTIONARY_MULTIPLE: usize = 8;
/// Number of bases from which bases without objects are removed, each time the number has doubled.
const MIN_SWEEP: usize = 64;
/// Wire bytes of decoded objects per cache: a collection of this size is decoded once, a larger one as it is read.
const HOT_BYTES: usize = 2 * 1024 * 1024;
/// Locks of the hot objects, so that readers of different objects rarely wait for each other.
const HOT_STRIPES: usize = 16;

/// The form in which an informer stores objects.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectForm {
    /// The bytes, compressed. A read decodes the object, unless it was read or changed recently. The default: the cache
    /// takes a fraction of the memory. When a list arrives, each handler and the first index function decode every
    /// object once. The type must decode equal bytes to equal objects. The decoded object must not be much smaller than
    /// its bytes.
    #[default]
    Compact,
    /// The decoded object. A read is free. For collections that a controller scans in each reconcile.
    Decoded,
}

/// A compressed object.
pub(crate) struct CompactObject {
    header: ObjectHeader,
    /// The labels as JSON: a map takes five times the memory.
    labels: Option<Arc<str>>,
    source: Source,
    length: usize,
    keeps_managed_fields: bool,
    bytes: Box<[u8]>,
}

type Labels = BTreeMap<String, String>;

/// The bytes against which an object is compressed.
enum Source {
    Dictionary(Arc<Vec<u8>>),
    Base(Arc<CompactObject>),
}

/// Compresses the objects of one writer.
#[derive(Default)]
pub(crate) struct Compactor {
    keeps_managed_fields: bool,
    dictionary: Arc<Vec<u8>>,
    /// Bytes for the next dictionary. Each dictionary has twice the size of the previous one, because the objects that
    /// were compressed against a dictionary keep it.
    pending: Vec<u8>,
    /// The base of each controller, by the hash of its UID. Two controllers with one hash only share a base.
    bases: BTreeMap<u64, Weak<CompactObject>>,
    sweep_at: usize,
    /// The base that was used last, with its bytes: lists are sorted, so the next object often has the same base.
    last: Option<(Arc<CompactObject>, Vec<u8>)>,
}

impl CompactObject {
    pub(crate) fn header(&self) -> &ObjectHeader {
        &self.header
    }

    pub(crate) fn labels(&self) -> Option<Labels> {
        let labels = self.labels.as_deref()?;
        Some(serde_json::from_str(labels).expect("the text was created from labels"))
    }

    /// Returns whether the object is decoded with `managedFields`.
    pub(crate) fn keeps_managed_fields(&self) -> bool {
        self.keeps_managed_fields
    }

    /// Returns the bytes of the object.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let expanded = match &self.source {
            Source::Dictionary(dictionary) => decompress_with_dict(&self.bytes, self.length, dictionary),
            Source::Base(base) => decompress_with_dict(&self.bytes, self.length, &base.bytes()),
        };
        expanded.expect("a compact object expands to the bytes it was created from")
    }
}

impl Compactor {
    /// Creates a compactor for objects that are decoded with or without `managedFields`.
    pub(crate) fn new(keeps_managed_fields: bool) -> Self {
        Self { keeps_managed_fields, ..Self::default() }
    }

    /// Returns the compact form of an object with this header and metadata, which were decoded from `raw`.
    pub(crate) fn compact(
        &mut self,
        raw: &[u8],
        head: &ObjectHeader,
        meta: MetadataRef<'_>,
    ) -> Arc<CompactObject> {
        let controller = meta.controller().map(|owner| hash(owner.uid));
        let base = controller.and_then(|it| self.bases.get(&it)).and_then(Weak::upgrade);
        let Some(base) = base else { return self.first(raw, head, meta) };
        let base_bytes = match &self.last {
            Some((last, bytes)) if Arc::ptr_eq(last, &base) => bytes,
            _ => &self.last.insert((Arc::clone(&base), base.bytes())).1,
        };
        let bytes = compress_with_dict(raw, base_bytes);
        if bytes.len() * POOR_RATIO > raw.len() {
            return self.first(raw, head, meta);
        }
        // Pods of one controller usually have the same labels.
        let labels = labels_of(meta);
        let labels = if labels == base.labels { base.labels.clone() } else { labels };
        Arc::new(self.object(raw, head, labels, Source::Base(base), bytes))
    }

    /// Compresses an object against the dictionary. It becomes the base of its controller, and a part of the
    /// dictionary if nothing similar is there.
    fn first(&mut self, raw: &[u8], head: &ObjectHeader, meta: MetadataRef<'_>) -> Arc<CompactObject> {
        let dictionary = Arc::clone(&self.dictionary);
        let used = dictionary.len().min(raw.len() * DICTIONARY_MULTIPLE);
        // Matches are distances from the end of the dictionary, so the whole dictionary expands them too.
        let bytes = compress_with_dict(raw, &dictionary[dictionary.len() - used..]);
        if bytes.len() * GOOD_RATIO > raw.len() {
            self.extend_dictionary(raw);
        }
        let source = Source::Dictionary(dictionary);
        let object = Arc::new(self.object(raw, head, labels_of(meta), source, bytes));
        if let Some(owner) = meta.controller().filter(|_| raw.len() <= MAX_BASE) {
            self.sweep();
            self.bases.insert(hash(owner.uid), Arc::downgrade(&object));
        }
        object
    }

    fn extend_dictionary(&mut self, raw: &[u8]) {
        if self.dictionary.len() + self.pending.len() + raw.len() > MAX_DICTIONARY {
            return;
        }
        self.pending.extend_from_slice(raw);
        if self.pending.len() >= self.dictionary.len() {
            self.dictionary = Arc::new([&self.dictionary[..], &self.pending].concat());
            self.pending.clear();
        }
    }

    fn object(
        &self,
        raw: &[u8],
        head: &ObjectHeader,
        labels: Option<Arc<str>>,
        source: Source,
        bytes: Vec<u8>,
    ) -> CompactObject {
        let Self { keeps_managed_fields, .. } = *self;
        let (header, length, bytes) = (head.clone(), raw.len(), bytes.into_boxed_slice());
        CompactObject { header, labels, source, length, keeps_managed_fields, bytes }
    }

    /// Removes bases that no object uses, once for each doubling of their number.
    fn sweep(&mut self) {
        if self.bases.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.bases.retain(|_, base| base.strong_count() > 0);
            self.sweep_at = 2 * self.bases.len();
        }
    }
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    FixedState::default().hash_one(value)
}

fn labels_of(meta: MetadataRef<'_>) -> Option<Arc<str>> {
    let labels: BTreeMap<_, _> = meta.labels().iter().collect();
    let text = || serde_json::to_string(&labels).expect("a map of texts has a JSON form");
    (!labels.is_empty()).then(|| text().into())
}

/// Decoded objects that were read or changed recently, at most [`HOT_BYTES`] by their size on the wire.
pub(crate) struct HotObjects {
    stripes: [Mutex<HotStripe>; HOT_STRIPES],
}

/// An object in both forms.
struct HotObject {
    compact: Arc<CompactObject>,
    decoded: Object,
    /// Whether a later state of the object is hot.
    is_previous: bool,
}

/// Objects, at most two states of each: in the order of their decoding, a previous state next to its successor.
#[derive(Default)]
struct HotStripe {
    objects: VecDeque<HotObject>,
    bytes: usize,
}

impl HotStripe {
    fn take(&mut self, which: impl Fn(&HotObject) -> bool) -> Option<HotObject> {
        let at = self.objects.iter().position(which)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<HotObject> {
        let removed = self.objects.remove(at)?;
        self.bytes -= removed.compact.length;
        Some(removed)
    }

    fn push(&mut self, object: HotObject) {
        self.bytes += object.compact.length;
        self.objects.push_back(object);
    }

    /// Removes one object but the last two, if possible a previous state: handlers have received it.
    fn evict(&mut self) -> Option<HotObject> {
        let candidates = self.objects.len().saturating_sub(2);
        let previous = self.objects.iter().take(candidates).position(|it| it.is_previous);
        self.remove(previous.unwrap_or(0))
    }
}

impl HotObjects {
    pub(crate) fn new() -> Self {
        Self { stripes: Default::default() }
    }

    /// Returns the decoded form of this object if it is hot.
    pub(crate) fn get(&self, compact: &Arc<CompactObject>) -> Option<Object> {
        let stripe = self.stripe(&compact.header.key).lock().unwrap_or_else(PoisonError::into_inner);
        let hot = stripe.objects.iter().rev().find(|it| Arc::ptr_eq(&it.compact, compact));
        hot.map(|it| Arc::clone(&it.decoded))
    }

    /// Adds a decoded object, and removes others above the limit. Its previous state stays, because handlers receive
    /// both.
    pub(crate) fn insert(&self, compact: Arc<CompactObject>, decoded: Object) {
        // Dropped after the lock: objects can have a type of the user.
        let mut removed = Vec::new();
        let key = &compact.header.key;
        let mut stripe = self.stripe(key).lock().unwrap_or_else(PoisonError::into_inner);
        // Two readers can decode the same state at the same time.
        if stripe.objects.iter().any(|it| Arc::ptr_eq(&it.compact, &compact)) {
            return;
        }
        removed.extend(stripe.take(|it| it.is_previous && it.compact.header.key == *key));
        if let Some(previous) = stripe.take(|it| it.compact.header.key == *key) {
            stripe.push(HotObject { is_previous: true, ..previous });
        }
        stripe.push(HotObject { compact, decoded, is_previous: false });
        // The newest object stays, whatever its size.
        while stripe.bytes > HOT_BYTES / HOT_STRIPES && stripe.objects.len() > 1 {
            removed.extend(stripe.evict());
        }
        drop(stripe);
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        let mut removed = Vec::new();
        let mut stripe = self.stripe(key).lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(object) = stripe.take(|it| it.compact.header.key == *key) {
            removed.push(object);
        }
        drop(stripe);
    }

    fn stripe(&self, key: &ObjectKey) -> &Mutex<HotStripe> {
        let stripe = usize::try_from(hash(key) % HOT_STRIPES as u64);
        &self.stripes[stripe.expect("it is less than the number of stripes")]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ObjectMeta;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, owner: Option<&str>, text: &str) -> Value {
        let owners = owner.map(
            |uid| json!([{ "apiVersion": "v1", "kind": "K", "name": "o", "uid": uid, "controller": true }]),
        );
        json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "resourceVersion": "7", "labels": { "app": "web" },
                "ownerReferences": owners,
            },
            "spec": { "containers": [{ "name": "c", "image": "registry.example.com/team/app:v1", "args": [text] }] },
        })
    }

    fn compacted(compactor: &mut Compactor, object: &Value) -> (Vec<u8>, Arc<CompactObject>) {
        let raw = serde_json::to_vec(object).unwrap();
        let meta: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        let compact = compactor.compact(&raw, &ObjectHeader::of(&meta), (&meta).into());
        (raw, compact)
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map("[a-z]{1,6}", inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn objects_expand_to_their_bytes(
            objects in proptest::collection::vec((any_value(), proptest::option::of("[ab]")), 1..20),
        ) {
            let mut compactor = Compactor::default();
            let stored: Vec<_> = objects.iter().enumerate().map(|(i, (value, owner))| {
                let mut object = pod(&format!("p{i}"), owner.as_deref(), "x");
                object["status"] = value.clone();
                compacted(&mut compactor, &object)
            }).collect();
            for (raw, compact) in stored {
                prop_assert_eq!(compact.bytes(), raw);
            }
        }
    }

    #[test]
    fn object_is_small_next_to_objects_of_its_controller() {
        let mut compactor = Compactor::default();
        let text = "a text that is not in another object ".repeat(8);
        let (_, first) = compacted(&mut compactor, &pod("a", Some("owner"), &text));
        let (raw, second) = compacted(&mut compactor, &pod("b", Some("owner"), &text));
        assert!(matches!(second.source, Source::Base(_)));
        assert!(second.bytes.len() * 5 < raw.len(), "{} of {}", second.bytes.len(), raw.len());
        assert!(
            Arc::ptr_eq(first.labels.as_ref().unwrap(), second.labels.as_ref().unwrap()),
            "labels are shared"
        );
    }

    #[test]
    fn object_outlives_its_base_and_dictionary() {
        let mut compactor = Compactor::default();
        let (_, base) = compacted(&mut compactor, &pod("a", Some("owner"), "first"));
        let (raw, object) = compacted(&mut compactor, &pod("b", Some("owner"), "second"));
        drop((compactor, base));
        assert_eq!(object.bytes(), raw);
    }

    #[test]
    fn bases_without_objects_are_removed() {
        let mut compactor = Compactor::default();
        for i in 0..10 * MIN_SWEEP {
            drop(compacted(&mut compactor, &pod("a", Some(&i.to_string()), "x")));
        }
        assert!(compactor.bases.len() <= MIN_SWEEP, "{}", compactor.bases.len());
    }

    #[test]
    fn dictionary_is_bounded() {
        let mut compactor = Compactor::default();
        let mut generations = std::collections::BTreeSet::new();
        for i in 0..200 {
            compacted(&mut compactor, &pod(&i.to_string(), None, &noise(i, 400)));
            generations.insert(compactor.dictionary.len());
        }
        assert!(compactor.dictionary.len() + compactor.pending.len() <= MAX_DICTIONARY);
        assert!(generations.len() <= 6, "{generations:?}");
    }

    /// Returns text in which nothing repeats.
    fn noise(seed: u64, length: usize) -> String {
        let mut number = seed;
        let letters = std::iter::repeat_with(|| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + u8::try_from((number >> 33) % 26).unwrap())
        });
        letters.take(length).collect()
    }

    #[test]
    fn object_unlike_its_base_gets_a_new_base() {
        let mut compactor = Compactor::default();
        let (_, small) = compacted(&mut compactor, &pod("a", Some("owner"), "x"));
        let (raw, other) = compacted(&mut compactor, &pod("b", Some("owner"), &noise(1, 2000)));
        assert!(matches!(other.source, Source::Dictionary(_)));
        let (_, third) = compacted(&mut compactor, &pod("c", Some("owner"), &noise(1, 2000)));
        assert!(matches!(&third.source, Source::Base(base) if Arc::ptr_eq(base, &other)));
        assert_eq!((other.bytes(), small.bytes().is_empty()), (raw, false));
    }

    #[test]
    fn large_object_is_not_a_base() {
        let mut compactor = Compactor::default();
        let object = pod("a", Some("owner"), &"x".repeat(MAX_BASE));
        let (raw, large) = compacted(&mut compactor, &object);
        assert!(compactor.bases.is_empty());
        assert_eq!(large.bytes(), raw);
    }

    #[test]
    fn last_two_states_of_an_object_are_hot() {
        let (hot, mut compactor) = (HotObjects::new(), Compactor::default());
        let states = ["a", "b", "c"].map(|text| compacted(&mut compactor, &pod("web", None, text)).1);
        // Two readers add the last state.
        for state in states.iter().chain([&states[2]]) {
            hot.insert(Arc::clone(state), Arc::new(Pod::default()));
        }
        assert_eq!(states.each_ref().map(|state| hot.get(state).is_some()), [false, true, true]);
        hot.remove(&states[2].header.key);
        assert!(states.iter().all(|state| hot.get(state).is_none()), "a deleted object is not hot");
    }

    #[test]
    fn current_objects_stay_hot_before_previous_states() {
        let (mut stripe, mut compactor) = (HotStripe::default(), Compactor::default());
        for (name, is_previous) in [("a", false), ("b", true), ("b", false), ("c", true), ("c", false)] {
            let (_, compact) = compacted(&mut compactor, &pod(name, None, "text"));
            stripe.push(HotObject { compact, decoded: Arc::new(Pod::default()), is_previous });
        }
        let evicted: Vec<_> = std::iter::from_fn(|| stripe.evict())
            .map(|it| (it.compact.header.key.name().to_owned(), it.is_previous))
            .collect();
        let expected = [("b", true), ("a", false), ("b", false), ("c", true), ("c", false)];
        assert_eq!(evicted, expected.map(|(name, is_previous)| (name.to_owned(), is_previous)));
        assert_eq!(stripe.bytes, 0);
    }

    #[test]
    fn hot_objects_are_bounded_by_their_size() {
        let (hot, mut compactor) = (HotObjects::new(), Compactor::default());
        let mut last = None;
        for i in 0..3000 {
            let (_, compact) = compacted(&mut compactor, &pod(&i.to_string(), None, &"x".repeat(2000)));
            hot.insert(Arc::clone(&compact), Arc::new(Pod::default()));
            last = Some(compact);
        }
        assert!(hot.get(&last.unwrap()).is_some(), "the newest object is hot");
        let bytes: usize = hot.stripes.iter().map(|stripe| stripe.lock().unwrap().bytes).sum();
        let objects = hot.stripes.iter().flat_map(|stripe| {
            stripe.lock().unwrap().objects.iter().map(|it| it.compact.length).collect::<Vec<_>>()
        });
        assert_eq!(bytes, objects.sum::<usize>());
        assert!(bytes <= HOT_BYTES && bytes > HOT_BYTES / 2, "{bytes}");
    }
}
