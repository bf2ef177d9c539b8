//! Cluster state in a form that is equal for equivalent runs: without generated names, UIDs, versions, times and
//! addresses.
//!
//! Names, addresses and UIDs are replaced by placeholders, so that the state still shows references between objects and
//! dangling references. Events are excluded: their objects might be deleted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::difference::Difference;

/// Kinds that reflect the work of controllers, not its result.
const PASSING: &[&str] = &["Lease", "Event"];

/// Fields that differ between runs.
const PRIVATE: &[&str] = &[
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "nodeName",
    "hostIP",
    "hostIPs",
    "nodePort",
    "healthCheckNodePort",
    "containerID",
    // The last trigger of Endpoints, pod or Service, depends on event order.
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Lists without a defined order.
const SETS: &[&str] = &["addresses", "notReadyAddresses", "ownerReferences", "conditions", "finalizers"];

/// Cluster state that can be compared between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    objects: Vec<String>,
}

impl ClusterState {
    /// Returns the state of these objects.
    pub fn from_objects(objects: &[Value]) -> Self {
        let given = names(objects);
        let lasting = objects
            .iter()
            .filter(|object| object["kind"].as_str().is_none_or(|kind| !PASSING.contains(&kind)));
        let mut objects: Vec<String> = lasting.map(|object| comparable(object, &given).to_string()).collect();
        objects.sort();
        ClusterState { objects }
    }

    /// Returns the objects as sorted JSON texts.
    pub fn objects(&self) -> &[String] {
        &self.objects
    }

    /// Returns the objects that only one of the states contains; empty for equal states.
    pub fn difference(&self, other: &ClusterState) -> Difference {
        Difference {
            only_here: missing(&self.objects, &other.objects),
            only_there: missing(&other.objects, &self.objects),
        }
    }
}

/// Returns the entries of `from` that `other` does not contain, counting duplicates.
fn missing(from: &[String], other: &[String]) -> Vec<String> {
    let mut left: BTreeMap<&String, usize> = BTreeMap::new();
    for object in other {
        *left.entry(object).or_default() += 1;
    }
    let lone = from.iter().filter(|object| match left.get_mut(*object) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    lone.cloned().collect()
}

/// Returns placeholders for generated names, addresses and UIDs.
fn names(objects: &[Value]) -> BTreeMap<String, String> {
    let mut given = BTreeMap::new();
    for object in objects {
        let meta = &object["metadata"];
        if let (Some(prefix), Some(name)) = (meta["generateName"].as_str(), meta["name"].as_str()) {
            given.insert(name.to_owned(), format!("{prefix}*"));
        }
        // `None` marks a headless Service.
        let addresses = [&object["status"]["podIP"], &object["spec"]["clusterIP"]];
        for address in addresses.into_iter().filter_map(Value::as_str).filter(|it| *it != "None") {
            given.insert(address.to_owned(), "<ip>".to_owned());
        }
    }
    for object in objects {
        let (kind, meta) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]);
        if let (Some(uid), Some(name)) = (meta["uid"].as_str(), meta["name"].as_str()) {
            let name = given.get(name).map_or(name, |standing| standing);
            let standing = format!("<uid of {kind}/{name}>");
            given.insert(uid.to_owned(), standing);
        }
    }
    given
}

/// Returns an object without the parts that can differ. The generation of an object that a controller changes counts
/// its writes; only its distance to the observed generation is compared.
fn comparable(object: &Value, given: &BTreeMap<String, String>) -> Value {
    let mut plain = plain(object, given);
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_controlled = owners.into_iter().flatten().any(|owner| owner["controller"] == true);
    let numbers = (&object["metadata"]["generation"], &object["status"]["observedGeneration"]);
    if let (true, (Some(generation), Some(observed))) =
        (is_controlled, (numbers.0.as_i64(), numbers.1.as_i64()))
    {
        plain["metadata"]["generation"] = Value::from(generation - observed);
        plain["status"]["observedGeneration"] = Value::from("<observed>");
    }
    plain
}

fn plain(value: &Value, given: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !PRIVATE.contains(&name.as_str()));
            let kept = kept.map(|(name, value)| (name.clone(), field(name, value, given)));
            // The API treats an empty object like an absent one.
            let is_empty = |value: &Value| match value {
                Value::Object(fields) => fields.is_empty(),
                value => value.is_null(),
            };
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| plain(item, given)).collect()),
        Value::String(text) => Value::String(match given.get(text) {
            Some(standing) => standing.clone(),
            None if is_time(text) => "<time>".to_owned(),
            None => text.clone(),
        }),
        _ => value.clone(),
    }
}

fn field(name: &str, value: &Value, given: &BTreeMap<String, String>) -> Value {
    // The UID of an object that is deleted or never existed.
    if name == "uid" && value.as_str().is_some_and(|uid| !given.contains_key(uid)) {
        return Value::from("<unknown uid>");
    }
    let mut value = plain(value, given);
    if let Some(items) = value.as_array_mut().filter(|_| SETS.contains(&name)) {
        items.sort_by_key(ToString::to_string);
    }
    value
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.parse::<Timestamp>().is_ok()
}

/// Returns namespace, name and version of every object of one kind, for the comparison of caches with the server.
pub(crate) fn versions(objects: &[Value], group: &str, kind: &str) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_kind = objects.iter().filter(|object| {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let own = api_version.split_once('/').map_or("", |(group, _)| group);
        own == group && object["kind"].as_str() == Some(kind)
    });
    let head = |object: &Value| {
        let meta = &object["metadata"];
        (text(&meta["namespace"]), text(&meta["name"]), text(&meta["resourceVersion"]))
    };
    of_kind.map(head).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, address: &str, time: &str) -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": name, "generateName": "web-", "uid": uid, "creationTimestamp": time },
            "status": { "podIP": address, "startTime": time },
        })
    }

    fn endpoints(name: &str, uid: &str, address: &str) -> Value {
        let target = json!({ "kind": "Pod", "name": name, "uid": uid });
        json!({ "kind": "Endpoints", "subsets": [{ "addresses": [{ "ip": address, "targetRef": target }] }] })
    }

    #[test]
    fn generated_names_and_times_make_no_difference() {
        let one =
            [pod("web-a", "1", "10.0.0.1", "2026-01-01T00:00:00Z"), endpoints("web-a", "1", "10.0.0.1")];
        let two =
            [endpoints("web-z", "7", "10.0.0.9"), pod("web-z", "7", "10.0.0.9", "2026-01-01T07:00:00Z")];
        assert_eq!(ClusterState::from_objects(&one), ClusterState::from_objects(&two));
    }

    #[test]
    fn extra_object_or_unknown_address_makes_a_difference() {
        let one =
            [pod("web-a", "1", "10.0.0.1", "2026-01-01T00:00:00Z"), endpoints("web-a", "1", "10.0.0.1")];
        let twice = [one[0].clone(), pod("web-b", "2", "10.0.0.2", "2026-01-01T00:00:00Z"), one[1].clone()];
        let elsewhere = [one[0].clone(), endpoints("web-gone", "1", "10.0.0.7")];
        for (other, more) in [(&twice[..], 1), (&elsewhere[..], 1)] {
            let difference = ClusterState::from_objects(other).difference(&ClusterState::from_objects(&one));
            assert_eq!(difference.only_here.len(), more, "{difference}");
        }
        let lease = json!({ "kind": "Lease" });
        assert!(ClusterState::from_objects(&[lease]).objects().is_empty());
    }

    #[test]
    fn number_of_writes_of_a_controlled_spec_makes_no_difference() {
        let set = |generation: u32, observed: u32, controlled: bool| {
            let owner = json!([{ "kind": "Deployment", "name": "web", "controller": controlled }]);
            let metadata = json!({ "name": "web", "generation": generation, "ownerReferences": owner });
            let status = json!({ "observedGeneration": observed });
            let set = json!({ "kind": "ReplicaSet", "metadata": metadata, "status": status });
            ClusterState::from_objects(&[set])
        };
        assert_eq!(set(3, 3, true), set(4, 4, true));
        assert_ne!(set(3, 3, true), set(4, 3, true));
        assert_ne!(set(3, 3, false), set(4, 4, false));
    }

    #[test]
    fn wrong_or_unknown_owner_uid_makes_a_difference() {
        let owner = |uid: &str| json!({ "kind": "ConfigMap", "metadata": { "name": "web", "uid": uid } });
        let owned = |uid: &str| {
            let owner = json!([{ "kind": "ConfigMap", "name": "web", "uid": uid }]);
            json!({ "kind": "Secret", "metadata": { "name": "web", "uid": "own", "ownerReferences": owner } })
        };
        let state = |of: &str, to: &str| ClusterState::from_objects(&[owner(of), owned(to)]);
        assert_eq!(state("1", "1"), state("2", "2"));
        for (wrong, shown) in [("before", "<unknown uid>"), ("own", "<uid of Secret/web>")] {
            let difference = state("1", wrong).difference(&state("1", "1"));
            assert_eq!(difference.only_here.len(), 1, "{difference}");
            assert!(difference.to_string().contains(shown), "{difference}");
        }
    }
}
