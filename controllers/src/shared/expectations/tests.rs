//! Expectations against a cache that shows exactly what a test puts into it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use windlass_env::Instant;
use windlass_informer::Progress;
use windlass_object::{ObjectKey, ResourceVersion};

use super::{EXPIRY, Expectations, PodCache, RECHECK};
use crate::shared::fixtures::{bare_pod, being_deleted};

#[derive(Default)]
struct Cache {
    progress: Progress,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
}

impl Cache {
    fn at(version: &str) -> Self {
        let progress =
            Progress { version: Some(ResourceVersion::new(version)), synced: true, ..Progress::default() };
        Self { progress, pods: BTreeMap::new() }
    }

    fn in_epoch(mut self, epoch: u64) -> Self {
        self.progress.epoch = epoch;
        self
    }

    fn with(mut self, pod: Pod) -> Self {
        self.pods.insert(ObjectKey::of(&pod.metadata), Arc::new(pod));
        self
    }
}

impl PodCache for Cache {
    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn pod(&self, key: &ObjectKey) -> Option<Arc<Pod>> {
        self.pods.get(key).cloned()
    }
}

const START: Instant = Instant::ORIGIN;
const UID: &str = "uid-web";

fn web() -> ObjectKey {
    ObjectKey::namespaced("default", "web")
}

fn versioned(name: &str, version: &str) -> Pod {
    let mut pod = bare_pod(name);
    pod.metadata.resource_version = Some(version.into());
    pod
}

fn begun() -> Expectations {
    let expectations = Expectations::default();
    expectations.begin(&web(), UID, 0, START);
    expectations
}

fn creating(pod: &Pod) -> Expectations {
    let expectations = begun();
    expectations.created(&web(), &pod.metadata);
    expectations
}

fn deleting(pod: &Pod, answer: Option<&Pod>) -> Expectations {
    let expectations = begun();
    expectations.deleting(&web(), &pod.metadata);
    if let Some(answer) = answer {
        expectations.deleted(&web(), &answer.metadata);
    }
    expectations
}

#[test]
fn who_never_asked_for_anything_may_act() {
    assert!(Expectations::default().satisfied(&web(), UID, &Cache::default(), START));
    assert!(begun().satisfied(&web(), UID, &Cache::default(), START));
}

#[test]
fn a_created_pod_is_awaited_until_the_cache_shows_it_or_has_passed_it() {
    let pod = versioned("a", "20");
    let met = |cache: Cache| creating(&pod).satisfied(&web(), UID, &cache, START);
    assert!(!met(Cache::default()));
    assert!(!met(Cache::at("19")));
    assert!(met(Cache::at("19").with(pod.clone())));
    assert!(met(Cache::at("20")), "it came and went before the cache was told");
    assert!(met(Cache::at("100")), "versions are numbers, not texts");
    assert!(!met(Cache::at("not a number")));
    let mut namesake = pod.clone();
    namesake.metadata.uid = Some("another".into());
    assert!(!met(Cache::at("19").with(namesake)));
}

#[test]
fn a_created_pod_is_met_by_an_event_of_its_life_or_of_its_end() {
    let (pod, other) = (versioned("a", "20"), versioned("b", "20"));
    let expectations = creating(&pod);
    expectations.created(&web(), &other.metadata);
    expectations.seen(&web(), &pod.metadata);
    assert!(!expectations.satisfied(&web(), UID, &Cache::default(), START));
    expectations.seen_leaving(&web(), &other.metadata);
    assert!(expectations.satisfied(&web(), UID, &Cache::default(), START));
}

#[test]
fn a_deleted_pod_is_awaited_until_it_is_seen_leaving_or_the_cache_has_passed_it() {
    let (pod, answer) = (versioned("a", "20"), versioned("a", "30"));
    let met = |cache: Cache| deleting(&pod, Some(&answer)).satisfied(&web(), UID, &cache, START);
    assert!(!met(Cache::at("29").with(pod.clone())));
    assert!(met(Cache::at("29")), "it is gone from the cache");
    assert!(met(Cache::at("29").with(being_deleted(pod.clone()))));
    assert!(met(Cache::at("30").with(pod.clone())));
    let unanswered = deleting(&pod, None);
    assert!(!unanswered.satisfied(&web(), UID, &Cache::at("30").with(pod.clone()), START));
    unanswered.seen_leaving(&web(), &pod.metadata);
    assert!(unanswered.satisfied(&web(), UID, &Cache::at("30").with(pod), START));
}

#[test]
fn seeing_a_pod_leave_twice_counts_once() {
    let (first, second) = (versioned("a", "20"), versioned("b", "20"));
    let cache = Cache::at("20").with(first.clone()).with(second.clone());
    let expectations = deleting(&first, None);
    expectations.deleting(&web(), &second.metadata);
    expectations.seen_leaving(&web(), &first.metadata);
    expectations.seen_leaving(&web(), &first.metadata);
    assert!(!expectations.satisfied(&web(), UID, &cache, START));
    expectations.seen_leaving(&web(), &second.metadata);
    assert!(expectations.satisfied(&web(), UID, &cache, START));
}

#[test]
fn a_deletion_that_was_refused_is_not_awaited() {
    let pod = versioned("a", "20");
    let expectations = deleting(&pod, None);
    expectations.not_deleted(&web(), &pod.metadata);
    assert!(expectations.satisfied(&web(), UID, &Cache::at("20").with(pod), START));
}

#[test]
fn everything_expires_and_asks_to_be_looked_at_then() {
    let expectations = creating(&versioned("a", "20"));
    let just_before = START + (EXPIRY - Duration::from_secs(1));
    assert_eq!(expectations.recheck_in(&web(), just_before), Some(Duration::from_secs(1)));
    assert!(!expectations.satisfied(&web(), UID, &Cache::default(), just_before));
    assert!(expectations.satisfied(&web(), UID, &Cache::default(), START + EXPIRY));
    assert_eq!(expectations.recheck_in(&web(), START + EXPIRY), None, "it was let go");
}

#[test]
fn who_waits_looks_again_soon_since_a_version_passed_is_no_event() {
    let expectations = creating(&versioned("a", "20"));
    assert_eq!(expectations.recheck_in(&web(), START), Some(RECHECK));
    assert!(!expectations.satisfied(&web(), UID, &Cache::at("19"), START + RECHECK));
    assert_eq!(expectations.recheck_in(&web(), START + RECHECK), Some(RECHECK));
    assert!(expectations.satisfied(&web(), UID, &Cache::at("21"), START + 2 * RECHECK));
}

#[test]
fn a_server_that_went_back_in_time_voids_everything() {
    let pod = versioned("a", "20");
    assert!(creating(&pod).satisfied(&web(), UID, &Cache::at("10").in_epoch(1), START));
    let kept = Cache::at("10").in_epoch(1).with(pod.clone());
    assert!(deleting(&pod, None).satisfied(&web(), UID, &kept, START));
}

#[test]
fn a_namespace_on_its_way_out_holds_its_owner_until_expiry() {
    let expectations = begun();
    expectations.withhold(&web());
    assert!(!expectations.satisfied(&web(), UID, &Cache::at("100"), START));
    assert_eq!(
        expectations.recheck_in(&web(), START),
        None,
        "no event would end it, so no timer is worth it"
    );
    assert!(expectations.satisfied(&web(), UID, &Cache::at("100"), START + EXPIRY));
}

#[test]
fn an_owner_created_anew_starts_clean() {
    let pod = versioned("a", "20");
    let waits =
        |expectations: &Expectations, uid| !expectations.satisfied(&web(), uid, &Cache::default(), START);
    assert!(!waits(&creating(&pod), "uid-namesake"), "even before the end of the first was told");
    let told = creating(&pod);
    told.forget(&web(), UID);
    assert!(!waits(&told, UID));
    let successor = creating(&pod);
    successor.forget(&web(), "uid-of-the-first");
    assert!(waits(&successor, UID), "the end of another, told late, takes nothing from it");
}

#[test]
fn beginning_again_forgets_what_was_awaited_before() {
    let expectations = creating(&versioned("a", "20"));
    let later = START + Duration::from_secs(1);
    expectations.begin(&web(), UID, 0, later);
    expectations.created(&web(), &versioned("b", "30").metadata);
    assert!(expectations.satisfied(&web(), UID, &Cache::at("29").with(versioned("b", "30")), later));
}

#[test]
fn owners_do_not_wait_for_each_other() {
    let expectations = creating(&versioned("a", "20"));
    assert!(expectations.satisfied(
        &ObjectKey::namespaced("default", "db"),
        "uid-db",
        &Cache::default(),
        START
    ));
    assert!(!expectations.satisfied(&web(), UID, &Cache::default(), START));
}
