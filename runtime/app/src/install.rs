//! Installation of the program's CRDs before it runs.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use windlass_client::{missing_permission, one_line};
use windlass_controller::{BoxError, Runnable, RunnableContext, RunsOn, Setup, SetupError};
use windlass_env::Env;
use windlass_object::Verb;

use crate::error::Error;

/// Time limit for a CRD to be served.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Verbs of the installation. An apply that creates an object requires both `create` and `patch`.
const INSTALL_VERBS: [Verb; 3] = [Verb::Get, Verb::Create, Verb::Patch];

/// Interval between checks of whether a CRD is established.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Installs CRDs before the caches of their kinds are filled.
pub(crate) struct CrdInstaller(Vec<CustomResourceDefinition>);

impl Runnable for CrdInstaller {
    const NAME: &'static str = "install-crds";
    const RUNS_ON: RunsOn = RunsOn::BeforeCaches;
    type Config = Vec<CustomResourceDefinition>;

    fn setup(setup: &mut Setup, crds: &Self::Config) -> Result<Self, SetupError> {
        setup.uses::<CustomResourceDefinition>(INSTALL_VERBS);
        Ok(Self(crds.clone()))
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        Ok(install_crds(cx.env(), cx.client(), &self.0, INSTALL_TIMEOUT).await?)
    }
}

/// Applies these CRDs, and waits until the server serves every version of their kinds: an older release can have
/// established them without the new versions. Other replicas of the API server can lag behind.
///
/// # Errors
/// When the server rejects a CRD, or does not serve it `within` this time. The error names the CRD.
///
/// # Cancel safety
/// Applied CRDs remain.
pub async fn install_crds(
    env: &Env,
    client: &Client,
    crds: &[CustomResourceDefinition],
    within: Duration,
) -> Result<(), Error> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let failed = |name: &str, reason: String| Error::Install { name: name.to_owned(), reason };
    for definition in crds {
        let (name, params) = (definition.name_any(), PatchParams::apply("windlass").force());
        let applied = api.patch(&name, &params, &Patch::Apply(definition)).await;
        applied.map_err(|error| failed(&name, described(&error)))?;
        tracing::info!(crd = name, "CRD applied");
    }
    for definition in crds {
        let name = definition.name_any();
        let served = env.timeout(within, served(env, client, definition)).await;
        let late =
            || failed(&name, format!("the server does not serve all of its versions after {within:?}"));
        served.map_err(|_| late())?.map_err(|reason| failed(&name, reason))?;
    }
    Ok(())
}

/// Waits until a CRD is established and discovery lists its kind in every served version.
async fn served(env: &Env, client: &Client, definition: &CustomResourceDefinition) -> Result<(), String> {
    established(env, &Api::all(client.clone()), &definition.name_any()).await?;
    let spec = &definition.spec;
    for version in spec.versions.iter().filter(|version| version.served) {
        let version = format!("{}/{}", spec.group, version.name);
        while !is_listed(client, &version, &spec.names.plural).await? {
            env.sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Returns whether discovery lists a resource. It needs no rule, because every cluster grants read access to discovery.
async fn is_listed(client: &Client, version: &str, plural: &str) -> Result<bool, String> {
    match client.list_api_group_resources(version).await {
        Ok(listed) => Ok(listed.resources.iter().any(|resource| resource.name == plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(described(&error)),
    }
}

/// Returns the text of an error. A denied request needs the whole rule of the installation, or an administrator.
fn described(error: &kube::Error) -> String {
    let Some(denial) = missing_permission(error) else { return one_line(error) };
    let denial = denial.with_verbs(INSTALL_VERBS);
    format!("{denial}; or apply the output of `manifests crd` as an administrator, and omit --install-crds")
}

async fn established(env: &Env, api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), String> {
    loop {
        let definition = api.get(name).await.map_err(|error| described(&error))?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        let find = |type_: &str| conditions.iter().find(|it| it.type_ == type_);
        if find("Established").is_some_and(|it| it.status == "True") {
            return Ok(());
        }
        if let Some(refused) = find("NamesAccepted").filter(|it| it.status == "False") {
            return Err(refused.message.clone().unwrap_or_else(|| "its names are in use".to_owned()));
        }
        env.sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Request;
    use kube::client::Body;
    use serde_json::json;
    use tower::{ServiceExt as _, service_fn};
    use windlass_api_server::{ApiServer, ApiServerOptions};

    use super::*;

    fn definition(versions: &[&str]) -> CustomResourceDefinition {
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        let version = |name: &&str| json!({ "name": name, "served": true, "storage": *name == versions[0], "schema": schema });
        let versions: Vec<_> = versions.iter().map(version).collect();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "sites.example.com" },
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": "sites", "singular": "site", "kind": "Site", "listKind": "SiteList" },
                "versions": versions,
            },
        });
        serde_json::from_value(definition).expect("a definition")
    }

    /// Returns a client whose server lists v2 in discovery from this request number on, and the count of requests.
    fn client(server: &ApiServer, from: u32) -> (Client, Arc<AtomicU32>) {
        let (server, asked) = (server.clone(), Arc::<AtomicU32>::default());
        let count = Arc::clone(&asked);
        let service = service_fn(move |mut request: Request<Body>| {
            let is_v2 = request.uri().path() == "/apis/example.com/v2";
            if is_v2 && count.fetch_add(1, Ordering::Relaxed) + 1 < from {
                *request.uri_mut() = http::Uri::from_static("/apis/example.com/none");
            }
            server.clone().oneshot(request)
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn install_waits_for_new_version_of_established_definition() {
        let env = Env::virtual_time(1);
        let server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let (client, asked) = client(&server, 3);
        install_crds(&env, &client, &[definition(&["v1"])], INSTALL_TIMEOUT).await.expect("v1 is served");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        install_crds(&env, &client, &[definition(&["v1", "v2"])], INSTALL_TIMEOUT)
            .await
            .expect("v2 is served");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn denied_install_names_the_rule_and_the_manual_way() {
        let env = Env::virtual_time(1);
        let message = r#"customresourcedefinitions.apiextensions.k8s.io "sites.example.com" is forbidden: User "me" cannot patch resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope"#;
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 403, "reason": "Forbidden", "message": message });
        let service = service_fn(move |_: Request<Body>| {
            let response = http::Response::builder().status(403);
            future::ready(response.body(Body::from(status.to_string().into_bytes())))
        });
        let client = Client::new(service, "default");
        let denied = install_crds(&env, &client, &[definition(&["v1"])], INSTALL_TIMEOUT).await;
        let expected = r#"cannot install CRD sites.example.com: me cannot patch customresourcedefinitions.apiextensions.k8s.io; add to a ClusterRole: - { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: [get, create, patch] }; or apply the output of `manifests crd` as an administrator, and omit --install-crds"#;
        assert_eq!(denied.expect_err("the server denies it").to_string(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn install_fails_when_a_version_is_not_served_in_time() {
        let env = Env::virtual_time(1);
        let server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let (client, _) = client(&server, u32::MAX);
        let installed =
            install_crds(&env, &client, &[definition(&["v1", "v2"])], Duration::from_secs(5)).await;
        let expected =
            "cannot install CRD sites.example.com: the server does not serve all of its versions after 5s";
        assert_eq!(installed.expect_err("v2 is never listed").to_string(), expected);
    }
}
