//! Rows of workloads.

use serde_json::{Value, json};

use super::cells::{Row, human, plain};
use super::{Layout, pods};

/// Returns the layout of a workload resource.
pub(super) fn layout(group: &str, plural: &str) -> Option<Layout> {
    Some(match (group, plural) {
        ("", "pods") => {
            Layout("Name Ready Status Restarts Age IP? Node? Nominated-Node? Readiness-Gates?", pods::cells)
        }
        ("", "replicationcontrollers") => Layout(REPLICAS, replication_controller),
        ("apps", "replicasets") => Layout(REPLICAS, replica_set),
        ("apps", "deployments") => {
            Layout("Name Ready Up--to--date Available Age Containers? Images? Selector?", deployment)
        }
        ("apps", "statefulsets") => Layout("Name Ready Age Containers? Images?", stateful_set),
        ("apps", "daemonsets") => Layout(DAEMONS, daemon_set),
        ("apps", "controllerrevisions") => Layout("Name Controller Revision Age", controller_revision),
        ("batch", "jobs") => {
            Layout("Name Status Completions Duration Age Containers? Images? Selector?", job)
        }
        ("batch", "cronjobs") => Layout(CRON, cron_job),
        ("", "podtemplates") => Layout("Name Containers Images Pod-Labels", pod_template),
        ("policy", "poddisruptionbudgets") => {
            Layout("Name Min-Available Max-Unavailable Allowed-Disruptions:integer Age", disruption_budget)
        }
        ("autoscaling", "horizontalpodautoscalers") => {
            Layout("Name Reference Targets MinPods MaxPods Replicas Age", autoscaler)
        }
        _ => return None,
    })
}

const REPLICAS: &str = "Name Desired:integer Current:integer Ready:integer Age Containers? Images? Selector?";
const DAEMONS: &str = "Name Desired:integer Current:integer Ready:integer Up--to--date:integer Available:integer \
     Node-Selector Age Containers? Images? Selector?";
const CRON: &str =
    "Name Schedule Timezone Suspend:boolean Active:integer Last-Schedule Age Containers? Images? Selector?";

const CONTAINERS: &str = "/spec/template/spec/containers";

fn replicas(row: Row<'_>, selector: Value) -> Vec<Value> {
    let [names, images] = row.containers(CONTAINERS);
    vec![
        json!(row.name()),
        json!(row.integer("/spec/replicas")),
        json!(row.integer("/status/replicas")),
        json!(row.integer("/status/readyReplicas")),
        row.age(),
        names,
        images,
        selector,
    ]
}

fn replication_controller(row: Row<'_>) -> Vec<Value> {
    replicas(row, row.labels("/spec/selector"))
}

fn replica_set(row: Row<'_>) -> Vec<Value> {
    replicas(row, row.selector("/spec/selector"))
}

fn ready_of_desired(row: Row<'_>) -> Value {
    json!(format!("{}/{}", row.integer("/status/readyReplicas"), row.integer("/spec/replicas")))
}

fn deployment(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(CONTAINERS);
    vec![
        json!(row.name()),
        ready_of_desired(row),
        json!(row.integer("/status/updatedReplicas")),
        json!(row.integer("/status/availableReplicas")),
        row.age(),
        names,
        images,
        json!(super::cells::selector(row.at("/spec/selector"))),
    ]
}

fn stateful_set(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(CONTAINERS);
    vec![json!(row.name()), ready_of_desired(row), row.age(), names, images]
}

fn daemon_set(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(CONTAINERS);
    vec![
        json!(row.name()),
        json!(row.integer("/status/desiredNumberScheduled")),
        json!(row.integer("/status/currentNumberScheduled")),
        json!(row.integer("/status/numberReady")),
        json!(row.integer("/status/updatedNumberScheduled")),
        json!(row.integer("/status/numberAvailable")),
        row.labels("/spec/template/spec/nodeSelector"),
        row.age(),
        names,
        images,
        row.selector("/spec/selector"),
    ]
}

fn controller_revision(row: Row<'_>) -> Vec<Value> {
    let owner = row.list("/metadata/ownerReferences").iter().find(|it| it["controller"] == true);
    let owner = owner.map(|it| {
        let text = |field: &str| it[field].as_str().unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        format!("{}{dot}{group}/{}", text("kind").to_lowercase(), text("name"))
    });
    let owner = owner.unwrap_or_else(|| "<none>".to_owned());
    vec![json!(row.name()), json!(owner), json!(row.integer("/revision")), row.age()]
}

fn job(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(CONTAINERS);
    let done = row.integer("/status/succeeded");
    let completions = match (row.at("/spec/completions"), row.integer("/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, many) if many > 1 => format!("{done}/1 of {many}"),
        (None, _) => format!("{done}/1"),
    };
    vec![
        json!(row.name()),
        json!(job_status(row)),
        json!(completions),
        json!(job_duration(row)),
        row.age(),
        names,
        images,
        row.selector("/spec/selector"),
    ]
}

fn job_status(row: Row<'_>) -> &'static str {
    let is = |kind| row.condition(kind) == Some("True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if row.is_leaving() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_duration(row: Row<'_>) -> String {
    let time = |path| row.text(path).parse::<jiff::Timestamp>().ok();
    let Some(start) = time("/status/startTime") else { return String::new() };
    human(time("/status/completionTime").unwrap_or(row.now).duration_since(start))
}

fn cron_job(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers("/spec/jobTemplate/spec/template/spec/containers");
    let suspended = match row.at("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match row.text("/status/lastScheduleTime") {
        "" => "<none>".to_owned(),
        time => super::cells::since(time, row.now),
    };
    vec![
        json!(row.name()),
        json!(row.text("/spec/schedule")),
        json!(row.text_or("/spec/timeZone", "<none>")),
        json!(suspended),
        json!(row.list("/status/active").len()),
        json!(last),
        row.age(),
        names,
        images,
        row.selector("/spec/jobTemplate/spec/selector"),
    ]
}

fn pod_template(row: Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers("/template/spec/containers");
    vec![json!(row.name()), names, images, row.labels("/template/metadata/labels")]
}

fn disruption_budget(row: Row<'_>) -> Vec<Value> {
    let bound = |path| row.at(path).map_or_else(|| json!("N/A"), |it| json!(plain(it)));
    vec![
        json!(row.name()),
        bound("/spec/minAvailable"),
        bound("/spec/maxUnavailable"),
        json!(row.integer("/status/disruptionsAllowed")),
        row.age(),
    ]
}

fn autoscaler(row: Row<'_>) -> Vec<Value> {
    let target = |field: &str| row.text(&format!("/spec/scaleTargetRef/{field}")).to_owned();
    let least = row.at("/spec/minReplicas").map_or_else(|| "<unset>".to_owned(), plain);
    vec![
        json!(row.name()),
        json!(format!("{}/{}", target("kind"), target("name"))),
        json!(metrics(row)),
        json!(least),
        json!(row.integer("/spec/maxReplicas")),
        json!(row.integer("/status/currentReplicas")),
        row.age(),
    ]
}

/// Formats current and target values of an autoscaler's metrics.
fn metrics(row: Row<'_>) -> String {
    let wanted = row.list("/spec/metrics");
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let now = row.list("/status/currentMetrics");
    let shown: Vec<_> = wanted
        .iter()
        .enumerate()
        .map(|(at, wanted)| metric(wanted, now.get(at).unwrap_or(&Value::Null)))
        .collect();
    match shown.len() {
        0..=2 => shown.join(", "),
        many => format!("{} + {} more...", shown[..2].join(", "), many - 2),
    }
}

fn metric(wanted: &Value, now: &Value) -> String {
    let (field, named) = match wanted["type"].as_str().unwrap_or_default() {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&wanted[field]["target"], &now[field]["current"]);
    let prefix = match wanted[field]["name"].as_str() {
        Some(name) if named => format!("{name}: "),
        _ => String::new(),
    };
    let average = !target["averageValue"].is_null();
    let value = if average {
        "averageValue"
    } else if named {
        "averageUtilization"
    } else {
        "value"
    };
    let show = |from: &Value, missing: &str| match (&from[value], value) {
        (Value::Null, _) => missing.to_owned(),
        (number, "averageUtilization") => format!("{}%", plain(number)),
        (number, _) => plain(number),
    };
    let suffix = if average && !named && field != "pods" { " (avg)" } else { "" };
    format!("{prefix}{}/{}{suffix}", show(current, "<unknown>"), show(target, "<auto>"))
}
