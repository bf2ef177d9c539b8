//! Rows of Pods, whose status column summarizes many fields.

use serde_json::{Value, json};

use super::cells::{Row, since};

/// A summary of a pod's containers.
struct Summary<'a> {
    reason: String,
    restarts: i64,
    last_restart: &'a str,
    ready: usize,
}

/// Returns the row condition of a pod that has finished.
pub(super) fn completed(object: &Value) -> Option<Value> {
    if object["kind"] != "Pod" {
        return None;
    }
    let message = match object.pointer("/status/phase")?.as_str()? {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(
        json!({"type": "Completed", "status": "True", "reason": object["status"]["phase"], "message": message}),
    )
}

pub(super) fn cells(row: Row<'_>) -> Vec<Value> {
    let summary = summary(row);
    let restartable = row.list("/spec/initContainers").iter().filter(|it| restarts_always(it)).count();
    let total = row.list("/spec/containers").len() + restartable;
    let restarts = match summary.last_restart {
        last if summary.restarts != 0 && !last.is_empty() => {
            format!("{} ({} ago)", summary.restarts, since(last, row.now))
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        json!(row.name()),
        json!(format!("{}/{total}", summary.ready)),
        json!(summary.reason),
        json!(restarts),
        row.age(),
        json!(row.text_or("/status/podIPs/0/ip", "<none>")),
        json!(row.text_or("/spec/nodeName", "<none>")),
        json!(row.text_or("/status/nominatedNodeName", "<none>")),
        json!(readiness_gates(row)),
    ]
}

fn readiness_gates(row: Row<'_>) -> String {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open =
        |gate: &&Value| row.condition(gate["conditionType"].as_str().unwrap_or_default()) == Some("True");
    format!("{}/{}", gates.iter().filter(open).count(), gates.len())
}

fn restarts_always(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn summary(row: Row<'_>) -> Summary<'_> {
    let phase = row.text("/status/phase");
    let mut found = Summary {
        reason: row.text_or("/status/reason", phase).to_owned(),
        restarts: 0,
        last_restart: "",
        ready: 0,
    };
    let gated = |it: &Value| it["type"] == "PodScheduled" && it["reason"] == "SchedulingGated";
    if row.list("/status/conditions").iter().any(gated) {
        "SchedulingGated".clone_into(&mut found.reason);
    }
    let initializing = found.add_init_containers(row);
    if !initializing || row.condition("Initialized") == Some("True") {
        found.add_containers(row);
    }
    if row.is_leaving() {
        if row.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut found.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut found.reason);
        }
    }
    found
}

impl<'a> Summary<'a> {
    /// Adds the init containers. Returns whether the pod is still initializing.
    fn add_init_containers(&mut self, row: Row<'a>) -> bool {
        let declared = row.list("/spec/initContainers");
        let (mut restarts_of_sidecars, mut last_of_sidecars, mut initializing) = (0, "", false);
        for (index, status) in row.list("/status/initContainerStatuses").iter().enumerate() {
            let sidecar = declared.iter().any(|it| it["name"] == status["name"] && restarts_always(it));
            self.restarts += status["restartCount"].as_i64().unwrap_or_default();
            self.last_restart = self.last_restart.max(last_end(status));
            if sidecar {
                restarts_of_sidecars += status["restartCount"].as_i64().unwrap_or_default();
                last_of_sidecars = last_of_sidecars.max(last_end(status));
            }
            if status["state"]["terminated"]["exitCode"] == 0 {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = unfinished(status, index, declared.len());
            initializing = true;
            break;
        }
        if !initializing || row.condition("Initialized") == Some("True") {
            (self.restarts, self.last_restart) = (restarts_of_sidecars, last_of_sidecars);
        }
        initializing
    }

    fn add_containers(&mut self, row: Row<'a>) {
        let (mut running, mut failed) = (false, None);
        for status in row.list("/status/containerStatuses").iter().rev() {
            self.restarts += status["restartCount"].as_i64().unwrap_or_default();
            self.last_restart = self.last_restart.max(last_end(status));
            let state = &status["state"];
            let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if state["terminated"].is_object() {
                self.reason = ended(&state["terminated"]);
                if state["terminated"]["exitCode"] != 0 {
                    failed = Some(self.reason.clone());
                }
            } else if status["ready"] == true && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            self.reason = match failed {
                _ if running && row.condition("Ready") == Some("True") => "Running".to_owned(),
                Some(failed) => failed,
                None if running => "NotReady".to_owned(),
                None => "Completed".to_owned(),
            };
        }
    }
}

/// Returns the time at which a container last terminated. Times of one format sort like their texts.
fn last_end(status: &Value) -> &str {
    status["lastState"]["terminated"]["finishedAt"].as_str().unwrap_or_default()
}

fn unfinished(status: &Value, index: usize, of: usize) -> String {
    let state = &status["state"];
    let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
    if state["terminated"].is_object() {
        format!("Init:{}", ended(&state["terminated"]))
    } else if !matches!(waiting, "" | "PodInitializing") {
        format!("Init:{waiting}")
    } else {
        format!("Init:{index}/{of}")
    }
}

fn ended(terminated: &Value) -> String {
    let signal = terminated["signal"].as_i64().unwrap_or_default();
    match terminated["reason"].as_str().unwrap_or_default() {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or_default()),
        reason => reason.to_owned(),
    }
}
