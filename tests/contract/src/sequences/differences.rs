//! Deliberate differences of the in-process server in sequences, each with its reason.

use serde_json::Value;

use super::compare::Disagreement;

/// A part of responses that the in-process server does not have.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Removes the part from a response.
    pub remove: fn(&mut Value),
    /// Reason for the difference.
    pub reason: &'static str,
}

/// A kind of answer that the in-process server gives differently.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Returns whether a disagreement is of this kind, and has no other differences.
    pub explains: fn(&Disagreement) -> bool,
    /// Reason for the difference.
    pub reason: &'static str,
}

/// All parts of responses that are not compared.
pub const PARTS: &[Part] = &[
    Part {
        remove: new_node_taint,
        reason: "simulated nodes are ready as soon as they exist, and nothing removes the taint of a new node",
    },
    Part { remove: column_descriptions, reason: "the in-process server has no documentation of fields" },
    Part {
        remove: yaml,
        reason: "kubectl requests JSON and prints YAML itself; no controller requests YAML",
    },
];

/// All answers that differ.
pub const ANSWERS: &[Answer] = &[
    Answer {
        explains: |found| {
            let is_version = found.fields.iter().all(|(path, _, _)| path == "/metadata/resourceVersion");
            is_version && ["/jobs/", "/persistentvolumeclaims/"].iter().any(|it| found.request.contains(it))
        },
        reason: "kube-apiserver writes some objects that are unchanged if the times of managed fields differ, which depends \
                 on the clock",
    },
    Answer {
        explains: |found| {
            let quotes = |value: &Value| value.to_string().contains("\\\"kind\\\\\\\":\\\\\\\"Scale");
            url(found).contains("/scale")
                && found.fields.iter().all(|(path, _, real)| is_message(path) && quotes(real))
        },
        reason: "the patched scale in a message contains managed fields that no response shows",
    },
    Answer {
        explains: |found| {
            url(found).contains("/cronjobs")
                && found.fields.iter().any(|(_, _, real)| real.to_string().contains("unknown time zone"))
        },
        reason: "the names of time zones come from a database that changes with every release of it",
    },
    Answer {
        explains: |found| {
            found.request.contains("\"secrets\":[{\"name\":\"\"}]")
                && found.fields.iter().all(|(path, _, _)| path.starts_with("/metadata/managedFields"))
        },
        reason: "kube-apiserver drops managed fields if an item of a list has no key; the object itself is equal",
    },
    Answer {
        explains: |found| {
            found.request.contains("\"$patch\"") && found.fields.iter().all(|(path, _, _)| is_message(path))
        },
        reason: "kube-apiserver quotes a strategic merge patch after it has removed the directives from it",
    },
];

/// Returns method and path of the request.
fn url(found: &Disagreement) -> &str {
    found.request.lines().next().unwrap_or_default()
}

fn is_message(path: &str) -> bool {
    path == "/message" || path.starts_with("/details/causes/")
}

fn new_node_taint(response: &mut Value) {
    let is_new =
        |taint: &Value| taint["key"] == "node.kubernetes.io/not-ready" && taint["effect"] == "NoSchedule";
    match response {
        Value::Object(fields) => {
            if let Some(Value::Array(taints)) = fields.get_mut("taints") {
                taints.retain(|taint| !is_new(taint));
                if taints.is_empty() {
                    fields.remove("taints");
                }
            }
            fields.values_mut().for_each(new_node_taint);
        }
        Value::Array(items) => items.iter_mut().for_each(new_node_taint),
        // Messages quote objects.
        Value::String(text) if text.contains("node.kubernetes.io/not-ready") => {
            let quoted =
                r#"\"taints\":[{\"key\":\"node.kubernetes.io/not-ready\",\"effect\":\"NoSchedule\"}]"#;
            *text = text
                .replace(&format!(",{quoted}"), "")
                .replace(&format!("{quoted},"), "")
                .replace(quoted, "");
        }
        _ => {}
    }
}

fn column_descriptions(response: &mut Value) {
    for column in response["columnDefinitions"].as_array_mut().into_iter().flatten() {
        column["description"] = Value::Null;
    }
}

fn yaml(response: &mut Value) {
    if response["code"] == 406
        && let Some(message) = response["message"].as_str()
    {
        response["message"] = message.replace("application/yaml, ", "").into();
    }
}
