//! Common interface of ReplicaSet and ReplicationController, so that one scenario tests both.

use std::fmt::Debug;

use anyhow::Result;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetSpec},
        core::v1::{PodTemplateSpec, ReplicationController, ReplicationControllerSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::{Api, api::PostParams};

use crate::{
    fixtures,
    test_namespace::{Kind, TestNamespace},
    wait::eventually,
};

/// The numbers in the status of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `status.replicas`
    pub replicas: i32,
    /// `status.fullyLabeledReplicas`
    pub fully_labeled: i32,
    /// `status.readyReplicas`
    pub ready: i32,
    /// `status.availableReplicas`
    pub available: i32,
    /// `status.terminatingReplicas`
    pub terminating: Option<i32>,
    /// `status.observedGeneration`
    pub observed_generation: i64,
}

/// A kind that maintains a number of pods.
pub trait Workload: Kind {
    /// `apiVersion` in owner references.
    const API_VERSION: &'static str;
    /// `kind` in owner references.
    const KIND: &'static str;

    /// Creates a workload that selects the common label.
    fn new(name: &str, replicas: i32) -> Self;
    /// `spec.replicas`
    fn desired(&self) -> i32;
    /// Sets `spec.replicas`.
    fn set_desired(&mut self, replicas: i32);
    /// Sets `spec.minReadySeconds`.
    fn set_min_ready_seconds(&mut self, seconds: i32);
    /// `spec.template`
    fn template_mut(&mut self) -> &mut PodTemplateSpec;
    /// `status`
    fn counts(&self) -> Counts;

    /// `metadata.uid`
    fn uid(&self) -> String {
        self.meta().uid.clone().unwrap_or_default()
    }

    /// `metadata.name`
    fn name(&self) -> String {
        self.meta().name.clone().unwrap_or_default()
    }
}

impl Workload for ReplicaSet {
    const API_VERSION: &'static str = "apps/v1";
    const KIND: &'static str = "ReplicaSet";

    fn new(name: &str, replicas: i32) -> Self {
        ReplicaSet {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(ReplicaSetSpec {
                replicas: Some(replicas),
                selector: LabelSelector {
                    match_labels: Some(fixtures::labels()),
                    ..LabelSelector::default()
                },
                template: Some(fixtures::template()),
                ..ReplicaSetSpec::default()
            }),
            status: None,
        }
    }

    fn desired(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn set_desired(&mut self, replicas: i32) {
        self.spec.get_or_insert_default().replicas = Some(replicas);
    }

    fn set_min_ready_seconds(&mut self, seconds: i32) {
        self.spec.get_or_insert_default().min_ready_seconds = Some(seconds);
    }

    fn template_mut(&mut self) -> &mut PodTemplateSpec {
        self.spec.get_or_insert_default().template.get_or_insert_default()
    }

    fn counts(&self) -> Counts {
        let Some(status) = &self.status else { return Counts::default() };
        Counts {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: status.terminating_replicas,
            observed_generation: status.observed_generation.unwrap_or(0),
        }
    }
}

impl Workload for ReplicationController {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ReplicationController";

    fn new(name: &str, replicas: i32) -> Self {
        ReplicationController {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(ReplicationControllerSpec {
                replicas: Some(replicas),
                selector: Some(fixtures::labels()),
                template: Some(fixtures::template()),
                ..ReplicationControllerSpec::default()
            }),
            status: None,
        }
    }

    fn desired(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn set_desired(&mut self, replicas: i32) {
        self.spec.get_or_insert_default().replicas = Some(replicas);
    }

    fn set_min_ready_seconds(&mut self, seconds: i32) {
        self.spec.get_or_insert_default().min_ready_seconds = Some(seconds);
    }

    fn template_mut(&mut self) -> &mut PodTemplateSpec {
        self.spec.get_or_insert_default().template.get_or_insert_default()
    }

    fn counts(&self) -> Counts {
        let Some(status) = &self.status else { return Counts::default() };
        Counts {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: None,
            observed_generation: status.observed_generation.unwrap_or(0),
        }
    }
}

/// Creates a workload and waits until its status has the desired number of replicas.
///
/// # Errors
/// Returns an error if the API server rejects the request, or if the timeout passes.
pub async fn create_stable<W: Workload>(namespace: &TestNamespace, workload: &W) -> Result<W> {
    let created = namespace.create(workload).await?;
    stable::<W>(namespace, &created.name()).await
}

/// Waits until the status of a workload has its newest generation and the desired number of replicas.
///
/// # Errors
/// Returns an error if the API server rejects the request, or if the timeout passes.
pub async fn stable<W: Workload>(namespace: &TestNamespace, name: &str) -> Result<W> {
    let settled = |workload: &W| {
        let counts = workload.counts();
        counts.replicas == workload.desired()
            && counts.observed_generation >= workload.meta().generation.unwrap_or(0)
    };
    eventually(
        &format!("{} {name} reports the desired replicas", W::KIND),
        || namespace.get::<W>(name),
        settled,
    )
    .await
}

/// Changes `spec.replicas` and waits until the status matches.
///
/// # Errors
/// Returns an error if the API server rejects the request, or if the timeout passes.
pub async fn scale<W: Workload>(namespace: &TestNamespace, name: &str, replicas: i32) -> Result<W> {
    namespace.update::<W>(name, |workload| workload.set_desired(replicas)).await?;
    stable(namespace, name).await
}

/// Changes `spec.replicas` through the scale subresource, as autoscalers do.
///
/// # Errors
/// Returns an error if the API server rejects the request.
pub async fn scale_subresource<W: Workload>(
    namespace: &TestNamespace,
    name: &str,
    replicas: i32,
) -> Result<i32> {
    let api: Api<W> = namespace.api();
    loop {
        let mut scale = api.get_scale(name).await?;
        scale.spec.get_or_insert_default().replicas = Some(replicas);
        match api.replace_scale(name, &PostParams::default(), &scale).await {
            Ok(scale) => return Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)),
            Err(kube::Error::Api(refusal)) if refusal.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
}
