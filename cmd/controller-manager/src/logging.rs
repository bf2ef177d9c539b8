//! Log subscriber for a verbosity and a format.
//!
//! Guarantees: log lines go to stderr, and stdout contains only the requested output. Below verbosity 6, libraries
//! other than windlass log only warnings. Warnings of kube's client are disabled because they quote whole responses,
//! including Secrets; the callers log these failures.

use tracing_subscriber::EnvFilter;

use crate::config::Logging;
use crate::settings::Format;

/// Installs the subscriber of the process. Called once, by `main`.
///
/// # Errors
/// If a subscriber has been installed before.
pub(crate) fn install(logging: Logging) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(logging.verbosity)))
        .with_writer(std::io::stderr);
    let installed = match logging.format {
        Format::Text => builder.with_ansi(is_terminal()).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("cannot install the log: {error}"))
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
