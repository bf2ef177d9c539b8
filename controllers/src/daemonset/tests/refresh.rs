//! The pods after the requests of a sync.

use std::sync::Arc;

use serde_json::json;
use windlass_object::{LabelSelector, ResourceVersion};

use super::super::refresh::refreshed;
use super::fixtures::{HASH, pod, set};
use crate::shared::fixtures::{controlled_by, with_labels};
use crate::shared::pod_view::PodView;

/// Returns a pod of the DaemonSet at a version.
fn owned(name: &str, hash: &str, version: &str) -> Arc<PodView> {
    Arc::new(at_version(controlled_by(pod(name, "node-0", hash, 0), "agent", "uid-agent"), version))
}

fn orphan(name: &str, version: &str) -> Arc<PodView> {
    Arc::new(at_version(pod(name, "node-0", HASH, 0), version))
}

fn at_version(mut pod: PodView, version: &str) -> PodView {
    pod.metadata.header.version = Some(ResourceVersion::new(version));
    pod
}

#[test]
fn cached_pods_replace_claimed_pods_except_for_requests_of_the_sync() {
    let set = set(json!({}));
    let selector = LabelSelector::from_api(&set.spec.as_ref().expect("a spec").selector).expect("a selector");
    let check = |cached: &[&Arc<PodView>],
                 claimed: &[&Arc<PodView>],
                 expected: &[&Arc<PodView>],
                 case: &str| {
        let all = |pods: &[&Arc<PodView>]| pods.iter().map(|pod| Arc::clone(pod)).collect::<Vec<_>>();
        assert_eq!(refreshed(&set.metadata, &selector, all(cached), &all(claimed)), all(expected), "{case}");
    };
    let (known, changed, labeled) = (owned("a", "old", "1"), owned("a", "old", "2"), owned("a", HASH, "1"));
    check(&[&known], &[&known], &[&known], "unchanged");
    check(&[&changed], &[&known], &[&changed], "changed since");
    check(&[], &[&known], &[], "deleted since");
    check(&[&known], &[], &[&known], "created since");
    check(&[&known], &[&labeled], &[&labeled], "labeled by this sync");
    check(&[&changed], &[&labeled], &[&changed], "changed after the label");
    let (unowned, touched) = (orphan("b", "1"), orphan("b", "2"));
    check(&[&unowned], &[&unowned], &[&unowned], "adopted by this sync");
    check(&[&touched], &[&unowned], &[&touched], "adopted, and changed by another client before");
    check(&[&unowned], &[], &[], "an orphan that appeared since");
    let released = Arc::new(with_labels((*known).clone(), &[("app", "other")]));
    check(&[&released], &[&known], &[], "no longer selected");
    let foreign = Arc::new(controlled_by((*known).clone(), "other", "uid-other"));
    check(&[&foreign], &[&known], &[], "of another owner");
}
