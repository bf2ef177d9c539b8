//! OpenTelemetry traces: exports a span per reconcile, with its requests to the API server, to a collector.
//!
//! [`Traces::from_environment`] reads the standard variables of OpenTelemetry. Without an endpoint it returns `None`,
//! and nothing is created or exported:
//!
//! | variable | meaning |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | URL of the collector, such as `http://collector:4318` |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` | headers and time limit of an export |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | name and attributes of the process; the default name is the program's |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | sampler, such as `parentbased_traceidratio` with `0.01` |
//! | `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_SCHEDULE_DELAY` | size of the span queue, and the time between exports |
//! | `OTEL_SDK_DISABLED` | `true` disables traces |
//!
//! The protocol is OTLP over HTTP with protobuf. HTTPS uses rustls and the CA certificates of the system, or those in
//! `SSL_CERT_FILE`.
//!
//! Guarantees:
//! - A reconcile never waits for the collector. Spans enter a queue of fixed size, which a dedicated thread exports. If
//!   the queue is full, spans are dropped; the first drop is logged, and their number when the process stops.
//! - A failed export is logged when the first one fails, and when the collector is available again.
//! - [`Traces::shutdown`] exports the queued spans, and returns after its time limit even if the collector does not
//!   respond.
//!
//! # Spans
//! - `reconcile <controller>`: one per attempt at a key, the root of its trace. Attributes: `controller`, `namespace`,
//!   `name`, `reconcile_id` as in the log, `retries` (consecutive failures before), `queue_duration` in seconds,
//!   `reason` of the reconcile, and `result` as in the metric `windlass_reconcile_total`. A failed reconcile has the
//!   status error and the message.
//! - `event`: the event that enqueued the key; the reconcile links to it. Attributes: `watch`, `namespace`, `name`,
//!   `uid`, `resource_version`, `change`, `cause`, and `age` in seconds at the start of the reconcile. A key that
//!   several events enqueue has the last event. The span starts when the reconcile starts.
//! - `<verb> <resource>`: a request of the reconcile, its child. Attributes: `verb`, `resource`, `k8s.namespace.name`,
//!   and those that OpenTelemetry defines for HTTP clients: `http.request.method`, `http.response.status_code`,
//!   `http.request.resend_count`, `server.address`, `url.path`, `error.type`. The time includes the wait for the rate
//!   limiter.
//! - Spans of the program at level info or above, such as those of `#[tracing::instrument]`.
//!
//! Log lines of a reconcile at level info or above are events of its span.

mod exporter;
mod filter;
mod http_client;
#[cfg(test)]
mod tests;

use std::env::var;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, HttpExporterBuilderSet, OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporterBuilder, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider, SpanExporter};
use tracing::Subscriber;
use tracing_subscriber::filter::FilterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};
use windlass_env::Env;

use crate::exporter::LoggedExporter;
use crate::http_client::CollectorClient;

/// The time that programs wait for the collector when they stop, after the controllers have stopped.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The traces of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

/// Traces cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracesError {
    /// A variable of the environment is invalid.
    #[error("traces cannot be exported: {0}; correct or unset the variables OTEL_*")]
    Configuration(#[from] ExporterBuildError),
    /// The HTTP client of the exporter cannot be created.
    #[error("traces cannot be exported: no HTTP client: {0}; check the CA certificates of the system")]
    Client(#[from] std::io::Error),
    /// The spans in the queue were not exported.
    #[error("traces lost at shutdown: {0}")]
    Shutdown(String),
}

impl Traces {
    /// Returns the traces that the environment variables of OpenTelemetry configure. `None` if they contain no
    /// endpoint, or disable OpenTelemetry. `env` limits the time of an export. `service` is the default name of the
    /// service.
    ///
    /// # Errors
    /// If a variable is invalid, or the CA certificates of the system cannot be read.
    pub fn from_environment(env: &Env, service: &str) -> Result<Option<Self>, TracesError> {
        let is_set = |name| var(name).is_ok_and(|value| !value.is_empty());
        let is_disabled = var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        if is_disabled
            || ![OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT].into_iter().any(is_set)
        {
            return Ok(None);
        }
        Self::exported_to(env, service, opentelemetry_otlp::SpanExporter::builder().with_http()).map(Some)
    }

    fn exported_to(
        env: &Env,
        service: &str,
        exporter: SpanExporterBuilder<HttpExporterBuilderSet>,
    ) -> Result<Self, TracesError> {
        let exporter = exporter.with_http_client(CollectorClient::new(env)?).build()?;
        Ok(Self::exported_by(service, exporter))
    }

    /// Returns traces that another exporter receives. A dedicated thread calls it, outside of a tokio runtime.
    pub fn exported_by(service: &str, exporter: impl SpanExporter + 'static) -> Self {
        let processor = BatchSpanProcessor::builder(LoggedExporter::new(exporter)).build();
        let mut resource = Resource::builder();
        if var("OTEL_SERVICE_NAME").is_err() {
            resource = resource.with_service_name(service.to_owned());
        }
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_span_processor(processor)
            .build();
        Self { provider }
    }

    /// Returns the layer that records the spans, for the subscriber of the process. It has its own filter: do not add a
    /// filter of the log to the whole subscriber.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("windlass"))
            .with_context_activation(false)
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_error_events_to_status(false)
            .with_filter(filter::spans())
    }

    /// Returns a subscriber for the process: these traces, and `log` for the lines that `filter` enables.
    pub fn subscriber<L>(&self, filter: EnvFilter, log: L) -> impl Subscriber + Send + Sync + use<L>
    where
        L: Layer<Registry> + Send + Sync,
    {
        let log = log.with_filter(filter.and(filter::log()));
        tracing_subscriber::registry().with(log).with(self.layer())
    }

    /// Exports the queued spans and stops the exporter. Blocks the thread for at most `timeout`. Later spans are
    /// dropped.
    ///
    /// # Errors
    /// If the collector did not receive the spans in time.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), TracesError> {
        self.provider.shutdown_with_timeout(timeout).map_err(|error| TracesError::Shutdown(error.to_string()))
    }
}
