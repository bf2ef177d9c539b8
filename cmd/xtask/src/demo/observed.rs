//! What can be seen of the demo's objects at one moment, reduced to what is shown.
//!
//! Reading is three lists of one namespace; everything after that is pure.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// The name of the ReplicaSet and of the Service, and the value of the label `app` of their pods.
pub(super) const NAME: &str = "web";

/// The namespace they live in.
const NAMESPACE: &str = "default";

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Created, and on no node yet.
    Waiting,
    /// On a node, and not ready.
    Starting,
    /// Ready for traffic.
    Ready,
    /// Deleted, and not gone yet.
    Ending,
}

/// A pod as the demo shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodView {
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) address: Option<String>,
    pub(super) stage: Stage,
}

/// The demo's world at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// How many pods the ReplicaSet is to have; `None` while there is no ReplicaSet.
    pub(super) wanted: Option<usize>,
    /// How many ready pods its status reports.
    pub(super) reported_ready: usize,
    /// Its pods, the oldest first.
    pub(super) pods: Vec<PodView>,
    /// The ready addresses in the Endpoints of the Service.
    pub(super) addresses: BTreeSet<Address>,
}

/// A ready address in Endpoints. Two pods may share an IP: kwok now and then gives its first one twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) ip: String,
    /// The name of the pod it leads to.
    pub(super) pod: String,
}

impl PodView {
    /// How Endpoints list it; `None` while it has no address.
    pub(super) fn as_address(&self) -> Option<Address> {
        Some(Address { ip: self.address.clone()?, pod: self.name.clone() })
    }
}

impl Observed {
    /// Whether everything has come to rest at `count` pods: all ready, their addresses and no others
    /// in Endpoints, and the status saying so.
    pub(super) fn has_settled_at(&self, count: usize) -> bool {
        let ready: BTreeSet<Address> = self.ready_pods().filter_map(PodView::as_address).collect();
        self.wanted == Some(count)
            && self.reported_ready == count
            && self.pods.len() == count
            && ready.len() == count
            && ready == self.addresses
    }

    /// The pods that are ready.
    pub(super) fn ready_pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(|pod| pod.stage == Stage::Ready)
    }

    /// The pod of this name, if there is one.
    pub(super) fn pod(&self, name: &str) -> Option<&PodView> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    /// Makes it of what the API server holds.
    fn of(set: Option<&ReplicaSet>, pods: Vec<Pod>, endpoints: Option<&Endpoints>) -> Self {
        let status = set.and_then(|set| set.status.as_ref());
        Self {
            wanted: set.map(|set| count(set.spec.as_ref().and_then(|spec| spec.replicas))),
            reported_ready: count(status.and_then(|status| status.ready_replicas)),
            pods: by_age(pods),
            addresses: endpoints.map(ready_addresses).unwrap_or_default(),
        }
    }
}

/// Looks at the demo's objects.
#[derive(Debug)]
pub(super) struct Eye {
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
    endpoints: Api<Endpoints>,
}

impl Eye {
    pub(super) fn new(client: Client) -> Self {
        Self {
            sets: Api::namespaced(client.clone(), NAMESPACE),
            pods: Api::namespaced(client.clone(), NAMESPACE),
            endpoints: Api::namespaced(client, NAMESPACE),
        }
    }

    /// One look.
    ///
    /// # Errors
    /// When the API server does not answer as it should.
    pub(super) async fn look(&self) -> Result<Observed> {
        let labelled = ListParams::default().labels(&format!("app={NAME}"));
        let looks = async {
            // Effects before their causes, so that none is seen without its cause.
            let endpoints = self.endpoints.get_opt(NAME).await?;
            let pods = self.pods.list(&labelled).await?.items;
            let set = self.sets.get_opt(NAME).await?;
            Ok::<_, kube::Error>(Observed::of(set.as_ref(), pods, endpoints.as_ref()))
        };
        looks.await.context("looking at the demo's objects")
    }
}

fn by_age(mut pods: Vec<Pod>) -> Vec<PodView> {
    // Creation times are whole seconds; within one, the name decides, so that rows keep their places.
    pods.sort_by_cached_key(|pod| (pod.creation_timestamp().map(|time| time.0), pod.name_any()));
    pods.iter().map(view).collect()
}

fn view(pod: &Pod) -> PodView {
    PodView {
        name: pod.name_any(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        address: pod.status.as_ref().and_then(|status| status.pod_ip.clone()),
        stage: stage(pod),
    }
}

fn stage(pod: &Pod) -> Stage {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    match (pod.metadata.deletion_timestamp.is_some(), is_ready, is_placed) {
        (true, ..) => Stage::Ending,
        (false, true, _) => Stage::Ready,
        (false, false, true) => Stage::Starting,
        (false, false, false) => Stage::Waiting,
    }
}

fn ready_addresses(endpoints: &Endpoints) -> BTreeSet<Address> {
    let subsets = endpoints.subsets.iter().flatten();
    let addresses = subsets.flat_map(|subset| subset.addresses.iter().flatten());
    addresses.map(address).collect()
}

fn address(address: &EndpointAddress) -> Address {
    let pod = address.target_ref.as_ref().and_then(|target| target.name.clone());
    Address { ip: address.ip.clone(), pod: pod.unwrap_or_default() }
}

/// A count that the API writes as an optional signed number.
fn count(number: Option<i32>) -> usize {
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(wanted: i32, ready: i32) -> ReplicaSet {
        let set = json!({ "metadata": {}, "spec": { "replicas": wanted, "selector": {} },
                          "status": { "replicas": ready, "readyReplicas": ready } });
        serde_json::from_value(set).unwrap()
    }

    fn pod(name: &str, ready: &str, created: &str) -> Pod {
        let pod = json!({
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "nodeName": "node-0", "containers": [] },
            "status": { "podIP": format!("10.0.0.{name}"), "conditions": [{ "type": "Ready", "status": ready }] },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn endpoints(addresses: &[&str]) -> Endpoints {
        let listed =
            |ip: &&str| json!({ "ip": ip, "targetRef": { "name": ip.trim_start_matches("10.0.0.") } });
        let addresses: Vec<_> = addresses.iter().map(listed).collect();
        let subset = json!({ "addresses": addresses, "notReadyAddresses": [{ "ip": "10.0.0.99" }] });
        serde_json::from_value(json!({ "metadata": {}, "subsets": [subset] })).unwrap()
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:01Z";

    #[test]
    fn it_has_settled_only_when_pods_addresses_and_status_agree() {
        let pods = || vec![pod("1", "True", EARLY), pod("2", "True", EARLY)];
        let both = endpoints(&["10.0.0.1", "10.0.0.2"]);
        assert!(Observed::of(Some(&set(2, 2)), pods(), Some(&both)).has_settled_at(2));
        assert!(!Observed::of(Some(&set(2, 2)), pods(), Some(&both)).has_settled_at(3));
        assert!(!Observed::of(Some(&set(2, 1)), pods(), Some(&both)).has_settled_at(2), "the status lags");
        let one = endpoints(&["10.0.0.1"]);
        assert!(!Observed::of(Some(&set(2, 2)), pods(), Some(&one)).has_settled_at(2), "Endpoints lag");
        let stale = endpoints(&["10.0.0.1", "10.0.0.3"]);
        assert!(
            !Observed::of(Some(&set(2, 2)), pods(), Some(&stale)).has_settled_at(2),
            "an address is stale"
        );
        let starting = vec![pod("1", "True", EARLY), pod("2", "False", EARLY)];
        assert!(
            !Observed::of(Some(&set(2, 2)), starting, Some(&both)).has_settled_at(2),
            "a pod is not ready"
        );
        assert!(!Observed::of(None, Vec::new(), None).has_settled_at(0), "nothing is there yet");
    }

    #[test]
    fn pods_that_share_an_ip_are_two_addresses() {
        let mut pods = vec![pod("1", "True", EARLY), pod("2", "True", EARLY)];
        pods[1].status.as_mut().unwrap().pod_ip = Some("10.0.0.1".to_owned());
        let both = json!([{ "ip": "10.0.0.1", "targetRef": { "name": "1" } },
                          { "ip": "10.0.0.1", "targetRef": { "name": "2" } }]);
        let endpoints = json!({ "metadata": {}, "subsets": [{ "addresses": both }] });
        let endpoints = serde_json::from_value(endpoints).unwrap();
        assert!(Observed::of(Some(&set(2, 2)), pods, Some(&endpoints)).has_settled_at(2));
    }

    #[test]
    fn pods_are_in_order_of_age_then_name() {
        let pods = vec![pod("1", "True", LATE), pod("3", "True", EARLY), pod("2", "True", EARLY)];
        let observed = Observed::of(None, pods, None);
        let names: Vec<&str> = observed.pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["2", "3", "1"]);
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_ending_however_ready_it_is() {
        let mut ending = pod("1", "True", EARLY);
        assert_eq!(stage(&ending), Stage::Ready);
        ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
        assert_eq!(stage(&ending), Stage::Ending);
        assert_eq!(stage(&pod("1", "False", EARLY)), Stage::Starting);
        assert_eq!(stage(&Pod::default()), Stage::Waiting);
    }
}
