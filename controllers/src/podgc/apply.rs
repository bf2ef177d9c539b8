//! Requests that mark and delete pods.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams};
use windlass_controller::{BoxError, Context};

use super::plan::Removal;
use super::status::failed_patch;
use super::{PERIOD, PodGarbageCollectorController};
use crate::shared::api_errors::{for_log, is_not_found, was_not_sent};
use crate::shared::pods;

/// Number of pods that are deleted concurrently. The rate limiter of the client is reached earlier.
const CONCURRENT: usize = 10;

impl PodGarbageCollectorController {
    /// Deletes pods until [`PERIOD`] has passed. Returns the number of pods for which a deletion was attempted.
    /// Failures are counted and logged.
    pub(super) async fn delete_all(&self, removals: &[Removal<'_>], cx: &Context) -> usize {
        let attempted = AtomicUsize::new(0);
        stream::iter(removals)
            .take_until(cx.env().sleep(PERIOD))
            .for_each_concurrent(CONCURRENT, async |removal| {
                attempted.fetch_add(1, Ordering::Relaxed);
                let namespace = pods::namespace(&removal.pod.metadata);
                let (pod, reason) = (&removal.pod.metadata.header.key, removal.reason.label());
                match self.delete(removal, cx).await {
                    Ok(()) => tracing::info!(%pod, reason, "pod deleted"),
                    // The next leader deletes the pod.
                    Err(error) if was_not_sent(&*error) => return,
                    Err(error) => {
                        self.metrics.failed(namespace, reason);
                        tracing::warn!(%pod, reason, error = for_log(&*error), "pod deletion failed");
                    }
                }
                self.metrics.deleting(namespace, reason);
            })
            .await;
        attempted.into_inner()
    }

    /// Marks a pod as failed and deletes it.
    ///
    /// # Errors
    /// If a request fails, except if the pod no longer exists.
    async fn delete(&self, removal: &Removal<'_>, cx: &Context) -> Result<(), BoxError> {
        let pod = removal.pod;
        if let Some(patch) = failed_patch(pod, removal.reason, &cx.time()) {
            let api = cx.api::<PartialObjectMeta<Pod>>(&pod.metadata.header.key);
            let name = pods::name(&pod.metadata);
            match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        let immediately = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.writer.delete_view(cx, pod, &immediately).await?;
        Ok(())
    }
}
