//! Decodes the bytes of objects into queue items, one by one.
//!
//! An object that cannot be decoded becomes an item with the error and the header from its bytes; it never affects
//! other objects. The same applies to an object that the user's transform rejects. An object that is cached at the same
//! version is neither decoded nor transformed again. An undecodable object is decoded again in every list, but a
//! failure at a known version is reported once.
//!
//! A page is decoded in chunks that yield to other tasks. An object over the byte budget is rejected before it is
//! decoded. An object of another partition (sent by a source that does not filter) is dropped by its header alone; its
//! rest is not validated.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use windlass_client::RequestError;
use windlass_env::catch_panic_sync;
use windlass_metrics::InformerMetrics;
use windlass_object::{MetadataRef, ObjectHeader, Projection, ResourceVersion, WireError, wire};

use super::pending_list::PendingList;

use crate::budget::{ByteBudget, ListReservation, OverBudget};
use crate::compact::{Compactor, ObjectForm};
use crate::delta_fifo::{Body, Item};
use crate::erased::{AnyDecoder, Codec, HeadOf};
use crate::object::Object;
use crate::partition::Partition;
use crate::settings::{IngestOptions, Transform};
use crate::store::{Snapshot, Store};
use crate::yield_now::yield_now;

/// Objects that are decoded without yielding: about one millisecond of work.
const CHUNK: usize = 64;

/// The decoder of one partition of an informer.
pub(crate) struct ObjectIngest {
    informer: Arc<str>,
    partition: Partition,
    codec: Arc<Codec>,
    decoder: Box<dyn AnyDecoder>,
    keeps_managed_fields: bool,
    /// `None` if the store holds decoded objects.
    compactor: Option<Compactor>,
    transform: Option<Transform>,
    budget: Arc<ByteBudget>,
    /// The budget reservation of the list in progress.
    reservation: Option<ListReservation>,
    store: Arc<Store<Object>>,
    metrics: InformerMetrics,
    /// Whether the source has sent objects of other partitions.
    unfiltered: bool,
}

/// The content of a frame of a watch or of a watch-list stream.
pub(crate) enum FrameContent {
    /// An object of this partition.
    InPartition(Item<Object>),
    /// An object of another partition, at this version if it is readable.
    OtherPartition(Option<ResourceVersion>),
}

/// When the decoded form of an object is read.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Access {
    /// By the handlers, with the next batch.
    Soon,
    /// Perhaps never: an object of a list.
    Unknown,
    /// By the handlers, and never again: the object was deleted.
    Once,
}

/// The partition check of an object.
enum PartitionCheck {
    InPartition(ObjectHeader),
    /// An object of another partition, at this version.
    OtherPartition(Option<ResourceVersion>),
}

impl ObjectIngest {
    pub(crate) fn new(
        informer: Arc<str>,
        partition: Partition,
        codec: Arc<Codec>,
        store: Arc<Store<Object>>,
        metrics: InformerMetrics,
        options: IngestOptions,
    ) -> Self {
        let IngestOptions { keep_managed_fields, transform, form, budget } = options;
        let mut decoder = codec.decoder();
        if keep_managed_fields {
            decoder.keep_managed_fields();
        }
        Self {
            informer,
            partition,
            keeps_managed_fields: keep_managed_fields,
            compactor: (form == ObjectForm::Compact).then(|| Compactor::new(keep_managed_fields)),
            codec,
            decoder,
            transform,
            budget,
            reservation: None,
            store,
            metrics,
            unfiltered: false,
        }
    }

    /// Begins a list that replaces all cached objects of this partition.
    pub(crate) fn begin_list(&mut self) {
        // Cancel the previous list first: a partition has one list at a time.
        self.cancel_list();
        self.reservation = Some(self.budget.begin_list(&self.partition));
    }

    /// Cancels the list in progress and releases its reservation.
    pub(crate) fn cancel_list(&mut self) {
        self.reservation = None;
    }

    /// Completes the list in progress, before it is queued.
    pub(crate) fn complete_list(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            reservation.complete();
        }
    }

    /// Returns the maximum size of a page in bytes; `None` for no limit. If shards are filtered in the client, the size
    /// of a page does not describe the objects that are kept.
    pub(crate) fn max_page_bytes(&self) -> Option<u64> {
        match self.partition {
            Partition::Shard(_) => None,
            Partition::Whole | Partition::Namespace(_) => self.budget.max_page_bytes(),
        }
    }

    /// Records a page over the maximum size; returns the error.
    pub(crate) fn reject_page(&self) -> RequestError {
        self.budget.reject_page(&self.partition).map_or_else(budget_removed, budget_exceeded)
    }

    /// Returns whether a cached object at a version equals the server's object at that version.
    pub(crate) fn trusts_versions(&self) -> bool {
        self.store.snapshot().progress().trusts(&self.partition)
    }

    /// Returns the items of a page. `trust` states whether a cached object at a version equals the server's object at
    /// that version.
    ///
    /// An item without a readable header is reported and dropped, because its key is unknown. An item of another
    /// partition is dropped silently.
    ///
    /// # Errors
    /// [`RequestError::BudgetExceeded`] if the list of this page exceeds the byte budget.
    ///
    /// # Cancel safety
    /// Dropping the future drops the decoded items.
    pub(crate) async fn page(
        &mut self,
        raws: &[Bytes],
        trust: bool,
    ) -> Result<Vec<Item<Object>>, RequestError> {
        let held = trust.then(|| self.store.snapshot());
        let mut items = Vec::with_capacity(raws.len());
        for chunk in raws.chunks(CHUNK) {
            for raw in chunk {
                items.extend(self.listed_item(raw, held.as_deref()).map_err(budget_exceeded)?);
            }
            yield_now().await;
        }
        Ok(items)
    }

    /// Returns an object of a watch-list stream; `trust` as in [`page`](Self::page). `known` has the items of the
    /// stream so far, which the object can replace.
    ///
    /// # Errors
    /// If the header cannot be read, or if the list exceeds the byte budget.
    pub(crate) fn streamed_item(
        &mut self,
        raw: &Bytes,
        trust: bool,
        known: &PendingList,
    ) -> Result<FrameContent, RequestError> {
        let head = match self.check_partition(raw)? {
            PartitionCheck::InPartition(head) => head,
            PartitionCheck::OtherPartition(version) => return Ok(FrameContent::OtherPartition(version)),
        };
        if let Some(known) = known.get(&head.key) {
            self.release(known);
        }
        self.reserve(raw).map_err(budget_exceeded)?;
        let held = trust.then(|| self.store.snapshot());
        let body = self.body(&head, raw, held.as_deref());
        Ok(FrameContent::InPartition(self.item_of(head, body, raw)))
    }

    /// Removes an item from the reservation of the list in progress.
    pub(crate) fn release(&self, known: &Item<Object>) {
        if let Some(reservation) = &self.reservation {
            reservation.subtract(known.bytes);
        }
    }

    /// Returns the object of a watch frame.
    ///
    /// # Errors
    /// If the header cannot be read, or if the object exceeds the byte budget.
    pub(crate) fn item(&mut self, raw: &Bytes) -> Result<FrameContent, RequestError> {
        let mut head = match self.check_partition(raw)? {
            PartitionCheck::InPartition(head) => head,
            PartitionCheck::OtherPartition(version) => return Ok(FrameContent::OtherPartition(version)),
        };
        self.budget.reserve_queued(&self.partition, &head.key, size(raw)).map_err(budget_exceeded)?;
        if self.compactor.is_some()
            && let Some((key, _)) = self.store.snapshot().objects().get_key_value(&head.key)
        {
            // The new state shares the key of the stored state, as the indexes do.
            head.key.clone_from(key);
        }
        let body = self.decode_or_report(&head, raw, Access::Soon);
        Ok(FrameContent::InPartition(self.item_of(head, body, raw)))
    }

    /// Returns the object of a deletion. An undecodable final state is not reported.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub(crate) fn deleted(&mut self, raw: &Bytes) -> Result<FrameContent, RequestError> {
        let head = match self.check_partition(raw)? {
            PartitionCheck::InPartition(head) => head,
            PartitionCheck::OtherPartition(version) => return Ok(FrameContent::OtherPartition(version)),
        };
        let body = self.decode(&head, raw, Access::Once);
        // A deletion frees memory, so it needs no reservation.
        Ok(FrameContent::InPartition(Item { head, body, bytes: 0 }))
    }

    /// Checks the partition of an object. An object of another partition is not validated further.
    ///
    /// # Errors
    /// If the header cannot be read.
    fn check_partition(&mut self, raw: &Bytes) -> Result<PartitionCheck, WireError> {
        let narrowed = self.partition != Partition::Whole;
        if let Some(head) = narrowed.then(|| wire::peek_header(raw)).flatten()
            && self.is_foreign(&head)
        {
            return Ok(PartitionCheck::OtherPartition(head.version));
        }
        let head = wire::object_header(raw).inspect_err(|error| self.log_unreadable_header(error))?;
        Ok(if self.is_foreign(&head) {
            PartitionCheck::OtherPartition(head.version)
        } else {
            PartitionCheck::InPartition(head)
        })
    }

    /// Returns whether the object belongs to another partition.
    fn is_foreign(&mut self, head: &ObjectHeader) -> bool {
        let foreign = !self.partition.contains(&head.key, head.uid.as_ref());
        if foreign && !std::mem::replace(&mut self.unfiltered, true) {
            let feature_gate = matches!(self.partition, Partition::Shard(_)).then_some("ShardedListAndWatch");
            tracing::info!(
                informer = %self.informer, partition = %self.partition, feature_gate,
                "source sends objects of other partitions; filtering in the client"
            );
        }
        foreign
    }

    /// Returns an item of a list; `None` if its header is unreadable or if it belongs to another partition.
    fn listed_item(
        &mut self,
        raw: &Bytes,
        held: Option<&Snapshot<Object>>,
    ) -> Result<Option<Item<Object>>, OverBudget> {
        let Ok(PartitionCheck::InPartition(head)) = self.check_partition(raw) else { return Ok(None) };
        self.reserve(raw)?;
        let body = self.body(&head, raw, held);
        Ok(Some(self.item_of(head, body, raw)))
    }

    /// Returns an item whose header shares the key of a view, so that a cache holds the text once, until the view
    /// changes.
    fn item_of(&self, mut head: ObjectHeader, body: Body<Object>, raw: &Bytes) -> Item<Object> {
        if let Body::Decoded(object) = &body
            && self.compactor.is_none()
            && let MetadataRef::Compact(metadata) = (self.codec.meta)(object)
            && metadata.header.key == head.key
        {
            head.key.clone_from(&metadata.header.key);
        }
        Item { head, body, bytes: size(raw) }
    }

    /// Adds an object to the reservation of the list in progress.
    fn reserve(&mut self, raw: &Bytes) -> Result<(), OverBudget> {
        let listed = self.reservation.as_ref().map_or(Ok(()), |reservation| reservation.list(size(raw)));
        if listed.is_err() {
            self.cancel_list();
        }
        listed
    }

    /// Returns the body of a listed object: the cached object at its version, or else the decoded bytes.
    fn body(&mut self, head: &ObjectHeader, raw: &Bytes, held: Option<&Snapshot<Object>>) -> Body<Object> {
        match held {
            // The failure at this version was already reported.
            Some(held) if is_undecodable(held, head) => self.decode(head, raw, Access::Unknown),
            held => match held.and_then(|held| is_cached(held, self.codec.head, head)) {
                Some(object) => Body::Decoded(object),
                None => self.decode_or_report(head, raw, Access::Unknown),
            },
        }
    }

    fn decode_or_report(&mut self, head: &ObjectHeader, raw: &Bytes, access: Access) -> Body<Object> {
        let body = self.decode(head, raw, access);
        if let Body::Undecodable { error, .. } = &body {
            self.metrics.decode_failures.inc();
            tracing::warn!(
                informer = %self.informer, key = %head.key, error = %error,
                "object cannot be decoded; retried when it changes and in every list"
            );
        }
        body
    }

    /// Decodes and transforms an object. A panic of the decoder or the transform counts as an error of that object;
    /// both are used again.
    fn decode(&mut self, head: &ObjectHeader, raw: &Bytes, access: Access) -> Body<Object> {
        let raw = &self.kept(raw);
        if let Some(compact) = self.compacted(head, raw, access) {
            return Body::Decoded(compact);
        }
        let decoded = match catch_panic_sync(|| self.decoder.decode(raw)) {
            Ok(Ok(object)) => self.transformed(head, object),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(format!("the decoder panicked: {panic}")),
        };
        decoded.map_or_else(
            |error| undecodable(error, raw),
            |object| Body::Decoded(self.stored(head, raw, object, access)),
        )
    }

    /// Returns the compact form of a listed object that is proved to be decodable, so it is decoded when it is read.
    fn compacted(&mut self, head: &ObjectHeader, raw: &Bytes, access: Access) -> Option<Object> {
        let Self { compactor: Some(compactor), transform: None, decoder, .. } = self else { return None };
        if access != Access::Unknown {
            return None;
        }
        let metadata = catch_panic_sync(|| decoder.provable_metadata(raw)).ok()??;
        Some(compactor.compact(raw, head, (&metadata).into()))
    }

    /// Returns the bytes of an object that are decoded, and stored if the store is compact. A server can send more than
    /// was requested.
    fn kept(&self, raw: &Bytes) -> Bytes {
        let kept = match (&self.compactor, self.codec.projection) {
            (None, _) => Cow::Borrowed(&**raw),
            (Some(_), Projection::Metadata) => wire::metadata_alone(raw),
            (Some(_), Projection::Full) if self.keeps_managed_fields => Cow::Borrowed(&**raw),
            (Some(_), Projection::Full) => wire::without_managed_fields(raw),
        };
        match kept {
            Cow::Borrowed(_) => raw.clone(),
            Cow::Owned(bytes) => bytes.into(),
        }
    }

    /// Returns a decoded object in the form in which it is stored.
    fn stored(&mut self, head: &ObjectHeader, raw: &Bytes, decoded: Object, access: Access) -> Object {
        match &mut self.compactor {
            // The last state of a deleted object is not stored.
            Some(_) if access == Access::Once => decoded,
            Some(compactor) => self.codec.compact(compactor, raw, head, decoded, access == Access::Soon),
            None => decoded,
        }
    }

    fn transformed(&self, head: &ObjectHeader, mut object: Object) -> Result<Object, String> {
        let Some(transform) = &self.transform else { return Ok(object) };
        match catch_panic_sync(|| transform(&mut object)) {
            Ok(Ok(())) if (self.codec.head)(&object) == *head => Ok(object),
            Ok(Ok(())) => Err("the transform changed the name, the UID or the version".to_owned()),
            Ok(Err(error)) => Err(format!("the transform rejected the object: {error}")),
            Err(panic) => Err(format!("the transform panicked: {panic}")),
        }
    }

    fn log_unreadable_header(&self, error: &WireError) {
        self.metrics.decode_failures.inc();
        tracing::warn!(informer = %self.informer, %error, "object without a readable name dropped");
    }
}

fn undecodable(error: String, raw: &Bytes) -> Body<Object> {
    Body::Undecodable { error: error.into(), metadata: windlass_object::metadata(raw).map(Arc::new) }
}

fn budget_removed() -> RequestError {
    RequestError::BudgetExceeded(
        "the list exceeded the byte budget, which was removed in the meantime".to_owned(),
    )
}

fn budget_exceeded(refusal: OverBudget) -> RequestError {
    RequestError::BudgetExceeded(refusal.to_string())
}

fn size(raw: &Bytes) -> u32 {
    u32::try_from(raw.len()).unwrap_or(u32::MAX)
}

/// Returns the cached object if its header equals `observed`. An undecodable object is decoded again, because a
/// converting server can send other bytes at the same version.
fn is_cached(held: &Snapshot<Object>, head: HeadOf, observed: &ObjectHeader) -> Option<Object> {
    // Without a version, equality proves nothing.
    observed.version.as_ref()?;
    held.objects().get(&observed.key).filter(|object| head(object) == *observed).cloned()
}

/// Returns whether the object is undecodable at this version, so that its failure was already reported.
fn is_undecodable<S>(held: &Snapshot<S>, observed: &ObjectHeader) -> bool {
    held.undecodable()
        .get(&observed.key)
        .is_some_and(|it| it.uid == observed.uid && it.version == observed.version)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use windlass_metrics::Metrics;
    use windlass_object::{DecodeError, Decoder, Representation, ResourceKind, TypedObjects};

    use super::*;
    use crate::delta_fifo::{Batch, Delta, ListMetadata};
    use crate::store::StoreWriter;
    use crate::testing::{at, object, undecodable};

    type Map = TypedObjects<ConfigMap>;

    fn intake() -> (ObjectIngest, StoreWriter<Object>, InformerMetrics) {
        intake_with(None, None)
    }

    fn intake_with(
        transform: Option<Transform>,
        limit: Option<u64>,
    ) -> (ObjectIngest, StoreWriter<Object>, InformerMetrics) {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let (store, budget) = (Arc::new(Store::new()), Arc::new(ByteBudget::new(limit, metrics.clone())));
        let options = decoded_storage(transform, Arc::clone(&budget));
        let codec = Arc::new(Codec::of(Map::new()));
        let intake = part(&codec, &store, &metrics, options);
        (intake, StoreWriter::new(store, codec.head, budget), metrics)
    }

    fn decoded_storage(transform: Option<Transform>, budget: Arc<ByteBudget>) -> IngestOptions {
        IngestOptions { keep_managed_fields: false, transform, form: ObjectForm::Decoded, budget }
    }

    fn part(
        codec: &Arc<Codec>,
        store: &Arc<Store<Object>>,
        metrics: &InformerMetrics,
        options: IngestOptions,
    ) -> ObjectIngest {
        let (store, metrics) = (Arc::clone(store), metrics.clone());
        ObjectIngest::new("configmaps".into(), Partition::Whole, Arc::clone(codec), store, metrics, options)
    }

    fn keep(writer: &mut StoreWriter<Object>, items: Vec<Item<Object>>) {
        let list =
            ListMetadata { partition: Partition::Whole, version: at(5), consistent: true, initial: true };
        writer.apply(Batch::Replacement { missing: Vec::new(), items, list });
    }

    fn ours(content: FrameContent) -> Item<Object> {
        match content {
            FrameContent::InPartition(item) => item,
            FrameContent::OtherPartition(version) => panic!("dropped at {version:?}"),
        }
    }

    fn decoded(item: &Item<Object>) -> Option<Arc<ConfigMap>> {
        match &item.body {
            Body::Decoded(object) => Arc::clone(object).downcast().ok(),
            Body::Undecodable { .. } => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cached_version_is_not_decoded_again_unless_versions_are_untrusted() {
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
    async fn recreated_object_at_same_version_is_decoded() {
        let (mut intake, mut writer, _) = intake();
        let first = intake.page(&[object("a", "u", 1, "v")], true).await.unwrap();
        keep(&mut writer, first.clone());
        let other = intake.page(&[object("a", "other", 1, "w")], true).await.unwrap();
        assert!(!Arc::ptr_eq(&decoded(&first[0]).unwrap(), &decoded(&other[0]).unwrap()));
    }

    #[test]
    fn only_own_partition_reports_object_with_malformed_body() {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let (store, budget) = (Arc::new(Store::new()), Arc::new(ByteBudget::new(None, metrics.clone())));
        let options = decoded_storage(None, budget);
        let (ours, codec) = (Partition::Namespace("shop".into()), Arc::new(Codec::of(Map::new())));
        let mut intake = ObjectIngest::new("configmaps".into(), ours, codec, store, metrics.clone(), options);
        let broken = |namespace: &str| {
            let meta = format!(r#"{{"name":"a","namespace":"{namespace}","uid":"u","resourceVersion":"7"}}"#);
            Bytes::from(format!(r#"{{"metadata":{meta},"data":"#))
        };
        let foreign =
            |content| matches!(content, Ok(FrameContent::OtherPartition(version)) if version == Some(at(7)));
        assert!(foreign(intake.item(&broken("depot"))) && foreign(intake.deleted(&broken("depot"))));
        assert_eq!(metrics.decode_failures.get(), 0);
        assert!(intake.item(&broken("shop")).is_err());
        assert_eq!(metrics.decode_failures.get(), 1);
    }

    #[test]
    fn decoding_long_page_yields_to_other_tasks() {
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

    /// A decoder that panics instead of returning an error.
    struct PanickingDecoder;

    impl Representation for PanickingDecoder {
        type Object = ConfigMap;
        type Decoder = PanickingDecoder;

        fn kind(&self) -> ResourceKind {
            ResourceKind::of::<ConfigMap>()
        }

        fn decoder(&self) -> PanickingDecoder {
            PanickingDecoder
        }
    }

    impl Decoder for PanickingDecoder {
        type Object = ConfigMap;

        fn decode(&mut self, raw: &Bytes) -> Result<ConfigMap, DecodeError> {
            let mut decoder = Map::new().decoder();
            Ok(decoder.decode(raw).expect("a sound object"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_decoder_rejects_one_object_and_is_reused() {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let budget = Arc::new(ByteBudget::new(None, metrics.clone()));
        let options = decoded_storage(None, budget);
        let mut intake =
            part(&Arc::new(Codec::of(PanickingDecoder)), &Arc::new(Store::new()), &metrics, options);
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

    /// Drops the data, rejects `b`, panics at `c`, renames `d`.
    fn failing_transform(map: &mut Object) -> Result<(), String> {
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
    async fn failing_transform_affects_that_object_only() {
        let (mut intake, _, metrics) = intake_with(Some(Arc::new(failing_transform)), None);
        let raws = ["a", "b", "c", "d", "e"].map(|name| object(name, "u", 1, "v"));
        let items = intake.page(&raws, true).await.unwrap();
        let reasons: Vec<_> = items.iter().map(reason).collect();
        let expected = [
            "",
            "the transform rejected the object: not b",
            "the transform panicked: a bug in a transform",
            "the transform changed the name, the UID or the version",
            "",
        ];
        assert_eq!((reasons, metrics.decode_failures.get()), (expected.to_vec(), 3));
        assert!(items.iter().filter_map(decoded).all(|map| map.data.is_none()));
    }

    // parity: transformer-runs-enqueue-twice, test-transforming-informer, transformers-per-kind-default
    #[tokio::test(start_paused = true)]
    async fn transform_runs_once_per_decoded_state_including_deletions() {
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
    async fn list_over_budget_is_canceled_before_excess_object_is_decoded() {
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
        assert!(matches!(refusal, RequestError::BudgetExceeded(_)), "{refusal}");
        assert_eq!(metrics.over_budget.get(), 1);
        assert_eq!(decoded.load(std::sync::atomic::Ordering::Relaxed), 3);
        intake.begin_list();
        assert_eq!(intake.page(&raws[..3], true).await.unwrap().len(), 3, "every list starts empty");
    }

    #[test]
    fn queued_objects_count_until_stored() {
        let raw = object("a", "u", 1, "v");
        let limit = u64::from(size(&raw)) * 2;
        let (mut intake, mut writer, _) = intake_with(None, Some(limit));
        let first = ours(intake.item(&raw).unwrap());
        let other = ours(intake.item(&object("b", "w", 2, "v")).unwrap());
        assert!(matches!(intake.item(&object("c", "x", 3, "v")), Err(RequestError::BudgetExceeded(_))));
        writer.apply(Batch::Changes(vec![Delta::Added(first), Delta::Added(other)]));
        assert!(intake.item(&object("a", "u", 4, "w")).is_ok(), "it replaces the cached object");
        assert!(intake.deleted(&object("b", "w", 5, "v")).is_ok(), "a deletion needs no reservation");
    }
}
