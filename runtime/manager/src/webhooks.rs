//! The configurations of webhooks, completed with the settings of the process.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::ObjectMeta;
use windlass_controller::host::{AdmissionDeclaration, Declaration};
use windlass_controller::{SetupError, WebhookConfig};

use crate::config::ManagerConfig;
use crate::error::ManagerError;

/// The port of the Service: the default of a client configuration.
const SERVICE_PORT: i32 = 443;

/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The objects by which the API server finds the webhooks of a process.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    pub(crate) service: Option<Service>,
    pub(crate) validating: Option<ValidatingWebhookConfiguration>,
    pub(crate) mutating: Option<MutatingWebhookConfiguration>,
}

impl Webhooks {
    /// Returns the objects of the declared webhooks.
    ///
    /// # Errors
    /// When a webhook of a foreign kind has no failure policy.
    pub(crate) fn of(
        declarations: &[Declaration],
        config: &ManagerConfig,
        namespace: &str,
    ) -> Result<Self, ManagerError> {
        let shipped: BTreeSet<(&str, &str)> = declarations
            .iter()
            .flat_map(|one| &one.definitions)
            .map(|it| (it.spec.group.as_str(), it.spec.names.plural.as_str()))
            .collect();
        let server = config.webhook_config();
        let (mut validating, mut mutating) = (Vec::new(), Vec::new());
        for (controller, declared) in
            declarations.iter().flat_map(|one| one.admissions.iter().map(|it| (one.descriptor.name, it)))
        {
            let completed = admission(declared, &shipped, &server, namespace);
            let webhook = completed.map_err(|source| ManagerError::Setup { controller, source })?;
            match declared.is_mutating {
                true => mutating.push(as_mutating(webhook)),
                false => validating.push(webhook),
            }
        }
        let has_conversion =
            declarations.iter().flat_map(|one| &one.definitions).any(|it| it.spec.conversion.is_some());
        let is_served = has_conversion || !validating.is_empty() || !mutating.is_empty();
        let named = || ObjectMeta { name: Some(server.configuration.clone()), ..ObjectMeta::default() };
        Ok(Self {
            service: (is_served && server.url.is_none()).then(|| service(config, &server, namespace)),
            validating: (!validating.is_empty())
                .then(|| ValidatingWebhookConfiguration { metadata: named(), webhooks: Some(validating) }),
            mutating: (!mutating.is_empty())
                .then(|| MutatingWebhookConfiguration { metadata: named(), webhooks: Some(mutating) }),
        })
    }
}

/// Completes the client configuration of a conversion.
pub(crate) fn complete(definition: &mut CustomResourceDefinition, config: &ManagerConfig, namespace: &str) {
    let conversion = definition.spec.conversion.as_mut().and_then(|it| it.webhook.as_mut());
    let Some(client) = conversion.and_then(|it| it.client_config.as_mut()) else { return };
    let Some(service) = &mut client.service else { return };
    namespace.clone_into(&mut service.namespace);
    if let Some(url) = config.webhook_config().url {
        client.url = Some(format!("{url}{}", service.path.as_deref().unwrap_or_default()));
        client.service = None;
    }
}

fn admission(
    declared: &AdmissionDeclaration,
    shipped: &BTreeSet<(&str, &str)>,
    server: &WebhookConfig,
    namespace: &str,
) -> Result<ValidatingWebhook, SetupError> {
    let mut webhook = declared.webhook.clone();
    let is_shipped = webhook.rules.iter().flatten().all(|rule| {
        let group = rule.api_groups.iter().flatten().next().map(String::as_str).unwrap_or_default();
        let resource = rule.resources.iter().flatten().next().map(String::as_str).unwrap_or_default();
        shipped.contains(&(group, resource.split('/').next().unwrap_or_default()))
    });
    if webhook.failure_policy.is_none() {
        if !is_shipped {
            return Err(SetupError::invalid(format!(
                "webhook {:?} has no failure policy, and this program does not ship the CRD of its kind; add \
                 .failure(FailurePolicy::Ignore) or .failure(FailurePolicy::Fail) to its Hook",
                webhook.name
            )));
        }
        webhook.failure_policy = Some("Fail".to_owned());
    }
    if !is_shipped && webhook.namespace_selector.is_none() {
        webhook.namespace_selector = Some(outside_of(&["kube-system", namespace]));
    }
    webhook.client_config = client(server, namespace, &declared.path);
    Ok(webhook)
}

/// Returns a selector of all namespaces except these.
fn outside_of(namespaces: &[&str]) -> LabelSelector {
    let names: BTreeSet<String> = namespaces.iter().map(|it| (*it).to_owned()).collect();
    let expression = LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(names.into_iter().collect()),
    };
    LabelSelector { match_expressions: Some(vec![expression]), ..LabelSelector::default() }
}

fn client(server: &WebhookConfig, namespace: &str, path: &str) -> WebhookClientConfig {
    match &server.url {
        Some(url) => {
            WebhookClientConfig { url: Some(format!("{url}{path}")), ..WebhookClientConfig::default() }
        }
        None => {
            let service = ServiceReference {
                name: server.service.clone(),
                namespace: namespace.to_owned(),
                path: Some(path.to_owned()),
                port: None,
            };
            WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }
        }
    }
}

/// Returns the Service of all replicas. It selects Pods by the label that charts set.
fn service(config: &ManagerConfig, server: &WebhookConfig, namespace: &str) -> Service {
    let port = ServicePort {
        name: Some("https".to_owned()),
        port: SERVICE_PORT,
        target_port: Some(IntOrString::Int(server.address.port().into())),
        ..ServicePort::default()
    };
    let selector = BTreeMap::from([("app.kubernetes.io/name".to_owned(), config.name.clone())]);
    let metadata = ObjectMeta {
        name: Some(server.service.clone()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = ServiceSpec { ports: Some(vec![port]), selector: Some(selector), ..ServiceSpec::default() };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

fn as_mutating(webhook: ValidatingWebhook) -> MutatingWebhook {
    let ValidatingWebhook {
        admission_review_versions,
        client_config,
        failure_policy,
        match_conditions,
        match_policy,
        name,
        namespace_selector,
        object_selector,
        rules,
        side_effects,
        timeout_seconds,
    } = webhook;
    MutatingWebhook {
        admission_review_versions,
        client_config,
        failure_policy,
        match_conditions,
        match_policy,
        name,
        namespace_selector,
        object_selector,
        // A mutator also sees the changes of the mutators after it.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules,
        side_effects,
        timeout_seconds,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::{CustomResource, CustomResourceExt as _};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use windlass_controller::{Registration, Runnable, RunnableContext, Setup};
    use windlass_webhook::{Conversion, FailurePolicy, Hook};

    use super::*;
    use crate::manifests::{ManifestOptions, ManifestPart, Manifests};
    use crate::registry::Registry;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
    struct LampSpec {
        color: String,
    }

    mod v2 {
        use super::*;

        #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
        #[kube(group = "example.com", version = "v2", kind = "Lamp", namespaced)]
        pub(super) struct LampSpec {
            pub(super) color: String,
        }
    }

    impl From<Lamp> for v2::Lamp {
        fn from(Lamp { metadata, spec }: Lamp) -> Self {
            Self { metadata, spec: v2::LampSpec { color: spec.color } }
        }
    }

    impl From<v2::Lamp> for Lamp {
        fn from(v2::Lamp { metadata, spec }: v2::Lamp) -> Self {
            Self { metadata, spec: LampSpec { color: spec.color } }
        }
    }

    /// Ships one version of the kind, as a controller does.
    struct Shipper;

    impl Runnable for Shipper {
        const NAME: &'static str = "shipper";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            setup.crd::<v2::Lamp>();
            Ok(Self)
        }

        async fn run(&self, _: RunnableContext) -> Result<(), windlass_controller::BoxError> {
            Ok(())
        }
    }

    const LAMPS: Hook = Hook::new("lamps.example.com");
    const PODS: Hook = Hook::new("pods.example.com");

    fn manifests(webhooks: windlass_webhook::Webhooks, url: Option<&str>) -> Result<Manifests, ManagerError> {
        let mut registry = Registry::new();
        registry.register(Registration::runnable::<Shipper>(())).expect("the first");
        registry.register(webhooks.into()).expect("the second");
        let mut config = ManagerConfig::new("test").named("keeper");
        let mut server = WebhookConfig::of_process("keeper");
        server.url = url.map(str::to_owned);
        config.webhooks = Some(server);
        Manifests::of(&registry, &config, &ManifestOptions::new("ops"))
    }

    fn lamps() -> windlass_webhook::Webhooks {
        windlass_webhook::Webhooks::new()
            .validates::<Lamp>(LAMPS, |_| Ok(()))
            .mutates::<Pod>(PODS.failure(FailurePolicy::Ignore), |_, pod| Ok(pod))
            .converts(Conversion::hub::<v2::Lamp>().spoke::<Lamp>())
    }

    #[test]
    fn webhook_of_own_kind_fails_and_of_foreign_kind_excludes_system() {
        let made = manifests(lamps(), None).expect("declared");
        let validating = &made.validating.as_ref().expect("validating").webhooks.as_ref().expect("one")[0];
        assert_eq!(validating.failure_policy.as_deref(), Some("Fail"));
        assert_eq!(validating.namespace_selector, None);
        let service = validating.client_config.service.as_ref().expect("a service");
        let path = service.path.as_deref();
        assert_eq!(
            (service.name.as_str(), service.namespace.as_str(), path),
            ("keeper-webhook", "ops", Some("/admission/lamps.example.com"))
        );
        let mutating = &made.mutating.as_ref().expect("mutating").webhooks.as_ref().expect("one")[0];
        assert_eq!(mutating.failure_policy.as_deref(), Some("Ignore"));
        let excluded = mutating.namespace_selector.as_ref().and_then(|it| it.match_expressions.as_ref());
        assert_eq!(
            excluded.expect("excluded")[0].values.as_deref(),
            Some(&["kube-system".to_owned(), "ops".to_owned()][..])
        );
    }

    #[test]
    fn foreign_kind_without_failure_policy_is_an_error() {
        let pods = windlass_webhook::Webhooks::new().validates::<Pod>(PODS, |_| Ok(()));
        let error = manifests(pods, None).expect_err("no policy").to_string();
        assert!(error.contains("pods.example.com") && error.contains("FailurePolicy::Ignore"), "{error}");
    }

    #[test]
    fn definition_of_conversion_replaces_that_of_controller() {
        let made = manifests(lamps(), None).expect("declared");
        assert_eq!(made.crds.len(), 1);
        assert_eq!(made.crds[0].metadata.name, v2::Lamp::crd().metadata.name);
        let conversion = made.crds[0].spec.conversion.as_ref().and_then(|it| it.webhook.as_ref());
        let client = conversion.and_then(|it| it.client_config.as_ref()).expect("a client");
        let service = client.service.as_ref().expect("a service");
        assert_eq!(
            (service.namespace.as_str(), service.path.as_deref()),
            ("ops", Some("/conversion/lamps.example.com"))
        );
        assert_eq!(made.crds[0].spec.versions.len(), 2);
    }

    #[test]
    fn url_replaces_the_service() {
        let made = manifests(lamps(), Some("https://127.0.0.1:9443")).expect("declared");
        assert_eq!(made.webhook_service, None);
        let url = |client: &WebhookClientConfig| client.url.clone();
        let validating = made.validating.expect("validating").webhooks.expect("one");
        assert_eq!(
            url(&validating[0].client_config).as_deref(),
            Some("https://127.0.0.1:9443/admission/lamps.example.com")
        );
        let conversion = made.crds[0].spec.conversion.as_ref().and_then(|it| it.webhook.as_ref());
        let client = conversion.and_then(|it| it.client_config.as_ref()).expect("a client");
        assert_eq!(client.url.as_deref(), Some("https://127.0.0.1:9443/conversion/lamps.example.com"));
    }

    #[test]
    fn rotation_may_read_and_write_only_its_own_objects() {
        let made = manifests(lamps(), None).expect("declared");
        let lines = |rules: &[k8s_openapi::api::rbac::v1::PolicyRule]| -> Vec<String> {
            let line = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
                let names = rule.resource_names.clone().unwrap_or_default().join(",");
                let resources = rule.resources.clone().unwrap_or_default().join(",");
                format!("{resources}[{names}] {}", rule.verbs.join(","))
            };
            rules.iter().map(line).collect()
        };
        let role = made.roles.iter().find(|it| it.metadata.name.as_deref() == Some("keeper-webhooks"));
        let role = role.expect("a role");
        assert_eq!(role.metadata.namespace.as_deref(), Some("ops"));
        let expected = ["secrets[] create", "secrets[keeper-webhook-certificates] get,update"];
        assert_eq!(lines(role.rules.as_deref().unwrap_or_default()), expected);
        let role =
            made.cluster_roles.iter().find(|it| it.metadata.name.as_deref() == Some("keeper-webhooks"));
        let expected = [
            "mutatingwebhookconfigurations,validatingwebhookconfigurations[keeper] get,patch",
            "customresourcedefinitions[lamps.example.com] get,patch",
        ];
        assert_eq!(lines(role.expect("a role").rules.as_deref().unwrap_or_default()), expected);
    }

    #[test]
    fn part_contains_configurations_and_service_only() {
        let yaml = manifests(lamps(), None).expect("declared").only(ManifestPart::Webhook).to_yaml();
        let kinds: Vec<&str> = yaml.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        assert_eq!(kinds, ["Service", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]);
    }
}
