//! Rows of Nodes, Namespaces, Events, configuration and RBAC objects.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Layout;
use super::cells::{Row, plain};

/// Returns the layout of a cluster resource.
pub(super) fn layout(group: &str, plural: &str) -> Option<Layout> {
    Some(match (group, plural) {
        ("", "nodes") => Layout(
            "Name Status Roles Age Version Internal--IP? External--IP? OS--Image? Kernel--Version? \
             Container--Runtime?",
            node,
        ),
        ("" | "events.k8s.io", "events") => Layout(
            "Last-Seen Type Reason Object Subobject? Source? Message First-Seen? Count? Name:name?",
            event,
        ),
        ("", "namespaces") => Layout("Name Status Age", |row| {
            vec![json!(row.name()), json!(row.text("/status/phase")), row.age()]
        }),
        ("", "secrets") => Layout("Name Type Data Age", |row| {
            vec![json!(row.name()), json!(row.text("/type")), json!(row.fields("/data")), row.age()]
        }),
        ("", "configmaps") => Layout("Name Data Age", |row| {
            vec![json!(row.name()), json!(row.fields("/data") + row.fields("/binaryData")), row.age()]
        }),
        ("", "serviceaccounts") | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => {
            Layout("Name Age", |row| vec![json!(row.name()), row.age()])
        }
        ("", "resourcequotas") => Layout("Name Request Limit Age", quota),
        ("coordination.k8s.io", "leases") => Layout("Name Holder Age", |row| {
            vec![json!(row.name()), json!(row.text("/spec/holderIdentity")), row.age()]
        }),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            Layout("Name Role Age Users? Groups? ServiceAccounts?", binding)
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            Layout("Name Age SignerName Requestor RequestedDuration Condition", signing_request)
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            Layout("Name Value:integer Global--Default:boolean Age PreemptionPolicy", priority_class)
        }
        ("node.k8s.io", "runtimeclasses") => {
            Layout("Name Handler Age", |row| vec![json!(row.name()), json!(row.text("/handler")), row.age()])
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => Layout("Name Webhooks:integer Age", |row| {
            vec![json!(row.name()), json!(row.list("/webhooks").len()), row.age()]
        }),
        ("resource.k8s.io", "resourceclaims") => Layout("Name State Age", resource_claim),
        ("resource.k8s.io", "resourceslices") => Layout("Name Node Driver Pool Age", |row| {
            let text = |path| json!(row.text(path));
            let node = json!(row.text_or("/spec/nodeName", "<unset>"));
            vec![text("/metadata/name"), node, text("/spec/driver"), text("/spec/pool/name"), row.age()]
        }),
        ("autoscaling", "scale") => Layout("Name Desired:integer Available:integer Age", |row| {
            let (desired, available) = (row.integer("/spec/replicas"), row.integer("/status/replicas"));
            vec![json!(row.name()), json!(desired), json!(available), row.age()]
        }),
        _ => return None,
    })
}

fn node(row: Row<'_>) -> Vec<Value> {
    let mut status = vec![match row.condition("Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if row.boolean("/spec/unschedulable") {
        status.push("SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = row.list("/status/addresses").iter().find(|it| it["type"] == kind);
        json!(found.and_then(|it| it["address"].as_str()).unwrap_or("<none>"))
    };
    let info =
        |field: &str, otherwise| row.text_or(&format!("/status/nodeInfo/{field}"), otherwise).to_owned();
    let kernel = match info("architecture", "") {
        none if none.is_empty() => info("kernelVersion", "<unknown>"),
        architecture => format!("{} ({architecture})", info("kernelVersion", "<unknown>")),
    };
    vec![
        json!(row.name()),
        json!(status.join(",")),
        json!(super::cells::or_none(node_roles(row))),
        row.age(),
        json!(info("kubeletVersion", "")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(info("osImage", "<unknown>")),
        json!(kernel),
        json!(info("containerRuntimeVersion", "<unknown>")),
    ]
}

fn node_roles(row: Row<'_>) -> String {
    let labels = row.at("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let role = |(name, value): (&String, &Value)| match name.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if name == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<_> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

/// Returns the cells of an event. The groups have different field names.
fn event(row: Row<'_>) -> Vec<Value> {
    let either = |core: &str, events: &str| match row.text(core) {
        "" => row.text(events).to_owned(),
        text => text.to_owned(),
    };
    let ago = |time: String| super::cells::since(&time, row.now);
    let first = match either("/firstTimestamp", "/deprecatedFirstTimestamp") {
        none if none.is_empty() => row.since("/eventTime"),
        time => ago(time),
    };
    let last = match either("/lastTimestamp", "/deprecatedLastTimestamp") {
        none if none.is_empty() => first.clone(),
        time => ago(time),
    };
    let (last, count) = match row.at("/series") {
        Some(series) => (row.since("/series/lastObservedTime"), series["count"].as_i64().unwrap_or_default()),
        None => (last, row.integer("/count").max(row.integer("/deprecatedCount")).max(1)),
    };
    let about = |field: &str| either(&format!("/involvedObject/{field}"), &format!("/regarding/{field}"));
    let object = match (about("kind").to_lowercase(), about("name")) {
        (kind, name) if name.is_empty() => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    vec![
        json!(last),
        json!(row.text("/type")),
        json!(row.text("/reason")),
        json!(object),
        json!(about("fieldPath")),
        json!(event_source(row)),
        json!(either("/message", "/note").trim()),
        json!(first),
        json!(count),
        json!(row.name()),
    ]
}

fn event_source(row: Row<'_>) -> String {
    let first = |paths: [&str; 3]| {
        paths.into_iter().map(|path| row.text(path)).find(|it| !it.is_empty()).unwrap_or_default()
    };
    let component = first(["/source/component", "/deprecatedSource/component", "/reportingComponent"]);
    let component = if component.is_empty() { row.text("/reportingController") } else { component };
    match first(["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

fn quota(row: Row<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = row.at("/status/hard").and_then(Value::as_object).into_iter().flatten();
    for (name, hard) in hard {
        let used = row.at("/status/used").map_or(&Value::Null, |used| &used[name.as_str()]);
        let used = if used.is_null() { "0".to_owned() } else { plain(used) };
        let column = if name.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{name}: {used}/{}", plain(hard)));
    }
    vec![json!(row.name()), json!(requests.join(", ")), json!(limits.join(", ")), row.age()]
}

fn binding(row: Row<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
        let of_kind = row.list("/subjects").iter().filter(|it| it["kind"] == kind);
        let shown = of_kind.map(|it| match kind {
            "ServiceAccount" => format!("{}/{}", text(it, "namespace"), text(it, "name")),
            _ => text(it, "name"),
        });
        json!(shown.collect::<Vec<_>>().join(", "))
    };
    let role = format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name"));
    vec![
        json!(row.name()),
        json!(role),
        row.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn signing_request(row: Row<'_>) -> Vec<Value> {
    let has = |kind: &str| row.condition(kind).is_some();
    let mut state = vec![match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }];
    if has("Failed") {
        state.push("Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        state.push("Issued");
    }
    let asked = row.at("/spec/expirationSeconds").and_then(Value::as_i64);
    let asked = asked.map(|seconds| super::cells::human(jiff::SignedDuration::from_secs(seconds)));
    vec![
        json!(row.name()),
        row.age(),
        json!(row.text_or("/spec/signerName", "<none>")),
        json!(row.text("/spec/username")),
        json!(asked.unwrap_or_else(|| "<none>".to_owned())),
        json!(state.join(",")),
    ]
}

fn priority_class(row: Row<'_>) -> Vec<Value> {
    vec![
        json!(row.name()),
        json!(row.integer("/value")),
        json!(row.boolean("/globalDefault")),
        row.age(),
        json!(row.text("/preemptionPolicy")),
    ]
}

fn resource_claim(row: Row<'_>) -> Vec<Value> {
    let mut states = Vec::new();
    if row.is_leaving() {
        states.push("deleted");
    }
    if row.at("/status/allocation").is_some() {
        states.push("allocated");
        if !row.list("/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !row.is_leaving() {
        states.push("pending");
    }
    vec![json!(row.name()), json!(states.join(",")), row.age()]
}
