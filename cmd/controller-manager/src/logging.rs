//! Log filter for a verbosity.
//!
//! Guarantees: below verbosity 6, libraries other than windlass log only warnings. Warnings of kube's client are
//! disabled because they quote whole responses, including Secrets; the callers log these failures.

/// Returns the filter directives for a verbosity of klog.
pub(crate) fn filter(verbosity: u32) -> &'static str {
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
