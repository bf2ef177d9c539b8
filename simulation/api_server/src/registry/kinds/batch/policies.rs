//! Validation of the failure policy and the success policy of a job.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::super::internal;
use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::join;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const RULES: usize = 20;
const EXIT_CODES: usize = 255;

/// Validates both policies.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut FieldErrors) {
    if value::has(spec, &["podFailurePolicy"]) {
        failure(spec, &join(path, "podFailurePolicy.rules"), errors);
    }
    let policy = value::at(spec, &["successPolicy"]);
    if policy.is_null() {
        return;
    }
    let path = join(path, "successPolicy");
    if value::text(spec, &["completionMode"]) == "Indexed" {
        success(spec, policy, &join(&path, "rules"), errors);
    } else {
        let shown = internal::text("batch.SuccessPolicy", policy);
        errors.invalid_json(path, &shown, "requires indexed completion mode");
    }
}

/// Adds an error unless the field has one of the known values. A missing value has another message.
fn choice(object: &Value, path: &str, field: &str, known: &[&str], errors: &mut FieldErrors) {
    let path = join(path, field);
    match value::text(object, &[field]) {
        "" => {
            let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
            errors.required(path, &format!("valid values: [{}]", known.join(" ")));
        }
        found if known.contains(&found) => {}
        found => errors.not_supported(path, found, known),
    }
}

fn failure(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let rules = value::items(spec, &["podFailurePolicy", "rules"]);
    if rules.len() > RULES {
        errors.too_many(path, rules.len(), RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if value::text(rule, &["action"]) == "FailIndex" {
            if !value::has(spec, &["backoffLimitPerIndex"]) {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(join(&path, "action"), "FailIndex", detail);
            }
        } else {
            choice(rule, &path, "action", &ACTIONS, errors);
        }
        let (codes, conditions) =
            (value::at(rule, &["onExitCodes"]), value::items(rule, &["onPodConditions"]));
        if !codes.is_null() {
            exit_codes(spec, codes, &join(&path, "onExitCodes"), errors);
        }
        pod_conditions(conditions, &join(&path, "onPodConditions"), errors);
        match (codes.is_null(), conditions.is_empty()) {
            (false, false) => {
                let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
                errors.bare_invalid(path, detail);
            }
            (true, true) => {
                let detail = "specifying one of OnExitCodes and OnPodConditions is required";
                errors.bare_invalid(path, detail);
            }
            _ => {}
        }
    }
}

fn exit_codes(spec: &Value, codes: &Value, path: &str, errors: &mut FieldErrors) {
    choice(codes, path, "operator", &OPERATORS, errors);
    let container = |name: &str| {
        ["containers", "initContainers"]
            .iter()
            .flat_map(|list| value::items(spec, &["template", "spec", list]))
            .any(|it| value::text(it, &["name"]) == name)
    };
    if let Some(name) = value::at(codes, &["containerName"]).as_str().filter(|it| !container(it)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(join(path, "containerName"), name, detail);
    }
    let field = join(path, "values");
    let values: Vec<i64> = value::items(codes, &["values"]).iter().filter_map(Value::as_i64).collect();
    if values.is_empty() {
        errors.invalid(
            field.clone(),
            codes.get("values").cloned().unwrap_or_default(),
            "at least one value is required",
        );
    } else if values.len() > EXIT_CODES {
        errors.too_many(field.clone(), values.len(), EXIT_CODES);
    }
    let mut taken = BTreeSet::new();
    for (index, code) in values.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if value::text(codes, &["operator"]) == "In" && *code == 0 {
            errors.invalid(field.clone(), 0, "must not be 0 for the In operator");
        }
        if !taken.insert(code) {
            errors.duplicate(field, *code);
        }
    }
    if !values.is_sorted() {
        errors.invalid(field, json!(values), "must be ordered");
    }
}

fn pod_conditions(conditions: &[Value], path: &str, errors: &mut FieldErrors) {
    if conditions.len() > RULES {
        errors.too_many(path, conditions.len(), RULES);
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let kind = value::text(pattern, &["type"]);
        errors.each(&join(&path, "type"), kind, names::qualified(kind));
        choice(pattern, &path, "status", &STATUSES, errors);
    }
}

fn success(spec: &Value, policy: &Value, path: &str, errors: &mut FieldErrors) {
    let rules = value::items(policy, &["rules"]);
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(path, detail);
    }
    if rules.len() > RULES {
        errors.too_many(path, rules.len(), RULES);
    }
    let completions = value::integer(spec, &["completions"]).unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let indexes = value::at(rule, &["succeededIndexes"]).as_str();
        let count = value::integer(rule, &["succeededCount"]);
        if indexes.is_none() && count.is_none() {
            errors.required(
                path.clone(),
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let mut total = 0;
        if let Some(text) = indexes {
            match count_indexes(text, completions) {
                Ok(found) => total = found,
                Err(why) => {
                    let detail = format!("error parsing succeededIndexes: {why}");
                    errors.invalid(join(&path, "succeededIndexes"), text, &detail);
                }
            }
        }
        let Some(count) = count else { continue };
        let field = join(&path, "succeededCount");
        errors.not_negative(field.clone(), Some(count));
        let most = |limit: i64, what: &str| format!("must be less than or equal to {limit} ({what})");
        if count > completions {
            errors.invalid(field.clone(), count, &most(completions, "the number of specified completions"));
        }
        if indexes.is_some() && count > total {
            let what = "the number of indexes in the specified succeededIndexes field";
            errors.invalid(field, count, &most(total, what));
        }
    }
}

/// Counts the indexes in a text such as `1,3-5`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut total) = (None, 0);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let limits: Vec<_> = part.split('-').collect();
    if limits.len() > 2 {
        return Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        ));
    }
    let number = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(number) if number >= completions => Err(format!("too large index: {text:?}")),
        Ok(number) => Ok(number),
    };
    let first = number(limits.first().copied().unwrap_or_default())?;
    let Some(end) = limits.get(1) else { return Ok((first, first)) };
    let end = number(end)?;
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}
