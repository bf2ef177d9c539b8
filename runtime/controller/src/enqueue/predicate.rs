//! Which events are worth a reconcile.
//!
//! A [`Predicate`] looks at one event and lets it pass or not. Those that compare two states look at updates only:
//! what appears or goes always passes, since a key that is never told of its object's end is a leak. They combine by
//! [`all`], [`any`] and [`not`]; several on one watch must all agree, none replaces another.
//!
//! What they refuse: to remember. A predicate that drops an event drops it for good, so it must judge by what the event
//! says alone. A resync, which repeats a state, changes neither generation nor labels: predicates that demand such a
//! change drop it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use windlass_informer::Event;
use windlass_object::LabelSelector;

type Judge<O> = dyn Fn(&Event<Arc<O>>) -> bool + Send + Sync;

/// Whether an event of an `O` is worth a reconcile. Cheap to clone.
pub struct Predicate<O> {
    judge: Arc<Judge<O>>,
    name: &'static str,
}

impl<O: 'static> Predicate<O> {
    /// Lets pass whatever `judge` says yes to.
    pub fn new(judge: impl Fn(&Event<Arc<O>>) -> bool + Send + Sync + 'static) -> Self {
        Self { judge: Arc::new(judge), name: "a closure" }
    }

    /// The same under a name of yours, by which it is told of when it keeps an event back.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Its name: that of the function that made it, unless [named](Self::named) otherwise.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Asks of the newest state an event carries, whatever kind of event it is: what an object was updated to, what
    /// was last known of a deleted one.
    pub fn of_object(judge: impl Fn(&O) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| judge(event.object()))
    }

    /// Asks of updates only, given the old and the new state; the rest passes.
    pub fn of_update(judge: impl Fn(&O, &O) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new, .. } => judge(old, new),
            Event::Added { .. } | Event::Deleted { .. } => true,
        })
    }

    /// Whether `event` passes.
    pub fn passes(&self, event: &Event<Arc<O>>) -> bool {
        (self.judge)(event)
    }
}

impl<O> Clone for Predicate<O> {
    fn clone(&self) -> Self {
        Self { judge: Arc::clone(&self.judge), name: self.name }
    }
}

impl<O> fmt::Debug for Predicate<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Predicate<{}>({})", std::any::type_name::<O>(), self.name)
    }
}

/// Updates that changed what is asked for, not what is reported: `metadata.generation` moved. Kinds without one, such
/// as ConfigMap, never pass with an update: use [`resource_version_changed`] for them.
pub fn generation_changed<O: Resource + 'static>() -> Predicate<O> {
    differs(|meta| &meta.generation).named("generation_changed")
}

/// Updates that changed anything at all: everything but resyncs.
pub fn resource_version_changed<O: Resource + 'static>() -> Predicate<O> {
    differs(|meta| &meta.resource_version).named("resource_version_changed")
}

/// Updates that changed a label.
pub fn labels_changed<O: Resource + 'static>() -> Predicate<O> {
    maps_differ(|meta| meta.labels.as_ref()).named("labels_changed")
}

/// Updates that changed an annotation.
pub fn annotations_changed<O: Resource + 'static>() -> Predicate<O> {
    maps_differ(|meta| meta.annotations.as_ref()).named("annotations_changed")
}

/// Updates in which that part of the object differs. The closure returns it by value: a number or a clone.
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
    Predicate::of_update(move |old: &O, new: &O| part(old) != part(new)).named("changed")
}

/// Events of objects whose labels `selector` matches in the newest state. An object that no longer matches does not
/// pass: whoever must hear of that says `any([labelled(..), labels_changed()])`.
pub fn labelled<O: Resource + 'static>(selector: LabelSelector) -> Predicate<O> {
    Predicate::of_object(move |object: &O| selector.matches_optional(object.meta().labels.as_ref()))
        .named("labelled")
}

/// Lets pass what every one of `predicates` lets pass; everything if there is none.
pub fn all<O: 'static>(predicates: impl IntoIterator<Item = Predicate<O>>) -> Predicate<O> {
    let predicates: Vec<_> = predicates.into_iter().collect();
    Predicate::new(move |event| predicates.iter().all(|one| one.passes(event))).named("all")
}

/// Lets pass what at least one of `predicates` lets pass; nothing if there is none.
pub fn any<O: 'static>(predicates: impl IntoIterator<Item = Predicate<O>>) -> Predicate<O> {
    let predicates: Vec<_> = predicates.into_iter().collect();
    Predicate::new(move |event| predicates.iter().any(|one| one.passes(event))).named("any")
}

/// Lets pass what `predicate` does not. Beware that it stops creations and deletions where `predicate` passes them.
pub fn not<O: 'static>(predicate: Predicate<O>) -> Predicate<O> {
    Predicate::new(move |event| !predicate.passes(event)).named("not")
}

fn differs<O, T>(part: fn(&ObjectMeta) -> &T) -> Predicate<O>
where
    O: Resource + 'static,
    T: PartialEq + 'static,
{
    Predicate::of_update(move |old: &O, new: &O| part(old.meta()) != part(new.meta()))
}

type Strings = BTreeMap<String, String>;

/// No map and an empty one are the same.
fn maps_differ<O: Resource + 'static>(part: fn(&ObjectMeta) -> Option<&Strings>) -> Predicate<O> {
    Predicate::of_update(move |old: &O, new: &O| {
        let [old, new] = [old, new].map(|object| part(object.meta()).filter(|map| !map.is_empty()));
        old != new
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use windlass_informer::{Cause, DeletionEvidence};

    use super::*;

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
    fn update_passes_by_what_it_changed_and_creations_and_deletions_always_pass() {
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
                assert_eq!(predicate.passes(event), *what == wanted, "{wanted} changed, asked of {what}");
            }
            assert!(predicate.passes(&added()) && predicate.passes(&deleted()), "{wanted}");
        }
    }

    // parity: predicates-generation-labels-annotations
    #[test]
    fn generation_and_annotation_changes_are_told_apart_and_joined() {
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
    fn combinations_are_true_to_logic_with_none_one_and_many() {
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
    fn selector_is_asked_of_the_newest_state() {
        let selector = LabelSelector::from_map(&Strings::from([("app".to_owned(), "web".to_owned())]));
        let predicate: Predicate<Pod> = labelled(selector);
        assert!(predicate.passes(&updated(|meta| meta.labels = one("app", "web"))));
        assert!(!predicate.passes(&updated(|meta| meta.labels = one("app", "db"))));
        assert!(!predicate.passes(&added()), "no labels match no selector that asks for one");
        let old = pod(|meta| meta.labels = one("app", "web"));
        let left = Event::Updated { old, new: pod(|_| ()), cause: Cause::Watch };
        assert!(!predicate.passes(&left));
        let told: Predicate<Pod> = any([predicate, labels_changed()]);
        assert!(told.passes(&left), "who must hear of it says so");
    }

    // parity: each-predicate-changed-unchanged
    #[test]
    fn closure_of_ones_own_sees_the_whole_event() {
        let predicate = Predicate::<Pod>::new(|event| event.cause() == Cause::Resync);
        assert!(!predicate.passes(&added()));
        let again = Event::Updated { old: pod(|_| ()), new: pod(|_| ()), cause: Cause::Resync };
        assert!(predicate.passes(&again));
        assert!(!resource_version_changed().passes(&again), "a resync changes nothing");
    }
}
