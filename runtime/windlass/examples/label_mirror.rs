//! Mirrors the labels of every Service onto a ConfigMap of the same name, which it creates and owns.
//!
//! ```sh
//! cargo run -p windlass --example label_mirror -- ~/.kube/config
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use windlass::prelude::*;

struct LabelMirror {
    services: TypedLister<Service>,
    config_maps: TypedLister<ConfigMap>,
}

#[async_trait]
impl Controller for LabelMirror {
    const NAME: &'static str = "label-mirror-controller";

    fn setup(setup: &mut Setup) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Create, Verb::Patch]);
        Ok(Self {
            services: setup.watch::<Service>().enqueue(by_self).lister(),
            config_maps: setup.watch::<ConfigMap>().enqueue(by_owner::<Service>).lister(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        // A Service that is gone takes its ConfigMap with it, by the owner reference.
        let Some(service) = self.services.get(key) else { return Ok(Outcome::Done) };
        let wanted = mirror_of(&service);
        if self.config_maps.get(key).is_none_or(|mirror| mirror.labels() != wanted.labels()) {
            let mirrors =
                Api::<ConfigMap>::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
            mirrors.patch(key.name(), &PatchParams::apply(Self::NAME), &Patch::Apply(&wanted)).await?;
        }
        Ok(Outcome::Done)
    }
}

fn mirror_of(service: &Service) -> ConfigMap {
    let metadata = ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        labels: service.metadata.labels.clone(),
        owner_references: Some(vec![controller_reference(service)]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider().install_default().expect("nobody installed one before");
    tracing_subscriber::fmt().init();
    let env = Env::system("label-mirror");
    // Without an argument: the service account of the Pod this runs in.
    let kubeconfig = std::env::args_os().nth(1).map(PathBuf::from);
    let cluster = windlass::client::load_config(kubeconfig.as_deref(), None).await?;
    let identity = env.rng("identity").identifier();
    let config = ManagerConfig {
        admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))),
        ..ManagerConfig::new(identity)
    };
    let signals = ShutdownSignals::from_process(&env)?;
    let manager = Manager::new(env, config, cluster)?.register(Registration::of::<LabelMirror>());
    Ok(manager.run(signals).await?)
}
