//! Definitions of a program's kinds, put into the cluster before it runs.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use windlass_client::one_line;
use windlass_controller::{BoxError, Runnable, RunnableContext, RunsOn, Setup, SetupError};
use windlass_env::Env;
use windlass_object::Verb;

use crate::error::Error;

/// How long a definition can take to be served.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the server is asked whether a definition is established.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Installs definitions before the caches of their kinds fill.
pub(crate) struct CrdInstaller(Vec<CustomResourceDefinition>);

impl Runnable for CrdInstaller {
    const NAME: &'static str = "install-crds";
    const RUNS: RunsOn = RunsOn::BeforeCaches;
    type Config = Vec<CustomResourceDefinition>;

    fn setup(setup: &mut Setup, crds: &Self::Config) -> Result<Self, SetupError> {
        // An apply that creates takes both verbs.
        setup.uses::<CustomResourceDefinition>([Verb::Get, Verb::Create, Verb::Patch]);
        Ok(Self(crds.clone()))
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        Ok(install_crds(cx.env(), cx.client(), &self.0, INSTALL_TIMEOUT).await?)
    }
}

/// Applies these definitions, and waits until the server serves their kinds.
///
/// # Errors
/// When the server refuses one, or does not serve it `within` this time: the error names the definition.
///
/// # Cancel safety
/// What was applied stays.
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
        applied.map_err(|error| failed(&name, one_line(&error)))?;
        tracing::info!(definition = name, "applied");
    }
    for name in crds.iter().map(ResourceExt::name_any) {
        let established = env.timeout(within, established(env, &api, &name)).await;
        let late = || failed(&name, format!("the server does not serve it after {within:?}"));
        established.map_err(|_| late())?.map_err(|reason| failed(&name, reason))?;
    }
    Ok(())
}

async fn established(env: &Env, api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), String> {
    loop {
        let definition = api.get(name).await.map_err(|error| one_line(&error))?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        let find = |type_: &str| conditions.iter().find(|it| it.type_ == type_);
        if find("Established").is_some_and(|it| it.status == "True") {
            return Ok(());
        }
        if let Some(refused) = find("NamesAccepted").filter(|it| it.status == "False") {
            return Err(refused.message.clone().unwrap_or_else(|| "its names are taken".to_owned()));
        }
        env.sleep(LOOK_INTERVAL).await;
    }
}
