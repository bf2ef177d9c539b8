//! Compares the printed roles with those of kube-controller-manager, which the API server creates at its start.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use windlass_black_box::control_plane::with_control_plane;
use windlass_controllers::{ControllerOptions, registrations};
use windlass_harness::ControlPlaneOptions;

use super::RoleOwner;
use super::permissions::Manifests;

/// Permissions that upstream's role lacks, with the role. kube-controller-manager reads these objects with the identity
/// of the process, whose role allows reads of all objects.
const READS: [(&str, &str); 4] = [
    ("service-account-controller", "namespaces"),
    ("service-account-controller", "serviceaccounts"),
    ("root-ca-cert-publisher", "namespaces"),
    ("root-ca-cert-publisher", "configmaps"),
];

/// Returns whether a rule of upstream allows the verb.
fn allows(rule: &PolicyRule, group: &str, resource: &str, verb: &str) -> bool {
    let contains =
        |list: Option<&Vec<String>>, item: &str| list.is_some_and(|list| list.iter().any(|it| it == item));
    contains(rule.api_groups.as_ref(), group)
        && contains(rule.resources.as_ref(), resource)
        && contains(Some(&rule.verbs), verb)
        && rule.resource_names.is_none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_roles_are_not_wider_than_those_of_upstream() -> Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    with_control_plane(options, async |plane, _| {
        let roles: Api<ClusterRole> = Api::all(plane.client().await);
        let registrations = registrations(&ControllerOptions::default());
        let (mut wider, mut excused) = (Vec::new(), Vec::new());
        for owner in RoleOwner::OF_NAMESPACES.into_iter().chain(RoleOwner::OF_CLUSTER) {
            let mut descriptors = registrations.iter().map(|registration| registration.descriptor());
            let descriptor = descriptors.find(|it| it.name == owner.name()).context(owner.name())?;
            let client = descriptor.client_name;
            let upstream = roles.get(&format!("system:controller:{client}")).await?.rules.unwrap_or_default();
            for permission in Manifests::print(owner).await?.permissions()? {
                let (group, resource, verb) = permission.parts();
                if upstream.iter().any(|rule| allows(rule, group, resource, verb)) {
                    continue;
                }
                let is_read = READS.contains(&(client, resource)) && ["list", "watch"].contains(&verb);
                let list = if is_read { &mut excused } else { &mut wider };
                list.push(format!("{client}: {verb} {resource} of group {group:?}"));
            }
        }
        ensure!(wider.is_empty(), "{wider:#?}");
        ensure!(excused.len() == 2 * READS.len(), "an exception is not needed: {excused:#?}");
        Ok(())
    })
    .await
}
