//! Predicates: filters for the events that require a reconcile.
//!
//! A [`Predicate`] accepts or rejects one event. Predicates that compare two states apply to updates only. They accept
//! every creation and deletion, because a key that misses the deletion of its object leaks. Predicates are combined by
//! [`all`], [`any`] and [`not`]. If a watch has several predicates, an event must pass all of them.
//!
//! Predicates have no state. A rejected event is dropped permanently, so a predicate must decide from the event alone.
//! A resync repeats a state and changes neither generation nor labels: predicates that require such a change reject it.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use windlass_informer::Event;
use windlass_object::{HasMetadata, LabelSelector, MetadataRef};

type PredicateFn<O> = dyn Fn(&Event<Arc<O>>) -> bool + Send + Sync;

/// A filter that decides whether an event of an `O` requires a reconcile. Cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_controller::predicate::{Predicate, changed};
///
/// let is_scheduled = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
/// let scheduled = Predicate::on_object(is_scheduled).named("scheduled");
/// // Passes creations, deletions, and updates that schedule the pod.
/// let becomes_scheduled = changed(is_scheduled);
/// # let _: [Predicate<Pod>; 2] = [scheduled, becomes_scheduled];
/// ```
pub struct Predicate<O> {
    accepts: Arc<PredicateFn<O>>,
    name: &'static str,
}

impl<O: 'static> Predicate<O> {
    /// Creates a predicate that accepts an event if `judge` returns true.
    pub fn new(accepts: impl Fn(&Event<Arc<O>>) -> bool + Send + Sync + 'static) -> Self {
        Self { accepts: Arc::new(accepts), name: "a closure" }
    }

    /// Sets the name under which rejected events are reported.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Returns the name: by default the name of the function that created the predicate, see [`named`](Self::named).
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Creates a predicate on the newest state in an event of any kind: the new state of an updated object, the last
    /// known state of a deleted object.
    pub fn on_object(accepts: impl Fn(&O) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| accepts(event.object()))
    }

    /// Creates a predicate on the old and the new state of an update. Other events pass.
    pub fn on_update(accepts: impl Fn(&O, &O) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new, .. } => accepts(old, new),
            Event::Added { .. } | Event::Deleted { .. } => true,
        })
    }

    /// Returns whether `event` passes.
    pub fn passes(&self, event: &Event<Arc<O>>) -> bool {
        (self.accepts)(event)
    }
}

impl<O> Clone for Predicate<O> {
    fn clone(&self) -> Self {
        Self { accepts: Arc::clone(&self.accepts), name: self.name }
    }
}

impl<O> fmt::Debug for Predicate<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Predicate<{}>({})", std::any::type_name::<O>(), self.name)
    }
}

/// Accepts updates that changed `metadata.generation`: changes of the spec, not of the status. Updates of kinds without
/// a generation, such as ConfigMap, never pass: use [`resource_version_changed`] for them.
pub fn generation_changed<O: HasMetadata>() -> Predicate<O> {
    differs(|old, new| old.generation() != new.generation()).named("generation_changed")
}

/// Accepts updates that changed the resource version: all updates except resyncs.
pub fn resource_version_changed<O: HasMetadata>() -> Predicate<O> {
    differs(|old, new| old.resource_version() != new.resource_version()).named("resource_version_changed")
}

/// Accepts updates that changed a label.
pub fn labels_changed<O: HasMetadata>() -> Predicate<O> {
    differs(|old, new| old.labels() != new.labels()).named("labels_changed")
}

/// Accepts updates that changed an annotation.
pub fn annotations_changed<O: Resource + 'static>() -> Predicate<O> {
    Predicate::on_update(move |old: &O, new: &O| {
        let [old, new] = [old, new].map(|object| object.meta().annotations.iter().flatten());
        !old.eq(new)
    })
    .named("annotations_changed")
}

/// Accepts updates that changed the part of the object that `part` returns. `part` returns it by value, for example a
/// number or a clone.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass_controller::{Predicate, changed};
/// let phase: Predicate<Pod> = changed(|pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()));
/// ```
pub fn changed<O, T>(part: impl Fn(&O) -> T + Send + Sync + 'static) -> Predicate<O>
where
    O: 'static,
    T: PartialEq,
{
    Predicate::on_update(move |old: &O, new: &O| part(old) != part(new)).named("changed")
}

/// Accepts events of objects whose newest labels match `selector`. The update that makes an object stop matching does
/// not pass; use `any([matches_labels(..), labels_changed()])` to receive it.
pub fn matches_labels<O: HasMetadata>(selector: LabelSelector) -> Predicate<O> {
    Predicate::on_object(move |object: &O| selector.matches(object.metadata().labels())).named("labeled")
}

/// Accepts events that pass all `predicates`. Without predicates, all events pass.
pub fn all<O: 'static>(predicates: impl IntoIterator<Item = Predicate<O>>) -> Predicate<O> {
    let predicates: Vec<_> = predicates.into_iter().collect();
    Predicate::new(move |event| predicates.iter().all(|predicate| predicate.passes(event))).named("all")
}

/// Accepts events that pass at least one of `predicates`. Without predicates, no event passes.
pub fn any<O: 'static>(predicates: impl IntoIterator<Item = Predicate<O>>) -> Predicate<O> {
    let predicates: Vec<_> = predicates.into_iter().collect();
    Predicate::new(move |event| predicates.iter().any(|predicate| predicate.passes(event))).named("any")
}

/// Accepts events that `predicate` rejects. This also rejects the creations and deletions that `predicate` accepts.
pub fn not<O: 'static>(predicate: Predicate<O>) -> Predicate<O> {
    Predicate::new(move |event| !predicate.passes(event)).named("not")
}

fn differs<O: HasMetadata>(differ: fn(MetadataRef<'_>, MetadataRef<'_>) -> bool) -> Predicate<O> {
    Predicate::on_update(move |old: &O, new: &O| differ(old.metadata(), new.metadata()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use windlass_informer::{Cause, DeletionEvidence};

    use super::*;

    type Strings = BTreeMap<String, String>;

    fn pod(change: impl FnOnce(&mut ObjectMeta)) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.resource_version = Some("1".into());
        pod.metadata.generation = Some(1);
        change(&mut pod.metadata);
        Arc::new(pod)
    }

    fn one(name: &str, value: &str) -> Option<Strings> {
        Some(Strings::from([(name.to_owned(), value.to_owned())]))
    }

    fn added() -> Event<Arc<Pod>> {
        Event::Added { object: pod(|_| ()), cause: Cause::Watch }
    }

    fn deleted() -> Event<Arc<Pod>> {
        Event::Deleted { last: pod(|_| ()), observed: DeletionEvidence::Observed, cause: Cause::Watch }
    }

    fn updated(change: impl FnOnce(&mut ObjectMeta)) -> Event<Arc<Pod>> {
        Event::Updated { old: pod(|_| ()), new: pod(change), cause: Cause::Watch }
    }

    // parity: with-event-filter, predicates-generation-labels-annotations, predicates-only-assigned-kind
    // parity: each-predicate-changed-unchanged, predicates-cache-hashes, predicates-grow-without-bound
    #[test]
    fn changed_predicates_filter_only_updates() {
        let changes: [(&str, Event<Arc<Pod>>); 6] = [
            ("nothing", updated(|_| ())),
            ("version", updated(|meta| meta.resource_version = Some("2".into()))),
            ("generation", updated(|meta| meta.generation = Some(2))),
            ("label", updated(|meta| meta.labels = one("app", "web"))),
            ("annotation", updated(|meta| meta.annotations = one("note", "x"))),
            ("empty maps", updated(|meta| (meta.labels, meta.annotations) = (Some(Strings::new()), None))),
        ];
        let version = |pod: &Pod| pod.metadata.resource_version.clone();
        let table: [(Predicate<Pod>, &str); 5] = [
            (generation_changed(), "generation"),
            (resource_version_changed(), "version"),
            (labels_changed(), "label"),
            (annotations_changed(), "annotation"),
            (changed(version), "version"),
        ];
        for (predicate, wanted) in table {
            for (what, event) in &changes {
                assert_eq!(
                    predicate.passes(event),
                    *what == wanted,
                    "predicate for {wanted}, change of {what}"
                );
            }
            assert!(predicate.passes(&added()) && predicate.passes(&deleted()), "{wanted}");
        }
    }

    // parity: predicates-generation-labels-annotations
    #[test]
    fn generation_and_annotation_predicates_combine() {
        let either: Predicate<Pod> = any([generation_changed(), annotations_changed()]);
        assert!(either.passes(&updated(|meta| meta.generation = Some(2))));
        assert!(either.passes(&updated(|meta| meta.annotations = one("note", "x"))));
        assert!(!either.passes(&updated(|meta| meta.labels = one("app", "web"))));
        let both: Predicate<Pod> = all([generation_changed(), annotations_changed()]);
        assert!(!both.passes(&updated(|meta| meta.generation = Some(2))));
        assert!(both.passes(&updated(|meta| {
            (meta.generation, meta.annotations) = (Some(2), one("note", "x"));
        })));
    }

    // parity: with-event-filter, predicates-generation-labels-annotations, predicates-only-assigned-kind
    // parity: each-predicate-changed-unchanged, predicates-cache-hashes
    #[test]
    fn combinators_follow_boolean_logic() {
        let yes = || Predicate::<Pod>::new(|_| true);
        let no = || Predicate::<Pod>::new(|_| false);
        let event = added();
        let table = [
            (all([]), true),
            (all([yes(), yes()]), true),
            (all([yes(), no()]), false),
            (any([]), false),
            (any([no(), yes()]), true),
            (any([no(), no()]), false),
            (not(yes()), false),
            (not(no()), true),
            (not(any([no(), all([yes(), not(no())])])), false),
        ];
        for (number, (predicate, expected)) in table.into_iter().enumerate() {
            assert_eq!(predicate.passes(&event), expected, "line {number}");
        }
    }

    // parity: predicates-generation-labels-annotations, each-predicate-changed-unchanged
    #[test]
    fn selector_matches_newest_state() {
        let selector = LabelSelector::from_map(&Strings::from([("app".to_owned(), "web".to_owned())]));
        let predicate: Predicate<Pod> = matches_labels(selector);
        assert!(predicate.passes(&updated(|meta| meta.labels = one("app", "web"))));
        assert!(!predicate.passes(&updated(|meta| meta.labels = one("app", "db"))));
        assert!(!predicate.passes(&added()), "an object without labels does not match");
        let old = pod(|meta| meta.labels = one("app", "web"));
        let left = Event::Updated { old, new: pod(|_| ()), cause: Cause::Watch };
        assert!(!predicate.passes(&left));
        let combined: Predicate<Pod> = any([predicate, labels_changed()]);
        assert!(combined.passes(&left), "labels_changed accepts it");
    }

    // parity: each-predicate-changed-unchanged
    #[test]
    fn custom_predicate_receives_whole_event() {
        let predicate = Predicate::<Pod>::new(|event| event.cause() == Cause::Resync);
        assert!(!predicate.passes(&added()));
        let again = Event::Updated { old: pod(|_| ()), new: pod(|_| ()), cause: Cause::Resync };
        assert!(predicate.passes(&again));
        assert!(!resource_version_changed().passes(&again), "a resync changes no resource version");
    }
}
