//! The state of a cluster, without what may differ between two runs that did the same: names drawn by the server,
//! UIDs, versions, times, addresses.
//!
//! Names, addresses and UIDs are not left out but replaced by what they stand for, so that a state still shows who
//! refers to whom, and who refers to nobody. Events are no part of it: their subjects may be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Kinds that tell of the work and are not its result.
const PASSING: &[&str] = &["Lease", "Event"];

/// Fields that no two runs have in common.
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
    // Whether Endpoints were last written for a pod's sake or for the Service's depends on what came first.
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Lists whose order means nothing.
const SETS: &[&str] = &["addresses", "notReadyAddresses", "ownerReferences", "conditions", "finalizers"];

/// The state of a cluster as two runs can have it in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    objects: Vec<String>,
}

impl ClusterState {
    /// The state that these objects are in.
    pub fn of(objects: &[Value]) -> Self {
        let given = names(objects);
        let lasting = objects
            .iter()
            .filter(|object| object["kind"].as_str().is_none_or(|kind| !PASSING.contains(&kind)));
        let mut objects: Vec<String> = lasting.map(|object| plain(object, &given).to_string()).collect();
        objects.sort();
        ClusterState { objects }
    }

    /// The objects, each as JSON, in order.
    pub fn objects(&self) -> &[String] {
        &self.objects
    }

    /// What is here and not in `other`, and the other way round; empty for equal states.
    pub fn difference(&self, other: &ClusterState) -> Difference {
        Difference {
            only_here: missing(&self.objects, &other.objects),
            only_there: missing(&other.objects, &self.objects),
        }
    }
}

/// How two states differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Objects of the first state alone.
    pub only_here: Vec<String>,
    /// Objects of the second state alone.
    pub only_there: Vec<String>,
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.only_here.is_empty() && self.only_there.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        for (sign, objects) in [('+', &self.only_here), ('-', &self.only_there)] {
            objects.iter().take(SHOWN).try_for_each(|object| writeln!(f, "  {sign} {object}"))?;
            if objects.len() > SHOWN {
                writeln!(f, "  {sign} and {} more", objects.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

/// What is in the first sorted list more often than in the second.
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

/// Names, addresses and UIDs that were drawn, and what stands for them.
fn names(objects: &[Value]) -> BTreeMap<String, String> {
    let mut given = BTreeMap::new();
    for object in objects {
        let meta = &object["metadata"];
        if let (Some(prefix), Some(name)) = (meta["generateName"].as_str(), meta["name"].as_str()) {
            given.insert(name.to_owned(), format!("{prefix}*"));
        }
        // `None` is no address but a wish.
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

fn plain(value: &Value, given: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !PRIVATE.contains(&name.as_str()));
            let kept = kept.map(|(name, value)| (name.clone(), field(name, value, given)));
            // What held nothing else is as good as absent, as it is to the API.
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
    // An owner or a target that is gone, or never was.
    if name == "uid" && value.as_str().is_some_and(|uid| !given.contains_key(uid)) {
        return Value::from("<uid of nobody>");
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

/// Group, kind, namespace, name and version of every object of one kind, as caches and servers can be compared.
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
    fn what_the_server_or_the_clock_drew_makes_no_difference() {
        let one =
            [pod("web-a", "1", "10.0.0.1", "2026-01-01T00:00:00Z"), endpoints("web-a", "1", "10.0.0.1")];
        let two =
            [endpoints("web-z", "7", "10.0.0.9"), pod("web-z", "7", "10.0.0.9", "2026-01-01T07:00:00Z")];
        assert_eq!(ClusterState::of(&one), ClusterState::of(&two));
    }

    #[test]
    fn object_too_many_or_an_address_of_nobody_makes_one() {
        let one =
            [pod("web-a", "1", "10.0.0.1", "2026-01-01T00:00:00Z"), endpoints("web-a", "1", "10.0.0.1")];
        let twice = [one[0].clone(), pod("web-b", "2", "10.0.0.2", "2026-01-01T00:00:00Z"), one[1].clone()];
        let elsewhere = [one[0].clone(), endpoints("web-gone", "1", "10.0.0.7")];
        for (other, more) in [(&twice[..], 1), (&elsewhere[..], 1)] {
            let difference = ClusterState::of(other).difference(&ClusterState::of(&one));
            assert_eq!(difference.only_here.len(), more, "{difference}");
        }
        let lease = json!({ "kind": "Lease" });
        assert!(ClusterState::of(&[lease]).objects().is_empty());
    }

    #[test]
    fn owner_of_another_uid_or_of_none_makes_one() {
        let owner = |uid: &str| json!({ "kind": "ConfigMap", "metadata": { "name": "web", "uid": uid } });
        let owned = |uid: &str| {
            let owner = json!([{ "kind": "ConfigMap", "name": "web", "uid": uid }]);
            json!({ "kind": "Secret", "metadata": { "name": "web", "uid": "own", "ownerReferences": owner } })
        };
        let state = |of: &str, to: &str| ClusterState::of(&[owner(of), owned(to)]);
        assert_eq!(state("1", "1"), state("2", "2"));
        for (wrong, shown) in [("before", "<uid of nobody>"), ("own", "<uid of Secret/web>")] {
            let difference = state("1", wrong).difference(&state("1", "1"));
            assert_eq!(difference.only_here.len(), 1, "{difference}");
            assert!(difference.to_string().contains(shown), "{difference}");
        }
    }
}
