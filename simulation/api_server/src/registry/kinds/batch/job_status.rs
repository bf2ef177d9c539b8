//! Validation of the status of a Job. Upstream checks most rules only if one of their fields has changed, so that a
//! status that already violates a rule can still be updated.

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::value;
use super::super::{join, not_negative};

const CONDITIONS: &str = "status.conditions";
const COMPLETION_TIME: &str = "status.completionTime";
const COMPLETED_INDEXES: &str = "status.completedIndexes";
const FAILED_INDEXES: &str = "status.failedIndexes";

/// One version of a Job.
struct Job<'a> {
    spec: &'a Value,
    status: &'a Value,
}

/// The updated Job and its previous version.
struct Update<'a> {
    new: Job<'a>,
    old: Job<'a>,
}

/// Adds an error for each rule that the updated status violates, in upstream's order.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let update = Update { new: Job::of(new), old: Job::of(old) };
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    not_negative(update.new.status, "status", &counts, errors);
    uncounted_pods(update.new.status, errors);
    finished_conditions(&update, errors);
    completion_time(&update, errors);
    required_conditions(&update, errors);
    finished_job(&update, errors);
    indexes(&update, errors);
    pod_counts(&update, errors);
    success_criteria(&update.new, errors);
    transitions(&update, errors);
}

impl<'a> Job<'a> {
    fn of(object: &'a Value) -> Self {
        Self { spec: value::at(object, &["spec"]), status: value::at(object, &["status"]) }
    }

    fn has_condition(&self, of_type: &str, status: &str) -> bool {
        let matches =
            |it: &Value| value::text(it, &["type"]) == of_type && value::text(it, &["status"]) == status;
        value::items(self.status, &["conditions"]).iter().any(matches)
    }

    fn holds(&self, of_type: &str) -> bool {
        self.has_condition(of_type, "True")
    }

    fn is_finished(&self) -> bool {
        self.holds("Complete") || self.holds("Failed")
    }

    fn is_indexed(&self) -> bool {
        value::text(self.spec, &["completionMode"]) == "Indexed"
    }

    /// Returns a field of the status; [`Value::Null`] if it is missing.
    fn field(&self, name: &str) -> &'a Value {
        value::at(self.status, &[name])
    }

    fn count(&self, name: &str) -> i64 {
        value::integer(self.status, &[name]).unwrap_or_default()
    }

    fn indexes(&self, name: &str) -> &'a str {
        value::text(self.status, &[name])
    }

    fn completions(&self) -> Option<i64> {
        value::integer(self.spec, &["completions"])
    }
}

impl Update<'_> {
    fn condition_changed(&self, of_type: &str) -> bool {
        self.new.holds(of_type) != self.old.holds(of_type)
    }

    fn finished_changed(&self) -> bool {
        self.new.is_finished() != self.old.is_finished()
    }

    /// Returns whether an optional field has changed. A missing field differs from an empty one.
    fn changed(&self, field: &str) -> bool {
        self.new.field(field) != self.old.field(field)
    }

    fn count_changed(&self, field: &str) -> bool {
        self.new.count(field) != self.old.count(field)
    }
}

fn uncounted_pods(status: &Value, errors: &mut FieldErrors) {
    let mut seen = Vec::new();
    for list in ["succeeded", "failed"] {
        for (index, uid) in value::items(status, &["uncountedTerminatedPods", list]).iter().enumerate() {
            let field = format!("status.uncountedTerminatedPods.{list}[{index}]");
            match uid.as_str().unwrap_or_default() {
                "" => errors.invalid(field, "", "must not be empty"),
                uid if seen.contains(&uid) => errors.duplicate(field, uid),
                uid => seen.push(uid),
            }
        }
    }
}

fn finished_conditions(update: &Update<'_>, errors: &mut FieldErrors) {
    let (new, complete_changed) = (&update.new, update.condition_changed("Complete"));
    for (other, shown) in [("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")] {
        let changed = complete_changed || update.condition_changed(other);
        if changed && new.holds("Complete") && new.holds(other) {
            errors.bare_invalid(CONDITIONS, &format!("cannot set Complete=True and {shown} conditions"));
        }
    }
}

fn completion_time(update: &Update<'_>, errors: &mut FieldErrors) {
    let (new, completed) = (&update.new, update.new.field("completionTime"));
    let completion_changed = update.changed("completionTime");
    if update.condition_changed("Complete") || completion_changed {
        if !completed.is_null() && !new.holds("Complete") {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(COMPLETION_TIME, completed.clone(), detail);
        }
        if completed.is_null() && new.holds("Complete") {
            errors.required(COMPLETION_TIME, "completionTime is required for Complete jobs");
        }
    }
    // Both are RFC 3339 in UTC with whole seconds, so the order of the texts is the order of the times.
    let times = new.field("startTime").as_str().zip(completed.as_str());
    let is_before_start = times.is_some_and(|(started, completed)| completed < started);
    if is_before_start && (completion_changed || update.changed("startTime")) {
        errors.invalid(COMPLETION_TIME, completed.clone(), "must be equal to or after `startTime`");
    }
}

fn required_conditions(update: &Update<'_>, errors: &mut FieldErrors) {
    let new = &update.new;
    let failed_changed = update.condition_changed("Failed") || update.changed("failedIndexes");
    if failed_changed && new.holds("Failed") && !new.holds("FailureTarget") {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.bare_invalid(CONDITIONS, detail);
    }
    let complete_changed =
        update.condition_changed("Complete") || update.condition_changed("SuccessCriteriaMet");
    if complete_changed && new.holds("Complete") && !new.holds("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.bare_invalid(CONDITIONS, detail);
    }
}

fn finished_job(update: &Update<'_>, errors: &mut FieldErrors) {
    let (new, finished_changed) = (&update.new, update.finished_changed());
    if !new.is_finished() {
        return;
    }
    if (finished_changed || update.count_changed("active")) && new.count("active") > 0 {
        errors.invalid("status.active", new.count("active"), "active>0 is invalid for finished job");
    }
    let never_starts = value::flag(new.spec, &["suspend"]) && new.completions() == Some(0);
    let start_changed = finished_changed || update.changed("startTime");
    if start_changed && !never_starts && new.field("startTime").is_null() {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let uncounted = new.field("uncountedTerminatedPods");
    // As upstream, a missing list equals an empty one.
    let lists = |job: &Job<'_>| {
        ["succeeded", "failed"]
            .map(|list| value::items(job.status, &["uncountedTerminatedPods", list]).to_vec())
    };
    let uncounted_changed = finished_changed || lists(new) != lists(&update.old);
    if uncounted_changed && value::entries(uncounted, &[]).any(|it| !value::is_empty(it.1, &[])) {
        // Upstream shows its internal type, whose fields have other names than those of the API.
        let list = |name: &str| value::at(uncounted, &[name]).to_string();
        let shown = format!("{{\"Succeeded\":{},\"Failed\":{}}}", list("succeeded"), list("failed"));
        errors.invalid_json("status.uncountedTerminatedPods", &shown, "must be empty for finished job");
    }
}

fn indexes(update: &Update<'_>, errors: &mut FieldErrors) {
    let new = &update.new;
    let (completed, failed) = (new.indexes("completedIndexes"), new.field("failedIndexes").as_str());
    let completed_changed = completed != update.old.indexes("completedIndexes");
    let failed_changed = update.changed("failedIndexes");
    let has_limit = value::has(new.spec, &["backoffLimitPerIndex"]);
    if let Some(completions) = new.completions() {
        let format = |field: &str, text: &str, errors: &mut FieldErrors| {
            if let Err(problem) = check_intervals(text, completions) {
                let name = field.trim_start_matches("status.");
                errors.invalid(field, text, &format!("error parsing {name}: {problem}"));
            }
        };
        if completed_changed {
            format(COMPLETED_INDEXES, completed, errors);
        }
        if let Some(failed) = failed.filter(|_| failed_changed && has_limit) {
            format(FAILED_INDEXES, failed, errors);
        }
    }
    if completed_changed && !completed.is_empty() && !new.is_indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(COMPLETED_INDEXES, completed, detail);
    }
    let Some(failed) = failed else { return };
    if failed_changed && !has_limit {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(FAILED_INDEXES, failed, detail);
    }
    let overlap = new
        .completions()
        .filter(|_| failed_changed || completed_changed)
        .and_then(|completions| first_overlap(completed, failed, completions));
    if let Some(index) = overlap {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(FAILED_INDEXES, failed, &detail);
    }
}

fn pod_counts(update: &Update<'_>, errors: &mut FieldErrors) {
    let new = &update.new;
    let terminating_changed = update.finished_changed() || update.changed("terminating");
    if terminating_changed && new.is_finished() && new.count("terminating") > 0 {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid("status.terminating", new.count("terminating"), detail);
    }
    let ready_changed = update.changed("ready") || update.count_changed("active");
    if ready_changed && new.count("ready") > new.count("active") && value::has(new.status, &["ready"]) {
        errors.invalid("status.ready", new.count("ready"), "cannot set more ready pods than active");
    }
}

fn success_criteria(new: &Job<'_>, errors: &mut FieldErrors) {
    if new.holds("SuccessCriteriaMet") {
        for (other, shown) in [("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")] {
            if new.holds(other) {
                let detail = format!("cannot set SuccessCriteriaMet=True and {shown} conditions");
                errors.bare_invalid(CONDITIONS, &detail);
            }
        }
    } else if value::has(new.spec, &["successPolicy"]) && new.holds("Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.bare_invalid(CONDITIONS, detail);
    }
}

fn transitions(update: &Update<'_>, errors: &mut FieldErrors) {
    let (new, old) = (&update.new, &update.old);
    for of_type in ["Failed", "Complete", "FailureTarget"] {
        if old.holds(of_type) && !new.holds(of_type) {
            let detail = format!("cannot disable the terminal {of_type}=True condition");
            errors.bare_invalid(CONDITIONS, &detail);
        }
    }
    let scales = new.is_indexed() && new.completions() == value::integer(new.spec, &["parallelism"]);
    for (counter, can_decrease) in [("failed", false), ("succeeded", scales)] {
        if !can_decrease && new.count(counter) < old.count(counter) {
            let detail = format!("cannot decrease the {counter} counter");
            errors.invalid(join("status", counter), new.count(counter), &detail);
        }
    }
    let is_set = |field: &str| !new.field(field).is_null() && !old.field(field).is_null();
    if is_set("completionTime") && update.changed("completionTime") {
        errors.invalid(COMPLETION_TIME, new.field("completionTime").clone(), "field is immutable");
    }
    let resumes = old.holds("Suspended") && new.has_condition("Suspended", "False");
    let start_is_fixed = !old.field("startTime").is_null() && !value::flag(new.spec, &["suspend"]);
    if start_is_fixed && update.changed("startTime") && !resumes {
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid("status.startTime", new.field("startTime").clone(), detail);
    }
    let met = "SuccessCriteriaMet";
    if old.holds(met) && !new.holds(met) {
        errors.bare_invalid(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if old.holds("Complete") && !old.holds(met) && new.holds(met) {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.bare_invalid(CONDITIONS, detail);
    }
}

/// Parses an interval of indexes, such as `3` or `3-5`, into its first and last index.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    let index = |part: &str| match part.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {part:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {part:?}")),
        Ok(index) => Ok(index),
    };
    match parts[..] {
        [single] => index(single).map(|it| (it, it)),
        [first, last] => match (index(first)?, index(last)?) {
            (first, last) if first >= last => Err(not_increasing(first, last)),
            both => Ok(both),
        },
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        )),
    }
}

fn not_increasing(previous: i64, current: i64) -> String {
    format!("non-increasing order, previous: {previous}, current: {current}")
}

fn check_intervals(text: &str, completions: i64) -> Result<(), String> {
    let mut previous = None;
    for fragment in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = interval(fragment, completions)?;
        match previous {
            Some(previous) if previous >= first => return Err(not_increasing(previous, first)),
            _ => previous = Some(last),
        }
    }
    Ok(())
}

/// Returns the first index that both lists of intervals contain. Malformed intervals are skipped; their errors are
/// reported by [`check_intervals`].
fn first_overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|it| interval(it, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((first, last)), Some((failed_first, failed_last))) = (completed.peek(), failed.peek()) {
        if first <= failed_last && failed_first <= last {
            return Some(*first.max(failed_first));
        }
        if first <= failed_first {
            completed.next()
        } else {
            failed.next()
        };
    }
    None
}
