//! Objects that exist before a controller starts: pods to adopt, surplus pods and obsolete Endpoints.
//!
//! These objects are created before the subject runs (`plane.rs`). Each test then checks one outcome.

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::ReplicaSet,
        core::v1::{Endpoints, Pod, ReplicationController},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::Client;
use windlass_black_box::{
    fixtures::{LABEL, owner, pod},
    test_namespace::TestNamespace,
    wait::eventually,
    workload::{Workload, stable},
};

use crate::plane;

/// Owner references of the pod of a case before the subject starts and afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reference {
    OwnerOnly,
    None,
    Controller,
    OwnerNextToController,
}

const CASES: [(&str, Reference); 4] = [
    ("adopt-owner-only", Reference::OwnerOnly),
    ("adopt-orphan", Reference::None),
    ("adopt-own", Reference::Controller),
    ("adopt-foreign", Reference::OwnerNextToController),
];

impl Reference {
    fn before<W: Workload>(self, workload: &W) -> Vec<OwnerReference> {
        let ours = |controller| owner(W::API_VERSION, W::KIND, "web", &workload.uid(), controller, None);
        let other = owner(W::API_VERSION, W::KIND, "another", "1", Some(true), None);
        match self {
            Reference::OwnerOnly => vec![ours(None)],
            Reference::None => vec![],
            Reference::Controller => vec![ours(Some(true))],
            Reference::OwnerNextToController => vec![other, ours(None)],
        }
    }

    fn after<W: Workload>(self, workload: &W) -> Vec<OwnerReference> {
        let adopted = owner(W::API_VERSION, W::KIND, "web", &workload.uid(), Some(true), Some(true));
        match self {
            Reference::OwnerOnly | Reference::None => vec![adopted],
            Reference::Controller | Reference::OwnerNextToController => self.before(workload),
        }
    }
}

fn namespace_of<W: Workload>(case: &str) -> String {
    format!("{case}-{}", W::KIND.to_lowercase())
}

/// Creates the objects of the tests below while no subject runs.
pub(crate) async fn prepare(client: &Client) -> Result<()> {
    prepare_for::<ReplicaSet>(client).await?;
    prepare_for::<ReplicationController>(client).await?;
    prepare_leftovers(client).await
}

async fn prepare_for<W: Workload>(client: &Client) -> Result<()> {
    for (case, reference) in CASES {
        let namespace = plane::named_namespace(client, &namespace_of::<W>(case)).await?;
        let workload = namespace.create(&W::new("web", 1)).await?;
        let mut found = pod("found");
        found.metadata.owner_references = Some(reference.before(&workload));
        namespace.create(&found).await?;
    }
    let namespace = plane::named_namespace(client, &namespace_of::<W>("extra")).await?;
    namespace.create(&W::new("web", 2)).await?;
    for index in 0..3 {
        namespace.create(&pod(&format!("pod-{index}"))).await?;
    }
    Ok(())
}

async fn prepare_leftovers(client: &Client) -> Result<()> {
    let namespace = plane::named_namespace(client, "leftovers").await?;
    let mut leftover = Endpoints::default();
    leftover.metadata.name = Some("leftover".to_owned());
    namespace.create(&leftover).await?;
    let mut leader = leftover.clone();
    leader.metadata.name = Some("leader".to_owned());
    leader.metadata.annotations =
        Some(windlass_black_box::fixtures::pairs(&[("control-plane.alpha.kubernetes.io/leader", "{}")]));
    namespace.create(&leader).await?;
    Ok(())
}

async fn adoption<W: Workload>(case: usize) -> Result<()> {
    let (case, reference) = CASES[case];
    let namespace = plane::prepared_namespace(&namespace_of::<W>(case)).await?;
    let workload = namespace.get::<W>("web").await?;
    let expected = reference.after(&workload);
    eventually(
        &format!("the pod's owners become {expected:?}"),
        || namespace.get::<Pod>("found"),
        |pod| pod.metadata.owner_references.clone().unwrap_or_default() == expected,
    )
    .await?;
    stable::<W>(&namespace, "web").await?;
    let pod = namespace.get::<Pod>("found").await?;
    ensure!(pod.metadata.owner_references.unwrap_or_default() == expected, "and stay so");
    Ok(())
}

async fn extra_pods<W: Workload>() -> Result<()> {
    let namespace: TestNamespace = plane::prepared_namespace(&namespace_of::<W>("extra")).await?;
    stable::<W>(&namespace, "web").await?;
    eventually("two of three pods remain", || namespace.pods(LABEL), |pods| pods.len() == 2).await?;
    Ok(())
}

macro_rules! adoption {
    ($module:ident, $kind:ty) => {
        mod $module {
            use anyhow::Result;

            #[tokio::test]
            async fn owner_that_is_no_controller_is_promoted() -> Result<()> {
                super::adoption::<$kind>(0).await
            }

            #[tokio::test]
            async fn orphan_is_adopted() -> Result<()> {
                super::adoption::<$kind>(1).await
            }

            #[tokio::test]
            async fn pod_already_controlled_is_left_as_it_is() -> Result<()> {
                super::adoption::<$kind>(2).await
            }

            #[tokio::test]
            async fn pod_with_another_controller_is_left_as_it_is() -> Result<()> {
                super::adoption::<$kind>(3).await
            }

            #[tokio::test]
            async fn pods_too_many_are_adopted_and_one_deleted() -> Result<()> {
                super::extra_pods::<$kind>().await
            }
        }
    };
}

adoption!(replica_set, k8s_openapi::api::apps::v1::ReplicaSet);
adoption!(replication_controller, k8s_openapi::api::core::v1::ReplicationController);

#[tokio::test]
async fn endpoints_without_a_service_are_removed_unless_they_hold_a_leader() -> Result<()> {
    let namespace = plane::prepared_namespace("leftovers").await?;
    eventually("the leftover is gone", || namespace.find::<Endpoints>("leftover"), Option::is_none).await?;
    ensure!(namespace.find::<Endpoints>("leader").await?.is_some(), "a leader record was deleted");
    Ok(())
}
