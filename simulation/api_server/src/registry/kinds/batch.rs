//! Strategies of Jobs and CronJobs.

mod job_status;
mod policies;

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::writer::WriteTransaction;
use super::super::{labels, meta, names, value};
use super::{
    Dependents, Kind, MetadataOrder, NAMED, join, not_negative, one_of, pod_spec, schedule, warnings,
};
use crate::status::Status;

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const SELECTED_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// Maximum parallelism of an indexed job.
const INDEXED_PARALLELISM: i64 = 100_000;
/// Numbers of completions and pods from which other limits apply to indexed jobs.
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_PODS: i64 = 10_000;
/// Maximum length of the name of a job's controller.
const MANAGER: usize = 63;
/// Maximum length of a CronJob's name, which leaves eleven characters for the time.
const CRON_NAME: usize = 52;

/// Strategy of Jobs.
pub(super) static JOBS: Kind = Kind {
    generation: &[&["spec"]],
    dependents: Dependents::Orphan,
    defaults: |object| {
        job_defaults(value::place(object, &["spec"]));
        let carried = value::at(object, &["spec", "template", "metadata", "labels"]).clone();
        if carried.is_object() && value::is_empty(object, &["metadata", "labels"]) {
            value::set(object, &["metadata", "labels"], carried);
        }
    },
    prepare_create: select_own,
    validate: job,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: job_update,
    validate_status: job_status::validate,
    warnings: |object, old| match old {
        Some(old) if !warnings::has_changed(object, old) => Vec::new(),
        _ => {
            let named =
                if old.is_none() { warnings::of_name(object, "Pod names and hostnames") } else { Vec::new() };
            let spec = value::at(object, &["spec"]);
            named.into_iter().chain(job_warnings(spec, "spec")).collect()
        }
    },
    ..NAMED
};

/// Strategy of CronJobs.
pub(super) static CRON_JOBS: Kind = Kind {
    generation: &[&["spec"]],
    defaults: |object| {
        value::default(object, &["spec", "concurrencyPolicy"], "Allow");
        value::default(object, &["spec", "suspend"], false);
        value::default(object, &["spec", "successfulJobsHistoryLimit"], 3);
        value::default(object, &["spec", "failedJobsHistoryLimit"], 1);
        // Jobs get their other defaults when they are created.
        pod_spec::template_defaults(object, &["spec", "jobTemplate", "spec", "template", "spec"]);
    },
    validate: |object, errors| {
        let name = value::text(object, &["metadata", "name"]);
        cron_job(object, errors);
        if name.len() > CRON_NAME {
            errors.invalid("metadata.name", name, "must be no more than 52 characters");
        }
    },
    validate_update: cron_job_update,
    metadata_of_status: MetadataOrder::Never,
    warnings: |object, old| {
        let (spec, path) = (value::at(object, &["spec", "jobTemplate", "spec"]), "spec.jobTemplate.spec");
        let mut warnings = match old {
            Some(old) if !warnings::has_changed(object, old) => Vec::new(),
            Some(_) => job_warnings(spec, path),
            None => {
                let mut warnings = warnings::of_name(object, "Pod names and hostnames");
                warnings.extend(job_warnings(spec, path));
                warnings
            }
        };
        if old.is_some() && value::text(object, &["spec", "schedule"]).contains("TZ") {
            let page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            warnings.push(format!(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see {page} for more details"
            ));
        }
        warnings
    },
    ..NAMED
};

fn job_warnings(spec: &Value, path: &str) -> Vec<String> {
    let count = |field: &str| value::integer(spec, &[field]).unwrap_or_default();
    let mut warnings = Vec::new();
    let is_indexed = value::text(spec, &["completionMode"]) == "Indexed";
    if is_indexed && count("completions") > MANY_COMPLETIONS && count("parallelism") > MANY_PODS {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(warnings::of_template(value::at(spec, &["template"]), &join(path, "template")));
    warnings
}

fn job_defaults(spec: &mut Value) {
    if !value::has(spec, &["completions"]) && !value::has(spec, &["parallelism"]) {
        value::set(spec, &["completions"], 1);
    }
    value::default(spec, &["parallelism"], 1);
    let limit = if value::has(spec, &["backoffLimitPerIndex"]) { i32::MAX } else { 6 };
    value::default(spec, &["backoffLimit"], limit);
    value::default(spec, &["completionMode"], "NonIndexed");
    value::default(spec, &["suspend"], false);
    let replacement = if value::has(spec, &["podFailurePolicy"]) { "Failed" } else { "TerminatingOrFailed" };
    value::default(spec, &["podReplacementPolicy"], replacement);
    value::default(spec, &["manualSelector"], false);
    pod_spec::template_defaults(spec, &["template", "spec"]);
    let rules = value::items_mut(spec, &["podFailurePolicy", "rules"]);
    for rule in rules.into_iter().flatten() {
        for pattern in value::items_mut(rule, &["onPodConditions"]).into_iter().flatten() {
            value::default(pattern, &["status"], "True");
        }
    }
}

/// Selects the job's own pods by its UID, unless the job has a manual selector.
fn select_own(transaction: &mut WriteTransaction<'_>, object: &mut Value) -> Result<(), Status> {
    if value::flag(object, &["spec", "manualSelector"]) {
        return Ok(());
    }
    let name = Value::from(value::text(object, &["metadata", "name"]));
    let uid = value::at(object, &["metadata", "uid"]).clone();
    for (keys, text) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            value::default(object, &["spec", "template", "metadata", "labels", key], text.clone());
        }
    }
    value::default(object, &["spec", "selector", "matchLabels", SELECTED_LABEL], uid);
    if transaction.labels_are_shared.get() {
        let labels = value::at(object, &["spec", "template", "metadata", "labels"]).clone();
        value::set(object, &["metadata", "labels"], labels);
    }
    Ok(())
}

fn job(object: &Value, errors: &mut FieldErrors) {
    own_selector(object, errors);
    let spec = value::at(object, &["spec"]);
    job_with_selector(spec, errors);
    let completions = value::integer(spec, &["completions"]).filter(|it| *it > 0);
    if let Some(completions) = completions.filter(|_| value::text(spec, &["completionMode"]) == "Indexed") {
        let name = value::text(object, &["metadata", "name"]);
        let host = format!("{name}-{}", completions - 1);
        if !names::label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid("metadata.name", name, &detail);
        }
    }
}

fn job_with_selector(spec: &Value, errors: &mut FieldErrors) {
    job_spec(spec, "spec", errors);
    let (selector, carried) =
        (value::at(spec, &["selector"]), value::at(spec, &["template", "metadata", "labels"]));
    if selector.is_null() {
        errors.required("spec.selector", "");
    } else {
        labels::validate(selector, "spec.selector", errors);
    }
    if labels::parses(selector) && !labels::matches(selector, carried) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid("spec.template.metadata.labels", carried.clone(), detail);
    }
}

/// Rejects other values of the labels that the server sets.
fn own_selector(object: &Value, errors: &mut FieldErrors) {
    if value::flag(object, &["spec", "manualSelector"]) {
        return;
    }
    let selector = value::at(object, &["spec", "selector"]);
    if selector.is_null() {
        return;
    }
    let (name, uid) = (value::text(object, &["metadata", "name"]), value::text(object, &["metadata", "uid"]));
    let path = "spec.template.metadata.labels";
    let carried = value::at(object, &["spec", "template", "metadata", "labels"]);
    let mut expected = json!({});
    for index in 0..2 {
        for (keys, text) in [(UID_LABELS, uid), (NAME_LABELS, name)] {
            expected[keys[index]] = json!(text);
            match value::at(carried, &[keys[index]]).as_str() {
                None => errors.required(format!("{path}[{}]", keys[index]), &format!("must be '{text}'")),
                Some(found) if found != text => {
                    let field = format!("{path}[{}]", keys[index]);
                    errors.invalid(field, carried.clone(), &format!("must be '{text}'"));
                }
                Some(_) => {}
            }
        }
    }
    if labels::parses(selector) && !labels::matches(selector, &expected) {
        let shown = internal::text("*v1.LabelSelector", selector);
        errors.invalid_json("spec.selector", &shown, "`selector` not auto-generated");
    }
}

fn job_spec(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(spec, path, &counts, errors);
    if value::has(spec, &["maxFailedIndexes"]) && !value::has(spec, &["backoffLimitPerIndex"]) {
        errors.required(join(path, "backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(spec, path, errors);
    let mode = value::at(spec, &["completionMode"]).as_str();
    match mode {
        Some("Indexed") => indexed(spec, path, errors),
        None | Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                let found = value::at(spec, &[field]);
                if !found.is_null() {
                    errors.invalid(join(path, field), found.clone(), "requires indexed completion mode");
                }
            }
        }
        Some(other) => errors.not_supported(join(path, "completionMode"), other, &["NonIndexed", "Indexed"]),
    }
    policies::validate(spec, path, errors);
    if value::has(spec, &["podReplacementPolicy"]) {
        let known: &[&str] = if value::has(spec, &["podFailurePolicy"]) {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        one_of(spec, path, "podReplacementPolicy", known, errors);
    }
    pod_spec::validate_template(value::at(spec, &["template"]), &join(path, "template"), errors);
    restarts(spec, path, errors);
}

/// Validates the name of the job's controller.
fn managed_by(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let Some(name) = value::at(spec, &["managedBy"]).as_str() else { return };
    let field = join(path, "managedBy");
    match name.split_once('/') {
        _ if name.is_empty() => errors.required(field.clone(), ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.each(&field, host, names::subdomain(host));
        }
        _ => errors.invalid(field.clone(), name, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if name.len() > MANAGER {
        errors.too_long(field, MANAGER);
    }
}

fn indexed(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let completions = value::integer(spec, &["completions"]);
    if completions.is_none() {
        errors.required(join(path, "completions"), "when completion mode is Indexed");
    }
    if let Some(found) = value::integer(spec, &["parallelism"]).filter(|it| *it > INDEXED_PARALLELISM) {
        let detail = "must be less than or equal to 100000 when completion mode is Indexed";
        errors.invalid(join(path, "parallelism"), found, detail);
    }
    if let (Some(failed), Some(completions)) = (value::integer(spec, &["maxFailedIndexes"]), completions)
        && failed > completions
    {
        let detail = "must be less than or equal to completions";
        errors.invalid(join(path, "maxFailedIndexes"), failed, detail);
    }
}

fn restarts(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let path = join(path, "template.spec.restartPolicy");
    match value::text(spec, &["template", "spec", "restartPolicy"]) {
        "" | "Always" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if value::has(spec, &["podFailurePolicy"]) => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(path, "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

fn job_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    meta::validate_built_in(new, true, names::subdomain_name, errors);
    job(new, errors);
    meta::validate_update(new, old, errors);
    meta::known_finalizers(new, errors);
    let moves = may_move(old);
    let (new, old) = (value::at(new, &["spec"]), value::at(old, &["spec"]));
    job_with_selector(new, errors);
    completions_update(new, old, errors);
    if !value::same_at(new, old, &["selector"]) {
        let shown = internal::text("*v1.LabelSelector", value::at(new, &["selector"]));
        errors.invalid_json("spec.selector", &shown, "field is immutable");
    }
    let mut template = value::at(new, &["template"]).clone();
    if moves {
        for path in [
            &["spec", "affinity", "nodeAffinity"][..],
            &["spec", "nodeSelector"],
            &["spec", "tolerations"],
            &["spec", "schedulingGates"],
            &["metadata", "annotations"],
            &["metadata", "labels"],
        ] {
            value::keep(&mut template, value::at(old, &["template"]), path);
        }
    }
    if moves && value::flag(old, &["suspend"]) {
        resources_only(value::at(new, &["template"]), value::at(old, &["template"]), errors);
    } else if !value::same(&template, value::at(old, &["template"])) {
        let shown = internal::text(internal::TEMPLATE, value::at(new, &["template"]));
        errors.invalid_json("spec.template", &shown, "field is immutable");
    }
    for (field, notation) in [
        ("completionMode", "*string"),
        ("podFailurePolicy", "*batch.PodFailurePolicy"),
        ("backoffLimitPerIndex", "*int"),
        ("managedBy", "*string"),
        ("successPolicy", "*batch.SuccessPolicy"),
    ] {
        if !value::same(value::at(new, &[field]), value::at(old, &[field])) {
            let shown = internal::text(notation, value::at(new, &[field]));
            errors.invalid_json(join("spec", field), &shown, "field is immutable");
        }
    }
}

/// Rejects changes of a suspended job's pods, except of their resources and scheduling.
fn resources_only(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, mut kept) = (value::at(new, &["spec"]), value::at(old, &["spec"]).clone());
    for path in [&["affinity", "nodeAffinity"][..], &["nodeSelector"], &["tolerations"], &["schedulingGates"]]
    {
        value::keep(&mut kept, new, path);
    }
    for list in ["containers", "initContainers"] {
        let after = value::items(new, &[list]);
        let before = value::items_mut(&mut kept, &[list]).into_iter().flatten();
        for (container, new) in before.zip(after).filter(|(old, new)| old["name"] == new["name"]) {
            value::keep(container, new, &["resources"]);
        }
    }
    if !value::same(new, &kept) {
        let shown = internal::text(internal::POD_SPEC, new);
        errors.invalid_json("spec.template.spec", &shown, "field is immutable");
    }
}

/// Returns whether the scheduling of the job's pods can change: only while the job is suspended and has no pods.
fn may_move(old: &Value) -> bool {
    let suspended =
        |it: &Value| value::text(it, &["type"]) == "Suspended" && value::text(it, &["status"]) == "True";
    value::flag(old, &["spec", "suspend"])
        && value::integer(old, &["status", "active"]).unwrap_or_default() == 0
        && (!value::has(old, &["status", "startTime"])
            || value::items(old, &["status", "conditions"]).iter().any(suspended))
}

fn completions_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let counts = |it: &Value| (value::integer(it, &["completions"]), value::integer(it, &["parallelism"]));
    let (after, before) = (counts(new), counts(old));
    if after.0 == before.0 {
        return;
    }
    let indexed = value::text(new, &["completionMode"]) == "Indexed";
    if indexed && after.0.is_none() {
        return;
    }
    if !indexed {
        errors.immutable(
            "spec.completions",
            value::at(new, &["completions"]),
            value::at(old, &["completions"]),
        );
    } else if after.0 != after.1 {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid("spec.completions", after.0, detail);
    }
}

/// Areas and single names of the time zone database. This server does not know the locations of an area.
const ZONES: [&str; 61] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Chile",
    "Etc",
    "Europe",
    "Indian",
    "Mexico",
    "Pacific",
    "US",
    "UTC",
    "GMT",
    "CET",
    "CST6CDT",
    "Cuba",
    "EET",
    "EST",
    "EST5EDT",
    "Egypt",
    "Eire",
    "Factory",
    "GB",
    "GB-Eire",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "HST",
    "Hongkong",
    "Iceland",
    "Iran",
    "Israel",
    "Jamaica",
    "Japan",
    "Kwajalein",
    "Libya",
    "MET",
    "MST",
    "MST7MDT",
    "NZ",
    "NZ-CHAT",
    "Navajo",
    "PRC",
    "PST8PDT",
    "Poland",
    "Portugal",
    "ROC",
    "ROK",
    "Singapore",
    "Turkey",
    "UCT",
    "Universal",
    "W-SU",
    "WET",
    "Zulu",
];

fn time_zone(zone: &str, errors: &mut FieldErrors) {
    let path = "spec.timeZone";
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
        if zone != "Local" {
            errors.invalid(path, zone, &format!("unknown time zone {zone}"));
        }
    } else if !zone.split('/').all(is_zone_part)
        || !ZONES.contains(&zone.split('/').next().unwrap_or_default())
    {
        errors.invalid(path, zone, &format!("unknown time zone {zone}"));
    }
}

fn is_zone_part(part: &str) -> bool {
    let letter = |it: u8| it.is_ascii_alphanumeric() || b".-_+".contains(&it);
    (1..=14).contains(&part.len())
        && !matches!(part, "." | "..")
        && !part.starts_with('-')
        && part.bytes().all(letter)
}

fn cron_job(object: &Value, errors: &mut FieldErrors) {
    cron_job_spec(object, &Value::Null, errors);
}

fn cron_job_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    cron_job_spec(object, value::at(old, &["spec"]), errors);
}

fn cron_job_spec(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let found = value::text(spec, &["schedule"]);
    if found.is_empty() {
        errors.required("spec.schedule", "");
    } else {
        if let Some(problem) = schedule::problem(found) {
            errors.invalid("spec.schedule", found, &problem);
        }
        if found.contains("TZ") && !value::text(old, &["schedule"]).contains("TZ") {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid("spec.schedule", found, detail);
        } else if found.contains("TZ") && value::has(spec, &["timeZone"]) {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.invalid("spec.schedule", found, detail);
        }
    }
    not_negative(spec, "spec", &["startingDeadlineSeconds"], errors);
    if value::has(spec, &["timeZone"]) && value::at(spec, &["timeZone"]) != value::at(old, &["timeZone"]) {
        time_zone(value::text(spec, &["timeZone"]), errors);
    }
    super::one_of(spec, "spec", "concurrencyPolicy", &["Allow", "Forbid", "Replace"], errors);
    let template = value::at(spec, &["jobTemplate", "spec"]);
    job_spec(template, "spec.jobTemplate.spec", errors);
    if value::has(template, &["selector"]) {
        let detail = "`selector` will be auto-generated";
        let shown = internal::text(internal::SELECTOR, &template["selector"]);
        errors.invalid_json("spec.jobTemplate.spec.selector", &shown, detail);
    }
    if value::flag(template, &["manualSelector"]) {
        let field = "spec.jobTemplate.spec.manualSelector";
        errors.not_supported(field, json!(true), &["nil", "false"]);
    }
    not_negative(spec, "spec", &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], errors);
}
