//! Bytes in, items out: where objects are decoded, one by one.
//!
//! An object that cannot be decoded becomes an item that says so, with the head read off its bytes; it never
//! fails its neighbors. So does one that the transform of its user refuses. An object that is already held at the same
//! version is not decoded again, and not transformed again; a quarantined object is, in every list, and a failure at a
//! version that was reported is not reported again. A page of any length is decoded a few objects at a time, with room
//! for other tasks in between. What would pass the byte budget is refused before it is decoded; what is of another part,
//! because the source sent more than it was asked for, is left out before that, by what its beginning says: whether the
//! rest of it is sound is for those to judge who keep it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_client::RequestError;
use windlass_env::catch_panic_sync;
use windlass_metrics::InformerMetrics;
use windlass_object::{ObjectHeader, ObjectKey, ResourceVersion, WireError, wire};

use crate::budget::{ByteBudget, ListReservation, OverBudget};
use crate::delta_fifo::{Body, Item};
use crate::erased::{AnyDecoder, Codec, HeadOf, Object};
use crate::partition::Partition;
use crate::settings::{IngestOptions, Transform};
use crate::store::{Snapshot, Store};
use crate::sync::yield_now;

/// How many objects are decoded without a pause: few enough to be done in about a millisecond.
const CHUNK: usize = 64;

/// The decoder of one part of an informer, and what is already held.
pub(crate) struct ObjectIngest {
    informer: Arc<str>,
    partition: Partition,
    head: HeadOf,
    decoder: Box<dyn AnyDecoder>,
    transform: Option<Transform>,
    budget: Arc<ByteBudget>,
    /// The books of the list that is under way.
    tally: Option<ListReservation>,
    store: Arc<Store<Object>>,
    metrics: InformerMetrics,
    /// Whether the source has sent what it was not asked for.
    unfiltered: bool,
}

/// What a frame of a watch, or of a list that comes as a stream, is about.
pub(crate) enum FrameContent {
    /// An object of this part.
    Ours(Item<Object>),
    /// An object of another part, at this version, if that can be read.
    Foreign(Option<ResourceVersion>),
}

/// Whose an object is.
enum ShardCheck {
    Ours(ObjectHeader),
    /// Of another part, at this version.
    Foreign(Option<ResourceVersion>),
}

impl ObjectIngest {
    pub(crate) fn new(
        informer: Arc<str>,
        partition: Partition,
        codec: &Codec,
        store: Arc<Store<Object>>,
        metrics: InformerMetrics,
        admission: IngestOptions,
    ) -> Self {
        let IngestOptions { keep_managed_fields, transform, budget } = admission;
        let mut decoder = codec.decoder();
        if keep_managed_fields {
            decoder.keep_managed_fields();
        }
        Self {
            informer,
            partition,
            head: codec.head,
            decoder,
            transform,
            budget,
            tally: None,
            store,
            metrics,
            unfiltered: false,
        }
    }

    /// Notes that a list begins, which replaces all that is held of this part.
    pub(crate) fn begin_list(&mut self) {
        // Whatever was begun before is given up first, for of a part there is one at a time.
        self.give_up_list();
        self.tally = Some(self.budget.begin_list(&self.partition));
    }

    /// Notes that the list that was begun will not be taken in, and takes up no room any more.
    pub(crate) fn give_up_list(&mut self) {
        self.tally = None;
    }

    /// Notes that the list that was begun has been taken in whole, and is about to be passed on.
    pub(crate) fn list_fits(&mut self) {
        if let Some(tally) = self.tally.take() {
            tally.complete();
        }
    }

    /// How long a page may be, in bytes, that could be held; `None` for any. Where the rest is left out here, since
    /// the server does not know of shards, a page says nothing about how much of it is ours.
    pub(crate) fn longest_page(&self) -> Option<u64> {
        match self.partition {
            Partition::Shard(_) => None,
            Partition::Whole | Partition::Namespace(_) => self.budget.longest_page(),
        }
    }

    /// Notes that a page was longer than that; returns what there is to say about it.
    pub(crate) fn page_too_long(&self) -> RequestError {
        self.budget.page_too_long(&self.partition).map_or_else(lifted_meanwhile, no_room)
    }

    /// Whether what is held of this part at a version is what the server has at that version.
    pub(crate) fn trusts(&self, partition: &Partition) -> bool {
        self.store.snapshot().progress().trusts(partition)
    }

    /// The items of a page. `trust` says whether an object held at a version is what the server has at that
    /// version.
    ///
    /// An item without a readable head is reported and left out: which object it is nobody can say. So is, in silence,
    /// one of another part.
    ///
    /// # Errors
    /// [`RequestError::NoRoom`] if the list that this page belongs to does not fit into the budget.
    ///
    /// # Cancel safety
    /// Dropping the future drops what was decoded.
    pub(crate) async fn page(
        &mut self,
        raws: &[Bytes],
        trust: bool,
    ) -> Result<Vec<Item<Object>>, RequestError> {
        let held = trust.then(|| self.store.snapshot());
        let mut items = Vec::with_capacity(raws.len());
        for chunk in raws.chunks(CHUNK) {
            for raw in chunk {
                items.extend(self.listed(raw, held.as_deref()).map_err(no_room)?);
            }
            yield_now().await;
        }
        Ok(items)
    }

    /// An object of a list that comes as a stream; `trust` is that of [`page`](Self::page). `told` says what the stream
    /// has told of it before, whose place it takes.
    ///
    /// # Errors
    /// If its head cannot be read, or if the list does not fit into the budget.
    pub(crate) fn initial(
        &mut self,
        raw: &Bytes,
        trust: bool,
        told: &BTreeMap<ObjectKey, Item<Object>>,
    ) -> Result<FrameContent, RequestError> {
        let head = match self.look(raw)? {
            ShardCheck::Ours(head) => head,
            ShardCheck::Foreign(version) => return Ok(FrameContent::Foreign(version)),
        };
        if let Some(told) = told.get(&head.key) {
            self.take_back(told);
        }
        self.list(raw).map_err(no_room)?;
        let held = trust.then(|| self.store.snapshot());
        let body = self.body(&head, raw, held.as_deref());
        Ok(FrameContent::Ours(Item { head, body, bytes: size(raw) }))
    }

    /// Takes an item of the list that is under way out of its books.
    pub(crate) fn take_back(&self, told: &Item<Object>) {
        if let Some(tally) = &self.tally {
            tally.take_back(told.bytes);
        }
    }

    /// The object of a watch frame.
    ///
    /// # Errors
    /// If its head cannot be read, or if there is no room for it.
    pub(crate) fn item(&mut self, raw: &Bytes) -> Result<FrameContent, RequestError> {
        let head = match self.look(raw)? {
            ShardCheck::Ours(head) => head,
            ShardCheck::Foreign(version) => return Ok(FrameContent::Foreign(version)),
        };
        self.budget.arrive(&self.partition, &head.key, size(raw)).map_err(no_room)?;
        let body = self.decode_or_report(&head, raw);
        Ok(FrameContent::Ours(Item { head, body, bytes: size(raw) }))
    }

    /// The object of a deletion. That its last state cannot be decoded is no reason for alarm.
    ///
    /// # Errors
    /// If its head cannot be read.
    pub(crate) fn deleted(&mut self, raw: &Bytes) -> Result<FrameContent, RequestError> {
        let head = match self.look(raw)? {
            ShardCheck::Ours(head) => head,
            ShardCheck::Foreign(version) => return Ok(FrameContent::Foreign(version)),
        };
        let body = self.decode(&head, raw);
        // It is about to make room.
        Ok(FrameContent::Ours(Item { head, body, bytes: 0 }))
    }

    /// Whose an object is. Of one of another part nothing is checked that need not be read.
    ///
    /// # Errors
    /// If its head cannot be read.
    fn look(&mut self, raw: &Bytes) -> Result<ShardCheck, WireError> {
        let narrowed = self.partition != Partition::Whole;
        if let Some(head) = narrowed.then(|| wire::peek_header(raw)).flatten()
            && self.is_foreign(&head)
        {
            return Ok(ShardCheck::Foreign(head.version));
        }
        let head = wire::object_header(raw).inspect_err(|error| self.report_headless(error))?;
        Ok(if self.is_foreign(&head) { ShardCheck::Foreign(head.version) } else { ShardCheck::Ours(head) })
    }

    /// Whether the object is of another part.
    fn is_foreign(&mut self, head: &ObjectHeader) -> bool {
        let foreign = !self.partition.holds(&head.key, head.uid.as_ref());
        if foreign && !std::mem::replace(&mut self.unfiltered, true) {
            tracing::info!(
                informer = %self.informer, partition = %self.partition,
                "the source sends more than it was asked for; the rest is left out here"
            );
        }
        foreign
    }

    /// An item of a list; nothing if it has no readable head, or is of another part.
    fn listed(
        &mut self,
        raw: &Bytes,
        held: Option<&Snapshot<Object>>,
    ) -> Result<Option<Item<Object>>, OverBudget> {
        let Ok(ShardCheck::Ours(head)) = self.look(raw) else { return Ok(None) };
        self.list(raw)?;
        let body = self.body(&head, raw, held);
        Ok(Some(Item { head, body, bytes: size(raw) }))
    }

    /// Takes an object into the books of the list that is under way.
    fn list(&mut self, raw: &Bytes) -> Result<(), OverBudget> {
        let listed = self.tally.as_ref().map_or(Ok(()), |tally| tally.list(size(raw)));
        if listed.is_err() {
            self.give_up_list();
        }
        listed
    }

    /// Returns what a list says of an object: what is held at its version, or else what its bytes decode to.
    fn body(&mut self, head: &ObjectHeader, raw: &Bytes, held: Option<&Snapshot<Object>>) -> Body<Object> {
        match held {
            // Its failure at this version was reported.
            Some(held) if is_quarantined(held, head) => self.decode(head, raw),
            held => match held.and_then(|held| already_held(held, self.head, head)) {
                Some(object) => Body::Decoded(object),
                None => self.decode_or_report(head, raw),
            },
        }
    }

    fn decode_or_report(&mut self, head: &ObjectHeader, raw: &Bytes) -> Body<Object> {
        let body = self.decode(head, raw);
        if let Body::Undecodable { error, .. } = &body {
            self.metrics.decode_failures.inc();
            tracing::warn!(
                informer = %self.informer, key = %head.key, error = %error,
                "an object cannot be decoded and is put in quarantine until it changes"
            );
        }
        body
    }

    /// Decodes and transforms. A decoder or a transform that panics refuses the object like any other, and is used
    /// again.
    fn decode(&mut self, head: &ObjectHeader, raw: &Bytes) -> Body<Object> {
        let decoded = match catch_panic_sync(|| self.decoder.decode(raw)) {
            Ok(Ok(object)) => self.transformed(head, object),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(format!("the decoder panicked: {panic}")),
        };
        decoded.map_or_else(|error| undecodable(error, raw), Body::Decoded)
    }

    fn transformed(&self, head: &ObjectHeader, mut object: Object) -> Result<Object, String> {
        let Some(transform) = &self.transform else { return Ok(object) };
        match catch_panic_sync(|| transform(&mut object)) {
            Ok(Ok(())) if (self.head)(&object) == *head => Ok(object),
            Ok(Ok(())) => Err("the transform changed the name, the UID or the version".to_owned()),
            Ok(Err(error)) => Err(format!("the transform refused it: {error}")),
            Err(panic) => Err(format!("the transform panicked: {panic}")),
        }
    }

    fn report_headless(&self, error: &WireError) {
        self.metrics.decode_failures.inc();
        tracing::warn!(informer = %self.informer, %error, "an object without a readable name cannot be kept");
    }
}

fn undecodable(error: String, raw: &Bytes) -> Body<Object> {
    Body::Undecodable { error: error.into(), metadata: windlass_object::metadata(raw).map(Arc::new) }
}

fn lifted_meanwhile() -> RequestError {
    RequestError::NoRoom(
        "the list was longer than the byte budget, which has been lifted meanwhile".to_owned(),
    )
}

fn no_room(refusal: OverBudget) -> RequestError {
    RequestError::NoRoom(refusal.to_string())
}

fn size(raw: &Bytes) -> u32 {
    u32::try_from(raw.len()).unwrap_or(u32::MAX)
}

/// Returns the object that is held, if it is held at the version that was told. A quarantined object is decoded again: a
/// server that converts objects can send other bytes at the same version.
fn already_held(held: &Snapshot<Object>, head: HeadOf, told: &ObjectHeader) -> Option<Object> {
    // Without a version nobody can say that nothing changed.
    told.version.as_ref()?;
    held.objects().get(&told.key).filter(|object| head(object) == *told).cloned()
}

/// Whether the object is in quarantine at the version that was told, so that its failure was reported.
fn is_quarantined<S>(held: &Snapshot<S>, told: &ObjectHeader) -> bool {
    held.quarantined().get(&told.key).is_some_and(|it| it.uid == told.uid && it.version == told.version)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use windlass_metrics::Metrics;
    use windlass_object::{DecodeError, Decoder, Representation, ResourceKind, Typed};

    use super::*;
    use crate::delta_fifo::{Batch, Delta, ListMetadata};
    use crate::erased;
    use crate::store::StoreWriter;
    use crate::testing::{at, object, undecodable};

    type Map = Typed<ConfigMap>;

    fn intake() -> (ObjectIngest, StoreWriter<Object>, InformerMetrics) {
        intake_with(None, None)
    }

    fn intake_with(
        transform: Option<Transform>,
        limit: Option<u64>,
    ) -> (ObjectIngest, StoreWriter<Object>, InformerMetrics) {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let (store, budget) = (Arc::new(Store::new()), Arc::new(ByteBudget::new(limit, metrics.clone())));
        let admission = IngestOptions { keep_managed_fields: false, transform, budget: Arc::clone(&budget) };
        let codec = Codec::of(Map::new());
        let intake = part(&codec, &store, &metrics, admission);
        (intake, StoreWriter::new(store, codec.head, budget), metrics)
    }

    fn part(
        codec: &Codec,
        store: &Arc<Store<Object>>,
        metrics: &InformerMetrics,
        admission: IngestOptions,
    ) -> ObjectIngest {
        let (store, metrics) = (Arc::clone(store), metrics.clone());
        ObjectIngest::new("configmaps".into(), Partition::Whole, codec, store, metrics, admission)
    }

    fn keep(writer: &mut StoreWriter<Object>, items: Vec<Item<Object>>) {
        let list =
            ListMetadata { partition: Partition::Whole, version: at(5), consistent: true, initial: true };
        let deltas = items.into_iter().map(Delta::Replaced).collect();
        writer.apply(Batch::Replacement { deltas, list });
    }

    fn ours(told: FrameContent) -> Item<Object> {
        match told {
            FrameContent::Ours(item) => item,
            FrameContent::Foreign(version) => panic!("left out at {version:?}"),
        }
    }

    fn decoded(item: &Item<Object>) -> Option<Arc<ConfigMap>> {
        match &item.body {
            Body::Decoded(object) => Some(erased::shared(object)),
            Body::Undecodable { .. } => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_at_the_same_version_is_not_decoded_again_unless_versions_cannot_be_trusted() {
        let (mut intake, mut writer, metrics) = intake();
        let raws = [object("a", "u", 1, "v"), undecodable("b", "w", 2)];
        let first = intake.page(&raws, true).await.unwrap();
        keep(&mut writer, first.clone());
        let again = intake.page(&raws, true).await.unwrap();
        assert!(Arc::ptr_eq(&decoded(&first[0]).unwrap(), &decoded(&again[0]).unwrap()));
        assert_eq!((decoded(&again[1]), metrics.decode_failures.get()), (None, 1));
        let distrusted = intake.page(&raws, false).await.unwrap();
        assert!(!Arc::ptr_eq(&decoded(&first[0]).unwrap(), &decoded(&distrusted[0]).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn another_object_of_the_same_name_and_version_is_decoded() {
        let (mut intake, mut writer, _) = intake();
        let first = intake.page(&[object("a", "u", 1, "v")], true).await.unwrap();
        keep(&mut writer, first.clone());
        let other = intake.page(&[object("a", "other", 1, "w")], true).await.unwrap();
        assert!(!Arc::ptr_eq(&decoded(&first[0]).unwrap(), &decoded(&other[0]).unwrap()));
    }

    #[test]
    fn what_is_broken_beyond_the_beginning_of_an_object_is_judged_by_the_part_it_is_of_alone() {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let (store, budget) = (Arc::new(Store::new()), Arc::new(ByteBudget::new(None, metrics.clone())));
        let admission = IngestOptions { keep_managed_fields: false, transform: None, budget };
        let (ours, codec) = (Partition::Namespace("shop".into()), Codec::of(Map::new()));
        let mut intake =
            ObjectIngest::new("configmaps".into(), ours, &codec, store, metrics.clone(), admission);
        let broken = |namespace: &str| {
            let meta = format!(r#"{{"name":"a","namespace":"{namespace}","uid":"u","resourceVersion":"7"}}"#);
            Bytes::from(format!(r#"{{"metadata":{meta},"data":"#))
        };
        let foreign = |told| matches!(told, Ok(FrameContent::Foreign(version)) if version == Some(at(7)));
        assert!(foreign(intake.item(&broken("depot"))) && foreign(intake.deleted(&broken("depot"))));
        assert_eq!(metrics.decode_failures.get(), 0);
        assert!(intake.item(&broken("shop")).is_err());
        assert_eq!(metrics.decode_failures.get(), 1);
    }

    #[test]
    fn long_page_leaves_room_for_other_tasks_while_it_is_decoded() {
        let (mut intake, ..) = intake();
        let raws: Vec<_> = (0..CHUNK * 3).map(|n| object(&format!("o{n}"), "u", 1, "v")).collect();
        let mut page = pin!(intake.page(&raws, true));
        let mut pauses = 0;
        let items = loop {
            match page.as_mut().now_or_never() {
                Some(items) => break items.unwrap(),
                None => pauses += 1,
            }
        };
        assert_eq!((items.len(), pauses), (raws.len(), 3));
    }

    /// Refuses by panicking.
    struct Brittle;

    impl Representation for Brittle {
        type Object = ConfigMap;
        type Decoder = Brittle;

        fn kind(&self) -> ResourceKind {
            ResourceKind::of::<ConfigMap>()
        }

        fn decoder(&self) -> Brittle {
            Brittle
        }
    }

    impl Decoder for Brittle {
        type Object = ConfigMap;

        fn decode(&mut self, raw: &Bytes) -> Result<ConfigMap, DecodeError> {
            let mut decoder = Map::new().decoder();
            Ok(decoder.decode(raw).expect("a sound object"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn decoder_that_panics_refuses_one_object_and_is_used_again() {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let budget = Arc::new(ByteBudget::new(None, metrics.clone()));
        let admission = IngestOptions { keep_managed_fields: false, transform: None, budget };
        let mut intake = part(&Codec::of(Brittle), &Arc::new(Store::new()), &metrics, admission);
        let items = intake.page(&[undecodable("a", "u", 1), object("b", "w", 2, "v")], true).await.unwrap();
        assert!(matches!(&items[0].body, Body::Undecodable { error, .. } if error.contains("panicked")));
        assert!(decoded(&items[1]).is_some());
    }

    fn reason(item: &Item<Object>) -> &str {
        match &item.body {
            Body::Decoded(_) => "",
            Body::Undecodable { error, .. } => error,
        }
    }

    /// Drops the data, refuses `b`, panics at `c`, renames `d`.
    fn moody(map: &mut Object) -> Result<(), String> {
        let map: &mut ConfigMap = Arc::get_mut(map).and_then(|map| map.downcast_mut()).expect("just decoded");
        map.data = None;
        match map.metadata.name.as_deref() {
            Some("b") => Err("not b".to_owned()),
            Some("c") => panic!("a bug in a transform"),
            Some("d") => {
                map.metadata.name = Some("a".to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // parity: transformer-runs-enqueue-twice, test-store-resource-version-with-non, errors-store-transform-lose
    // parity: transformers-per-kind-default
    #[tokio::test(start_paused = true)]
    async fn transform_that_refuses_panics_or_renames_costs_that_object_alone() {
        let (mut intake, _, metrics) = intake_with(Some(Arc::new(moody)), None);
        let raws = ["a", "b", "c", "d", "e"].map(|name| object(name, "u", 1, "v"));
        let items = intake.page(&raws, true).await.unwrap();
        let reasons: Vec<_> = items.iter().map(reason).collect();
        let expected = [
            "",
            "the transform refused it: not b",
            "the transform panicked: a bug in a transform",
            "the transform changed the name, the UID or the version",
            "",
        ];
        assert_eq!((reasons, metrics.decode_failures.get()), (expected.to_vec(), 3));
        assert!(items.iter().filter_map(decoded).all(|map| map.data.is_none()));
    }

    // parity: transformer-runs-enqueue-twice, test-transforming-informer, transformers-per-kind-default
    #[tokio::test(start_paused = true)]
    async fn transform_sees_every_state_that_is_decoded_once_and_deletions_too() {
        let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let counting = move |_: &mut Object| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        };
        let (mut intake, mut writer, _) = intake_with(Some(Arc::new(counting)), None);
        let raws = [object("a", "u", 1, "v"), object("b", "w", 2, "v")];
        let items = intake.page(&raws, true).await.unwrap();
        keep(&mut writer, items);
        intake.page(&raws, true).await.unwrap();
        intake.item(&object("a", "u", 3, "v")).unwrap();
        intake.deleted(&object("a", "u", 4, "v")).unwrap();
        assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 4);
    }

    // parity: memory-caches-selector-per, memory-22-7-k
    #[tokio::test(start_paused = true)]
    async fn list_that_does_not_fit_is_given_up_before_the_object_too_many_is_decoded() {
        let raws: Vec<_> = (0..10).map(|n| object(&format!("o{n}"), "u", 1, "v")).collect();
        let limit = u64::from(size(&raws[0])) * 3;
        let decoded = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&decoded);
        let counting = move |_: &mut Object| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        };
        let (mut intake, _writer, metrics) = intake_with(Some(Arc::new(counting)), Some(limit));
        intake.begin_list();
        let refusal = intake.page(&raws, true).await.unwrap_err();
        assert!(matches!(refusal, RequestError::NoRoom(_)), "{refusal}");
        assert_eq!(metrics.over_budget.get(), 1);
        assert_eq!(decoded.load(std::sync::atomic::Ordering::Relaxed), 3);
        intake.begin_list();
        assert_eq!(intake.page(&raws[..3], true).await.unwrap().len(), 3, "every list begins at nothing");
    }

    #[test]
    fn what_waits_for_the_store_counts_until_the_store_has_it() {
        let raw = object("a", "u", 1, "v");
        let limit = u64::from(size(&raw)) * 2;
        let (mut intake, mut writer, _) = intake_with(None, Some(limit));
        let first = ours(intake.item(&raw).unwrap());
        let other = ours(intake.item(&object("b", "w", 2, "v")).unwrap());
        assert!(matches!(intake.item(&object("c", "x", 3, "v")), Err(RequestError::NoRoom(_))));
        writer.apply(Batch::Changes(vec![Delta::Added(first), Delta::Added(other)]));
        assert!(intake.item(&object("a", "u", 4, "w")).is_ok(), "it takes the place of what is held");
        assert!(intake.deleted(&object("b", "w", 5, "v")).is_ok(), "an end needs no room");
    }
}
