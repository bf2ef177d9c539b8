//! A plane of a test's own, whose logs stay when the test fails.

use anyhow::{Context as _, Result};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::audit::Audit;

/// Starts a plane that records every write, runs `body` on it, and ends it.
///
/// # Errors
/// Those of the plane and of `body`; the plane's logs are kept then, and their folder is printed.
pub async fn on_plane<T>(
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
