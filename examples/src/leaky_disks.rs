//! Provides a disk for each Service that requests one, and has a bug.
//!
//! A Service requests a disk with the annotation `example.com/disk: 1Gi`. The controller records the name of the disk
//! in a second annotation. That takes two writes. If the process dies between them, no object refers to the new disk:
//! the next process creates another disk, and the first one is never used and never deleted. No test on a healthy
//! cluster finds this bug.

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
            disk: setup.writer::<PersistentVolumeClaim>().create().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        let Some(size) = service.annotations().get(SIZE_ANNOTATION) else { return Ok(Outcome::Done) };
        if service.annotations().contains_key(DISK_ANNOTATION) {
            return Ok(Outcome::Done);
        }
        let disk = self.disk.create(cx, &disk_for(key, size)?).await?;

        // The bug: if the process dies here, the name of the disk is lost.

        let record_name = |service: &mut Service| {
            service.annotations_mut().insert(DISK_ANNOTATION.to_owned(), disk.name_any());
        };
        self.service.patch(cx, &service, record_name).await?;
        Ok(Outcome::Done)
    }
}

fn disk_for(key: &ObjectKey, size: &str) -> Result<PersistentVolumeClaim, ReconcileError> {
    let disk = json!({
        "metadata": { "generateName": format!("{}-", key.name()), "namespace": key.namespace() },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } },
    });
    serde_json::from_value(disk).map_err(terminal)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use windlass::testing::{Cluster, FaultAction, FaultPlan, Faults, Simulation, Snapshot, Violation};
    use windlass::testing::{exhaustive_crash, object, random_plans, replay};

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
    fn run_without_faults_finds_no_violation() {
        let report = Simulation::new(1).run(three_ask_for_disks).expect("no check reports a violation");
        assert_eq!(report.writes, 6);
    }

    /// Returns the words of a report without times, numbers of requests, queries, versions and generated names.
    fn shape(line: &str) -> Vec<&str> {
        let words = line.split_whitespace().skip(1).filter(|word| !word.starts_with('#'));
        words.map(|word| word.split(['?', '@', '-']).next().unwrap_or_default()).collect()
    }

    #[test]
    fn crash_after_the_first_write_is_found_to_leak_a_disk() {
        let failure =
            exhaustive_crash(&Simulation::new(1), three_ask_for_disks).expect_err("the bug is found");
        let disk = "persistentvolumeclaims/default/web-".to_owned();
        assert_eq!(failure.violation, Violation::CreatedTooOften { object: disk, count: 2, expected: 1 });
        assert_eq!(failure.plan.faults[0].action, FaultAction::CrashAtWrite { write: 1, after_effect: true });
        assert!(failure.trace.changes.contains("POST /api/v1/namespaces/default/persistentvolumeclaims"));
        let page = include_str!("../../docs/testing.md");
        let transcript = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        let report = failure.to_string();
        let report: Vec<_> = report.lines().map(shape).collect();
        for line in transcript.expect("a transcript").lines() {
            assert!(
                report.contains(&shape(line)),
                "docs/testing.md: {line:?} is not in the report:\n{failure}"
            );
        }
    }

    #[test]
    fn random_faults_find_leak_and_plan_is_reduced() {
        let simulation = Simulation::new(1).minutes(3).faults(Faults::all());
        let failure = random_plans(&simulation, 200, three_ask_for_disks).expect_err("the bug is found");
        assert!(matches!(failure.violation, Violation::CreatedTooOften { .. }), "{failure}");
        assert!(failure.plan.faults.len() <= 2, "{failure}");
    }

    #[test]
    fn printed_plan_reproduces_failure() {
        // Pasted from the output of a failed run. After a fix the assertion is inverted, to prevent a regression.
        let plan = FaultPlan::from_json(
            r##"{"seed": 1, "faults": [
    {"from_ms":0,"until_ms":0,"what":{"CrashAtWrite":{"write":1,"after_effect":true}}}
]}"##,
        )
        .expect("a printed plan");
        assert!(replay(&Simulation::new(1), plan, three_ask_for_disks).is_err());
    }
}
