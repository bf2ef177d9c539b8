//! The log of the process, and its traces if the feature `opentelemetry` is on.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};
use windlass_env::Env;
#[cfg(feature = "opentelemetry")]
use windlass_opentelemetry::{SHUTDOWN_TIMEOUT, Traces, TracesError};

/// The log and the traces of a process. [`run`](crate::run) installs them; a program that builds a manager itself calls
/// [`Log::install`].
#[derive(Debug)]
pub struct Log {
    #[cfg(feature = "opentelemetry")]
    traces: Option<Traces>,
}

/// The format of log lines.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people, with colors on a terminal.
    Text,
    /// One JSON object on each line.
    Json,
}

/// The reason why a log was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The process has a subscriber.
    #[error("cannot install the log: {0}")]
    Installed(#[from] TryInitError),
    /// The variables `OTEL_*` are invalid.
    #[cfg(feature = "opentelemetry")]
    #[error(transparent)]
    Traces(#[from] TracesError),
}

impl Log {
    /// Logs the lines that `filter` enables to stderr. `filter` has the syntax of `RUST_LOG`. With the feature
    /// `opentelemetry` the process exports traces if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; `program` is their service.
    ///
    /// # Errors
    /// If the process has a subscriber, or the variables `OTEL_*` are invalid.
    #[cfg_attr(not(feature = "opentelemetry"), expect(unused_variables))]
    pub fn install(env: &Env, program: &str, filter: &str, format: LogFormat) -> Result<Self, LogError> {
        let filter = EnvFilter::new(filter);
        #[cfg(feature = "opentelemetry")]
        if let Some(traces) = Traces::from_environment(env, program)? {
            traces.subscriber(filter, lines(format)).try_init()?;
            return Ok(Self { traces: Some(traces) });
        }
        tracing_subscriber::registry().with(lines(format)).with(filter).try_init()?;
        Ok(Self {
            #[cfg(feature = "opentelemetry")]
            traces: None,
        })
    }

    /// Exports the queued spans, if the process exports traces. Blocks the thread for at most one second.
    pub fn close(&self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(Err(error)) = self.traces.as_ref().map(|traces| traces.shutdown(SHUTDOWN_TIMEOUT)) {
            tracing::warn!(%error, "spans dropped at shutdown");
        }
    }
}

/// Returns the layer that writes the lines of the log.
fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}
