//! Log subscriber for a verbosity and a format, and traces if the feature `opentelemetry` is on.
//!
//! Guarantees: log lines go to stderr, and stdout contains only the requested output. Below verbosity 6, libraries
//! other than windlass log only warnings. Warnings of kube's client are disabled because they quote whole responses,
//! including Secrets; the callers log these failures.

use tracing_subscriber::EnvFilter;
#[cfg(feature = "opentelemetry")]
use {
    tracing_subscriber::{Layer, Registry, fmt, util::SubscriberInitExt as _},
    windlass::opentelemetry::{SHUTDOWN_TIMEOUT, Traces},
};

use windlass::env::Env;

use crate::config::Logging;
use crate::settings::Format;

/// The log and the traces of the process.
pub(crate) struct Log {
    #[cfg(feature = "opentelemetry")]
    traces: Option<Traces>,
}

impl Log {
    /// Installs the subscriber of the process. Called once, by `main`.
    ///
    /// # Errors
    /// If a subscriber has been installed before, or the variables `OTEL_*` are invalid.
    #[cfg_attr(not(feature = "opentelemetry"), expect(unused_variables))]
    pub(crate) fn install(env: &Env, logging: Logging) -> anyhow::Result<Self> {
        let filter = EnvFilter::new(filter(logging.verbosity));
        #[cfg(feature = "opentelemetry")]
        if let Some(traces) = Traces::from_environment(env, "windlass")? {
            let subscriber = traces.subscriber(filter, layer(logging.format));
            subscriber.try_init().map_err(|error| not_installed(&error))?;
            return Ok(Self { traces: Some(traces) });
        }
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let installed = match logging.format {
            Format::Text => builder.with_ansi(is_terminal()).try_init(),
            Format::Json => builder.json().flatten_event(true).try_init(),
        };
        installed.map_err(|error| not_installed(&*error))?;
        Ok(Self {
            #[cfg(feature = "opentelemetry")]
            traces: None,
        })
    }

    /// Exports the queued spans, for at most [`SHUTDOWN_TIMEOUT`].
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn close(&self) {
        if let Some(Err(error)) = self.traces.as_ref().map(|traces| traces.shutdown(SHUTDOWN_TIMEOUT)) {
            tracing::warn!(%error, "spans dropped at shutdown");
        }
    }
}

/// Returns the layer that writes the lines of the log.
#[cfg(feature = "opentelemetry")]
fn layer(format: Format) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        Format::Text => lines.with_ansi(is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    }
}

fn not_installed(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot install the log: {error}")
}

fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}

/// Returns the filter directives for a verbosity of klog.
fn filter(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "warn,kube_client=error,windlass=info",
        4..=5 => "warn,kube_client=error,windlass=debug",
        6..=7 => "debug,kube_client=error",
        _ => "trace,kube_client=error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_client_warnings_are_never_logged() {
        for verbosity in 0..=10 {
            let filter = filter(verbosity);
            assert!(
                filter.split(',').any(|directive| directive == "kube_client=error"),
                "{verbosity}: {filter}"
            );
        }
    }
}
