//! Bytes in, items out: where objects are decoded, one by one.
//!
//! An object that cannot be decoded becomes an item that says so, with the head read off its bytes; it never
//! fails its neighbours. What is already held at the same version is not decoded again. A page of any length is
//! decoded a few objects at a time, with room for other tasks in between.

use std::sync::Arc;

use bytes::Bytes;
use windlass_env::caught_now;
use windlass_metrics::InformerMetrics;
use windlass_object::{Decoder as _, Head, Representation, WireError, wire};

use crate::delta_fifo::{Body, Item};
use crate::partition::Partition;
use crate::store::{Snapshot, Store};
use crate::sync::yield_now;

/// How many objects are decoded without a pause: few enough to be done in about a millisecond.
const CHUNK: usize = 64;

/// The decoder of one informer, and what is already held.
pub(crate) struct Intake<R: Representation> {
    informer: Arc<str>,
    decoder: R::Decoder,
    store: Arc<Store<R::Stored>>,
    metrics: InformerMetrics,
}

impl<R: Representation> Intake<R> {
    pub(crate) fn new(
        informer: Arc<str>,
        representation: &R,
        store: Arc<Store<R::Stored>>,
        metrics: InformerMetrics,
    ) -> Self {
        Self { informer, decoder: representation.decoder(), store, metrics }
    }

    /// Whether what is held of this part at a version is what the server has at that version.
    pub(crate) fn trusts(&self, partition: &Partition) -> bool {
        self.store.snapshot().progress().trusts(partition)
    }

    /// The items of a page. `trust` says whether an object held at a version is what the server has at that
    /// version.
    ///
    /// An item without a readable head is reported and left out: which object it is nobody can say.
    ///
    /// # Cancel safety
    /// Dropping the future drops what was decoded.
    pub(crate) async fn page(&mut self, raws: &[Bytes], trust: bool) -> Vec<Item<R::Stored>> {
        let held = trust.then(|| self.store.snapshot());
        let mut items = Vec::with_capacity(raws.len());
        for chunk in raws.chunks(CHUNK) {
            items.extend(chunk.iter().filter_map(|raw| self.listed(raw, held.as_deref())));
            yield_now().await;
        }
        items
    }

    /// The object of a watch frame.
    ///
    /// # Errors
    /// If its head cannot be read.
    pub(crate) fn item(&mut self, raw: &Bytes) -> Result<Item<R::Stored>, WireError> {
        let head = wire::head(raw).inspect_err(|error| self.report_headless(error))?;
        let body = self.decode_or_report(&head, raw);
        Ok(Item { head, body })
    }

    /// The object of a deletion. That its last state cannot be decoded is no reason for alarm.
    ///
    /// # Errors
    /// If its head cannot be read.
    pub(crate) fn deleted(&mut self, raw: &Bytes) -> Result<Item<R::Stored>, WireError> {
        let head = wire::head(raw).inspect_err(|error| self.report_headless(error))?;
        let body = self.decode(raw);
        Ok(Item { head, body })
    }

    fn listed(&mut self, raw: &Bytes, held: Option<&Snapshot<R::Stored>>) -> Option<Item<R::Stored>> {
        let head = wire::head(raw).inspect_err(|error| self.report_headless(error)).ok()?;
        let body = held.and_then(|held| already_held::<R>(held, &head));
        let body = body.unwrap_or_else(|| self.decode_or_report(&head, raw));
        Some(Item { head, body })
    }

    fn decode_or_report(&mut self, head: &Head, raw: &Bytes) -> Body<R::Stored> {
        let body = self.decode(raw);
        if let Body::Undecodable(error) = &body {
            self.metrics.decode_failures.inc();
            tracing::warn!(
                informer = %self.informer, key = %head.key, error = %error,
                "an object cannot be decoded and is put in quarantine until it changes"
            );
        }
        body
    }

    /// Decodes. A decoder that panics refuses the object like any other, and is used again.
    fn decode(&mut self, raw: &Bytes) -> Body<R::Stored> {
        match caught_now(|| self.decoder.decode(raw)) {
            Ok(Ok(object)) => Body::Decoded(object),
            Ok(Err(error)) => Body::Undecodable(error.to_string().into()),
            Err(panic) => Body::Undecodable(format!("the decoder panicked: {panic}").into()),
        }
    }

    fn report_headless(&self, error: &WireError) {
        self.metrics.decode_failures.inc();
        tracing::warn!(informer = %self.informer, %error, "an object without a readable name cannot be kept");
    }
}

/// What is held of the object, if it is held at the very version that was told, decodable or not.
fn already_held<R: Representation>(held: &Snapshot<R::Stored>, told: &Head) -> Option<Body<R::Stored>> {
    // Without a version nobody can say that nothing changed.
    told.version.as_ref()?;
    if let Some(object) = held.objects().get(&told.key) {
        return (R::head(object) == *told).then(|| Body::Decoded(object.clone()));
    }
    let quarantined = held.quarantined().get(&told.key)?;
    let same = quarantined.uid == told.uid && quarantined.version == told.version;
    same.then(|| Body::Undecodable(Arc::clone(&quarantined.error)))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use windlass_metrics::Metrics;
    use windlass_object::{DecodeError, Decoder, ResourceKind, Typed};

    use super::*;
    use crate::delta_fifo::{Batch, Delta, ListFacts};
    use crate::store::StoreWriter;
    use crate::testing::{at, object, undecodable};

    type Map = Typed<ConfigMap>;

    fn intake() -> (Intake<Map>, StoreWriter<Arc<ConfigMap>>, InformerMetrics) {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let store = Arc::new(Store::new());
        let intake = Intake::new("configmaps".into(), &Map::new(), Arc::clone(&store), metrics.clone());
        (intake, StoreWriter::new(store, Map::head), metrics)
    }

    fn keep(writer: &mut StoreWriter<Arc<ConfigMap>>, items: Vec<Item<Arc<ConfigMap>>>) {
        let list = ListFacts { partition: Partition::Whole, version: at(5), consistent: true, initial: true };
        let deltas = items.into_iter().map(Delta::Replaced).collect();
        writer.apply(Batch::Replacement { deltas, list });
    }

    fn decoded(item: &Item<Arc<ConfigMap>>) -> Option<&Arc<ConfigMap>> {
        match &item.body {
            Body::Decoded(object) => Some(object),
            Body::Undecodable(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_at_the_same_version_is_not_decoded_again_unless_versions_cannot_be_trusted() {
        let (mut intake, mut writer, metrics) = intake();
        let raws = [object("a", "u", 1, "v"), undecodable("b", "w", 2)];
        let first = intake.page(&raws, true).await;
        keep(&mut writer, first.clone());
        let again = intake.page(&raws, true).await;
        assert!(Arc::ptr_eq(decoded(&first[0]).unwrap(), decoded(&again[0]).unwrap()));
        assert_eq!((decoded(&again[1]), metrics.decode_failures.get()), (None, 1));
        let distrusted = intake.page(&raws, false).await;
        assert!(!Arc::ptr_eq(decoded(&first[0]).unwrap(), decoded(&distrusted[0]).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn another_object_of_the_same_name_and_version_is_decoded() {
        let (mut intake, mut writer, _) = intake();
        let first = intake.page(&[object("a", "u", 1, "v")], true).await;
        keep(&mut writer, first.clone());
        let other = intake.page(&[object("a", "other", 1, "w")], true).await;
        assert!(!Arc::ptr_eq(decoded(&first[0]).unwrap(), decoded(&other[0]).unwrap()));
    }

    #[test]
    fn a_long_page_leaves_room_for_other_tasks_while_it_is_decoded() {
        let (mut intake, ..) = intake();
        let raws: Vec<_> = (0..CHUNK * 3).map(|n| object(&format!("o{n}"), "u", 1, "v")).collect();
        let mut page = pin!(intake.page(&raws, true));
        let mut pauses = 0;
        let items = loop {
            match page.as_mut().now_or_never() {
                Some(items) => break items,
                None => pauses += 1,
            }
        };
        assert_eq!((items.len(), pauses), (raws.len(), 3));
    }

    /// Refuses by panicking.
    #[derive(Clone)]
    struct Brittle;

    impl Representation for Brittle {
        type Stored = Arc<ConfigMap>;
        type Read = Arc<ConfigMap>;
        type Decoder = Brittle;

        fn kind(&self) -> ResourceKind {
            ResourceKind::of::<ConfigMap>()
        }

        fn decoder(&self) -> Brittle {
            Brittle
        }

        fn read(stored: &Arc<ConfigMap>) -> Arc<ConfigMap> {
            Arc::clone(stored)
        }

        fn head(stored: &Arc<ConfigMap>) -> Head {
            Map::head(stored)
        }
    }

    impl Decoder for Brittle {
        type Stored = Arc<ConfigMap>;

        fn decode(&mut self, raw: &Bytes) -> Result<Arc<ConfigMap>, DecodeError> {
            let mut decoder = Map::new().decoder();
            Ok(decoder.decode(raw).expect("a sound object"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_decoder_that_panics_refuses_one_object_and_is_used_again() {
        let metrics = Metrics::new().informer("", "v1", "configmaps");
        let mut intake = Intake::new("configmaps".into(), &Brittle, Arc::new(Store::new()), metrics);
        let items = intake.page(&[undecodable("a", "u", 1), object("b", "w", 2, "v")], true).await;
        assert!(matches!(&items[0].body, Body::Undecodable(error) if error.contains("panicked")));
        assert!(decoded(&items[1]).is_some());
    }
}
