//! Filters: the spans of traces, and the messages of the SDK in the log.

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterFn, LevelFilter};

/// The target of the spans that the crates of windlass create for traces: `windlass_client::TRACE_TARGET`.
const TRACE_TARGET: &str = "windlass::trace";

/// Crates whose events traces do not contain: warnings of `kube_client` quote whole responses, including Secrets, and
/// the SDK reports its own problems.
const EXCLUDED: [&str; 2] = ["kube_client", "opentelemetry_sdk"];

/// Returns the filter of the spans and events that traces contain.
pub(crate) fn spans() -> FilterFn<fn(&Metadata<'_>) -> bool> {
    FilterFn::new(is_traced as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::TRACE)
}

fn is_traced(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    if target == TRACE_TARGET {
        return true;
    }
    let package = target.split("::").next().unwrap_or_default();
    // The runtime's other spans only identify log lines.
    let is_log_span = metadata.is_span() && package.starts_with("windlass_");
    *metadata.level() <= Level::INFO && !is_log_span && !EXCLUDED.contains(&package)
}

/// Returns the filter of the log. It disables the spans of traces, and the error of the SDK for each failed export: the
/// exporter logs only the first one.
pub(crate) fn log() -> FilterFn {
    FilterFn::new(|metadata| {
        metadata.target() != TRACE_TARGET && metadata.name() != "BatchSpanProcessor.ExportError"
    })
}
