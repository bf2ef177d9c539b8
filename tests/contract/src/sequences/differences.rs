//! Deliberate differences of the in-process server in sequences, each with its reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::Disagreement;

/// A part of responses that the in-process server does not have.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Removes the part from a response.
    pub remove: fn(&mut Value),
    /// Seed of a sequence that shows the difference; `None` if that depends on the clock.
    pub seed: Option<u64>,
    /// Reason for the difference.
    pub reason: &'static str,
}

/// A kind of answer that the in-process server gives differently.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Returns whether a disagreement is of this kind, and has no other differences.
    pub explains: fn(&Disagreement) -> bool,
    /// Seed of a sequence that shows the difference; `None` if that depends on the clock.
    pub seed: Option<u64>,
    /// Reason for the difference.
    pub reason: &'static str,
}

/// The seeds in which each exception explained a difference.
#[derive(Debug, Default)]
pub struct UsedExceptions(BTreeMap<&'static str, BTreeSet<u64>>);

impl UsedExceptions {
    /// Records that the exception with this reason explained a difference in the sequence of a seed.
    pub(super) fn add(&mut self, reason: &'static str, seed: u64) {
        self.0.entry(reason).or_default().insert(seed);
    }

    /// Describes the exceptions that explained no difference in the sequence of their seed, if it is one of these.
    #[must_use]
    pub fn unused(&self, seeds: &[u64]) -> Vec<String> {
        let expected = exceptions().filter(|(_, seed)| seeds.contains(seed));
        expected
            .filter_map(|(reason, seed)| {
                let found = self.0.get(reason).cloned().unwrap_or_default();
                let why = format!("{reason}: not in seed {seed}, but in seeds {found:?}");
                (!found.contains(&seed)).then_some(why)
            })
            .collect()
    }
}

/// Returns the reason of each exception, and the seed that shows it.
pub fn exceptions() -> impl Iterator<Item = (&'static str, u64)> {
    let parts = PARTS.iter().map(|it| (it.reason, it.seed));
    let all = parts.chain(ANSWERS.iter().map(|it| (it.reason, it.seed)));
    all.filter_map(|(reason, seed)| Some((reason, seed?)))
}

/// All parts of responses that are not compared.
pub const PARTS: &[Part] = &[
    Part {
        remove: column_descriptions,
        seed: Some(3),
        reason: "the in-process server has no documentation of fields",
    },
    Part {
        remove: yaml,
        seed: Some(3),
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
        seed: None,
        reason: "kube-apiserver writes some objects that are unchanged if the times of managed fields differ, which depends \
                 on the clock",
    },
    Answer {
        explains: |found| {
            url(found).contains("/cronjobs")
                && found.fields.iter().any(|(_, _, real)| real.to_string().contains("unknown time zone"))
        },
        seed: Some(30),
        reason: "the names of time zones come from a database that changes with every release of it",
    },
    Answer {
        explains: |found| {
            url(found).contains("/jobs?")
                && found.fields.iter().all(|(path, _, _)| path.ends_with("/metadata/resourceVersion"))
        },
        seed: None,
        reason: "a list contains an object that kube-apiserver has written because the times of its managed fields differ",
    },
    Answer {
        explains: |found| {
            let is_shown = |value: &Value, shown: &str| {
                value.as_str().is_some_and(|it| it.contains(&format!("{shown}: `selector` does not match")))
            };
            found
                .fields
                .iter()
                .all(|(path, ours, real)| is_message(path) && is_shown(ours, "null") && is_shown(real, "{}"))
        },
        seed: Some(34),
        reason: "kube-apiserver shows the labels of a template as {} instead of null if they are empty but not missing",
    },
    Answer {
        explains: |found| {
            found.fields.iter().all(|(path, ours, real)| {
                path.ends_with("/f:lifecycle") && ours == "<missing>" && real["f:stopSignal"].is_object()
            })
        },
        seed: Some(54),
        reason: "kube-apiserver records the owner of a field that it then drops, because its feature is disabled",
    },
    Answer {
        explains: |found| {
            found.fields.iter().all(|(path, _, real)| {
                path.ends_with("/f:spec/f:internalTrafficPolicy") && real == "<missing>"
            })
        },
        seed: Some(445),
        reason: "kube-apiserver stores the policy of an ExternalName Service without showing it, so that the next write \
                 takes it from its owner",
    },
    Answer {
        explains: |found| {
            let is_apply = url(found).ends_with("(application/apply-patch+yaml)");
            is_apply
                && found.request.contains(":3000000000")
                && found.fields.iter().any(|(path, ours, _)| {
                    path == "/message" && ours.to_string().contains("cannot unmarshal number 3000000000")
                })
        },
        seed: Some(62),
        reason: "kube-apiserver truncates integers of more than 32 bits in an applied configuration",
    },
    Answer {
        explains: |found| {
            let is_age = |path: &str| path.starts_with("/rows/") && path.contains("/cells/");
            let is_years = |value: &Value| value.as_str().is_some_and(|it| it.starts_with("6y"));
            url(found).contains("/events")
                && found
                    .fields
                    .iter()
                    .all(|(path, ours, real)| is_age(path) && is_years(ours) && is_years(real))
        },
        seed: None,
        reason: "ages depend on the clock, which begins in 2026 in the in-process server",
    },
    Answer {
        explains: |found| {
            found.request.contains("\"$patch\"") && found.fields.iter().all(|(path, _, _)| is_message(path))
        },
        seed: Some(160),
        reason: "kube-apiserver quotes a strategic merge patch after it has removed the directives from it",
    },
    Answer {
        explains: |found| match found.fields.as_slice() {
            [(path, ours, real)] => path == "/message" && is_undeclared(ours) && is_undeclared(real),
            _ => false,
        },
        seed: None,
        reason: "kube-apiserver stops checking an object at an undeclared field, in the random order of a Go map",
    },
];

/// Returns whether an applied configuration is rejected because a field is not declared, whatever else is wrong.
fn is_undeclared(message: &Value) -> bool {
    message.as_str().is_some_and(|it| {
        it.starts_with("failed to create typed patch object") && it.contains(": field not declared in schema")
    })
}

/// Returns method and path of the request.
fn url(found: &Disagreement) -> &str {
    found.request.lines().next().unwrap_or_default()
}

fn is_message(path: &str) -> bool {
    path == "/message" || path.starts_with("/details/causes/")
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
