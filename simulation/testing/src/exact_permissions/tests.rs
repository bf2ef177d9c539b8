use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::json;
use windlass_controller::{Controller, Outcome, ReconcileError, Setup, SetupError, Writer};
use windlass_informer::{Lister, NamespaceSet};
use windlass_object::ObjectKey;

use super::*;
use crate::{Cluster, Fault, FaultAction, FaultPlan, Simulation, object, replay};

/// Copies each ConfigMap into a Secret in the namespace that its data names.
struct Copier {
    maps: Lister<ConfigMap>,
    secrets: Lister<Secret>,
    secret: Writer<Secret>,
}

impl Controller for Copier {
    const NAME: &'static str = "copier";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Ok(Self {
            maps: setup.primary::<ConfigMap>().lister(),
            secrets: setup.watch::<Secret>().lister(),
            secret: setup.writer::<Secret>().create().build(),
        })
    }

    async fn reconcile(
        &self,
        key: &ObjectKey,
        cx: &windlass_controller::Context,
    ) -> Result<Outcome, ReconcileError> {
        let Some(map) = self.maps.get(key)? else { return Ok(Outcome::Done) };
        let target = map.data.as_ref().and_then(|data| data.get("target")).map_or("default", String::as_str);
        if self.secrets.get(&ObjectKey::namespaced(target, key.name()))?.is_none() {
            let secret = json!({ "metadata": { "name": key.name(), "namespace": target } });
            self.secret.create(cx, &object(secret)).await?;
        }
        Ok(Outcome::Done)
    }
}

/// Returns the violation of a campaign in which a ConfigMap names this namespace.
fn campaign(simulation: &Simulation, registration: &Registration, target: &str) -> Option<Violation> {
    campaign_of(simulation, registration, target, FaultPlan::without_faults(3))
}

fn campaign_of(
    simulation: &Simulation,
    registration: &Registration,
    target: &str,
    plan: FaultPlan,
) -> Option<Violation> {
    let script = async |cluster: Cluster| {
        cluster.run([registration.clone()]);
        let map = json!({ "metadata": { "name": "web" }, "data": { "target": target } });
        cluster.create(&object::<ConfigMap>(map)).await;
        cluster.eventually("there is a Secret", |now| now.get::<Secret>("web").is_some()).await;
    };
    replay(simulation, plan, script).err().map(|failure| failure.violation)
}

#[test]
fn campaign_with_exact_rights_passes_when_it_uses_every_rule() {
    let simulation = Simulation::new(3).caches_of::<Pod>().exact_permissions();
    assert_eq!(campaign(&simulation, &Registration::controller::<Copier>(), "default"), None);
}

#[test]
fn rule_that_no_run_uses_fails_the_campaign() {
    let simulation = Simulation::new(3).exact_permissions();
    let wide = Registration::controller::<Copier>()
        .with_settings(|setup| setup.uses::<Pod>([Verb::Get, Verb::Delete]));
    let Some(Violation::UnusedPermissions(rules)) = campaign(&simulation, &wide, "default") else {
        panic!("it passes")
    };
    assert_eq!(rules, r#"copier: - { apiGroups: [""], resources: ["pods"], verbs: [get, delete] }"#);
}

#[test]
fn request_outside_the_generated_roles_fails_the_run() {
    let watched = |simulation: Simulation| {
        simulation.with_config(|config| config.cache.namespaces = Some(NamespaceSet::from_names(["default"])))
    };
    let copier = Registration::controller::<Copier>();
    let simulation = watched(Simulation::new(3).exact_permissions());
    assert_eq!(campaign(&simulation, &copier, "default"), None);
    let violation = campaign(&simulation, &copier, "kube-public");
    assert_eq!(violation, Some(Violation::Forbidden("create secrets in kube-public".to_owned())));
}

#[test]
fn rejection_by_a_quota_is_no_violation() {
    let simulation = Simulation::new(3).caches_of::<Pod>().exact_permissions();
    let plan = FaultPlan { faults: vec![quota_for_a_while()], ..FaultPlan::without_faults(3) };
    assert_eq!(campaign_of(&simulation, &Registration::controller::<Copier>(), "default", plan), None);
}

/// Returns a fault that rejects every creation of a Secret in the first minute.
fn quota_for_a_while() -> Fault {
    Fault::until(Duration::from_secs(60), FaultAction::QuotaExceeded).for_resource("secrets")
}

#[test]
fn requests_of_the_script_do_not_use_a_rule() {
    let simulation = Simulation::new(3).exact_permissions();
    let wide =
        Registration::controller::<Copier>().with_settings(|setup| setup.uses::<ConfigMap>([Verb::Create]));
    let Some(Violation::UnusedPermissions(rules)) = campaign(&simulation, &wide, "default") else {
        panic!("it passes")
    };
    assert_eq!(rules, r#"copier: - { apiGroups: [""], resources: ["configmaps"], verbs: [create] }"#);
}
