//! From verbosity and format to a subscriber.
//!
//! Guarantees: log lines go to stderr, stdout stays for what was asked for; the libraries below windlass stay
//! silent, warnings aside, until verbosity 6. kube's client never warns: its warnings quote whole answers, Secrets
//! among them, and what went wrong is told by whoever asked.

use tracing_subscriber::EnvFilter;

use crate::config::Logging;
use crate::settings::Format;

/// Installs the process's subscriber. Called once, by `main` alone.
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

/// Filter directives for a verbosity as klog's users know it.
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
    fn warnings_that_quote_whole_answers_are_never_logged() {
        for verbosity in 0..=10 {
            let filter = filter(verbosity);
            assert!(
                filter.split(',').any(|directive| directive == "kube_client=error"),
                "{verbosity}: {filter}"
            );
        }
    }
}
