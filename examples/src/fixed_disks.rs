//! The fixed version of [`leaky_disks`](crate::leaky_disks): provides a disk for each Service that requests one.
//!
//! The controller derives the name of the disk from the name of the Service, and applies the disk instead of creating
//! it. The next process after a crash repeats the same writes, and they change nothing.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::ResourceExt;
use serde_json::json;
use windlass::prelude::*;

/// Annotation with which a Service requests a disk; its value is the size.
pub const SIZE_ANNOTATION: &str = "example.com/disk";
/// Annotation that the controller sets to the name of the disk.
pub const DISK_ANNOTATION: &str = "example.com/disk-name";

/// The controller.
#[derive(Debug)]
pub struct DiskController {
    services: Lister<Service>,
    service: Writer<Service>,
    disk: Writer<PersistentVolumeClaim>,
}

impl Controller for DiskController {
    const NAME: &'static str = "disk-keeper";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Ok(Self {
            services: setup.primary::<Service>().lister(),
            service: setup.writer::<Service>().patch().build(),
            disk: setup.writer::<PersistentVolumeClaim>().apply().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        let Some(size) = service.annotations().get(SIZE_ANNOTATION) else { return Ok(Outcome::Done) };
        if service.annotations().contains_key(DISK_ANNOTATION) {
            return Ok(Outcome::Done);
        }
        self.disk.apply(cx, &disk_for(key, size)?).await?;
        let record_name = |service: &mut Service| {
            service.annotations_mut().insert(DISK_ANNOTATION.to_owned(), key.name().to_owned());
        };
        self.service.patch(cx, &service, record_name).await?;
        Ok(Outcome::Done)
    }
}

fn disk_for(key: &ObjectKey, size: &str) -> Result<PersistentVolumeClaim, ReconcileError> {
    let disk = json!({
        "metadata": { "name": key.name(), "namespace": key.namespace() },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } },
    });
    serde_json::from_value(disk).map_err(terminal)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use windlass::testing::{Cluster, Simulation, Snapshot, exhaustive_crash, object};

    use super::*;

    /// Script: creates three Services that request disks, one per minute.
    async fn three_ask_for_disks(cluster: Cluster) {
        cluster.run([Registration::controller::<DiskController>()]);
        for name in ["web", "shop", "mail"] {
            let service = json!({
                "metadata": { "name": name, "annotations": { SIZE_ANNOTATION: "1Gi" } },
                "spec": { "ports": [{ "port": 80 }] },
            });
            cluster.create(&object::<Service>(service)).await;
            cluster.advance(Duration::from_secs(60)).await;
        }
        let has_disk = |service: &Value| !service["metadata"]["annotations"][DISK_ANNOTATION].is_null();
        let all_have = |now: &Snapshot| now.all("Service").filter(|it| has_disk(it)).count() == 3;
        cluster.eventually("three Services have disks", all_have).await;
    }

    #[test]
    fn crash_at_any_write_changes_nothing() {
        let summary = exhaustive_crash(&Simulation::new(1), three_ask_for_disks);
        let summary = summary.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((summary.baseline.writes, summary.runs), (6, 12));
    }

    #[windlass::simulation(minutes = 3, faults = all, plans = 20, caches = [Service], permissions = exact)]
    async fn random_faults_change_nothing(cluster: Cluster) {
        three_ask_for_disks(cluster).await;
    }
}
