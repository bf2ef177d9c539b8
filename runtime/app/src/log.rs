//! The log of the process, and its traces if the feature `opentelemetry` is on.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
#[cfg(feature = "opentelemetry")]
use {
    tracing_subscriber::{Layer, Registry, fmt, util::SubscriberInitExt as _},
    windlass_opentelemetry::{SHUTDOWN_TIMEOUT, Traces},
};

use windlass_env::Env;

use crate::arguments::LogFormat;
use crate::error::Error;

/// The default log filter, without `RUST_LOG`. Warnings of kube's client are disabled because they quote whole
/// responses.
const FILTER: &str = "info,kube_client=error";

/// The log and the traces of the process.
pub(crate) struct Log {
    #[cfg(feature = "opentelemetry")]
    traces: Option<Traces>,
}

impl Log {
    /// Logs to stderr, unless the process has a subscriber already. `program` is the service of the traces.
    #[cfg_attr(not(feature = "opentelemetry"), expect(unused_variables))]
    pub(crate) fn install(env: &Env, program: &str, format: LogFormat) -> Result<Self, Error> {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(FILTER));
        #[cfg(feature = "opentelemetry")]
        if let Some(traces) = Traces::from_environment(env, program)? {
            let _installed = traces.subscriber(filter, layer(format)).try_init();
            return Ok(Self { traces: Some(traces) });
        }
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let _installed = match format {
            LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        Ok(Self {
            #[cfg(feature = "opentelemetry")]
            traces: None,
        })
    }

    /// Exports the queued spans. Blocks the thread for at most [`SHUTDOWN_TIMEOUT`].
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn close(&self) {
        if let Some(Err(error)) = self.traces.as_ref().map(|traces| traces.shutdown(SHUTDOWN_TIMEOUT)) {
            tracing::warn!(%error, "spans dropped at shutdown");
        }
    }
}

/// Returns the layer that writes the lines of the log.
#[cfg(feature = "opentelemetry")]
fn layer(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}
