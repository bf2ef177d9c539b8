//! The endpoints `/healthz`, `/livez` and `/readyz`, and `/metrics/slis` with metrics of their checks.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use windlass_metrics::Metrics;

use crate::health::{Health, Probe};
use crate::pages::{PageRequest, PageResponse, Pages};
use crate::service::PROMETHEUS_TEXT;

/// Adds the endpoint of every probe, and of every check as a sub-path.
pub(crate) fn add(pages: &Pages, health: &Health, metrics: &Metrics) {
    for probe in Probe::ALL {
        let name = probe.as_str();
        let checked = health.clone();
        pages.add(format!("/{name}"), Arc::new(move |request| all(&checked, probe, request)));
        let checked = health.clone();
        let prefix = format!("/{name}/");
        pages.add(prefix.clone(), Arc::new(move |request| one(&checked, probe, &prefix, request)));
    }
    let metrics = metrics.clone();
    let levels =
        move |_: &PageRequest| PageResponse::of(StatusCode::OK, PROMETHEUS_TEXT, metrics.encode_slis());
    pages.add("/metrics/slis", Arc::new(levels));
}

/// Runs every check except the excluded ones. Returns `ok`, or one line per check if `verbose` is set or a check fails.
fn all(health: &Health, probe: Probe, request: &PageRequest) -> PageResponse {
    let excluded: BTreeSet<String> = request.parameters("exclude").map(str::to_owned).collect();
    let report = health.report_without(probe, &excluded);
    if !report.passed() {
        return PageResponse {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            ..PageResponse::text(report.details())
        };
    }
    match request.parameter("verbose") {
        Some(_) => PageResponse::text(report.details()),
        None => PageResponse::text("ok"),
    }
}

/// Runs one check. Only a client that is authorized for this path receives the reason of a failure.
fn one(health: &Health, probe: Probe, prefix: &str, request: &PageRequest) -> PageResponse {
    let name = request.path.strip_prefix(prefix).unwrap_or_default();
    let Some(result) = health.check(probe, name) else {
        let why = format!("no such check of {}; {prefix}?verbose lists all checks", probe.as_str());
        return PageResponse::error(StatusCode::NOT_FOUND, why.replace("/?", "?"));
    };
    match result.outcome {
        Ok(()) => PageResponse::text("ok"),
        Err(reason) if request.reviewed => {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            PageResponse::error(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}"))
        }
        Err(_) => {
            let name = result.name;
            PageResponse::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("[-]{name} failed: reason withheld"),
            )
        }
    }
}
