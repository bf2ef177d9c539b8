//! A dedicated control plane per test. Its logs are kept if the test fails.

use anyhow::{Context as _, Result};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::audit::Audit;

/// Starts a control plane that audits every write, runs `body` on it, and stops it.
///
/// # Errors
/// The control plane or `body` fails; the logs are then kept, and their folder is printed.
pub async fn with_control_plane<T>(
    options: ControlPlaneOptions,
    body: impl AsyncFnOnce(&ControlPlane, &Audit) -> Result<T>,
) -> Result<T> {
    let audit = Audit::new()?;
    let plane = ControlPlane::start(audit.record(options)).await.context("starting a plane")?;
    let outcome = body(&plane, &audit).await;
    if outcome.is_err() {
        plane.keep_logs();
    }
    plane.stop().await?;
    outcome
}
