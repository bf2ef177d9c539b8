//! The `caBundle` of webhook configurations and CRDs.
//!
//! A bundle is extended by server-side apply with the version that was read: a replica that was paused between reading
//! and writing gets a conflict. Unexpired certificates in a bundle stay, so that a deleted Secret does not make
//! replicas unreachable that still serve an older certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use windlass_serving::is_current;

/// The field manager. Other managers of these objects, such as an installer of CRDs, do not remove its fields.
const MANAGER: &str = "windlass-webhook-certificates";

/// An object with a `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A ValidatingWebhookConfiguration with these webhooks of this process.
    Validating { name: String, webhooks: Vec<String> },
    /// A MutatingWebhookConfiguration with these webhooks of this process.
    Mutating { name: String, webhooks: Vec<String> },
    /// A CRD with conversion.
    Definition { name: String },
}

/// The state of a target in the cluster.
#[derive(Debug)]
pub(crate) struct Found {
    object: DynamicObject,
    /// The bundles of its clients, in PEM: one per webhook of this process.
    bundles: Vec<(Option<String>, Vec<u8>)>,
}

impl Target {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Validating { name, .. } | Self::Mutating { name, .. } | Self::Definition { name } => name,
        }
    }

    fn api(&self, client: &kube::Client) -> Api<DynamicObject> {
        let resource = match self {
            Self::Validating { .. } => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Mutating { .. } => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Definition { .. } => ApiResource::erase::<CustomResourceDefinition>(&()),
        };
        Api::all_with(client.clone(), &resource)
    }

    /// Reads the object; `None` if it is not installed, or does not call webhooks of this process.
    pub(crate) async fn read(&self, client: &kube::Client) -> Result<Option<Found>, kube::Error> {
        let Some(object) = self.api(client).get_opt(self.name()).await? else { return Ok(None) };
        let bundles = self.bundles(&object.data);
        Ok((!bundles.is_empty()).then_some(Found { object, bundles }))
    }

    fn bundles(&self, data: &Value) -> Vec<(Option<String>, Vec<u8>)> {
        let bundle = |client: &Value| {
            let encoded = client.get("caBundle").and_then(Value::as_str).unwrap_or_default();
            STANDARD.decode(encoded).unwrap_or_default()
        };
        match self {
            Self::Validating { webhooks, .. } | Self::Mutating { webhooks, .. } => {
                let listed = data.get("webhooks").and_then(Value::as_array).map(Vec::as_slice);
                let own = listed.unwrap_or_default().iter().filter_map(|webhook| {
                    let name = webhook.get("name")?.as_str()?;
                    let is_own = webhooks.iter().any(|own| own == name);
                    is_own.then(|| (Some(name.to_owned()), bundle(&webhook["clientConfig"])))
                });
                own.collect()
            }
            Self::Definition { .. } => match data.pointer("/spec/conversion/webhook/clientConfig") {
                Some(client) => vec![(None, bundle(client))],
                None => Vec::new(),
            },
        }
    }

    /// Adds the certificates to the bundles of an object.
    pub(crate) async fn inject(
        &self,
        client: &kube::Client,
        found: &Found,
        authorities: &[&str],
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let encoded = |bundle: &[u8]| STANDARD.encode(extended(bundle, authorities, now));
        let mut change = match self {
            Self::Validating { .. } | Self::Mutating { .. } => {
                let webhook = |(name, bundle): &(Option<String>, Vec<u8>)| json!({ "name": name, "clientConfig": { "caBundle": encoded(bundle) } });
                json!({ "webhooks": found.bundles.iter().map(webhook).collect::<Vec<_>>() })
            }
            Self::Definition { .. } => {
                let bundle = found.bundles.first().map(|(_, bundle)| encoded(bundle));
                json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": bundle } } } } })
            }
        };
        let types = found.object.types.clone().unwrap_or_default();
        change["apiVersion"] = types.api_version.into();
        change["kind"] = types.kind.into();
        change["metadata"] =
            json!({ "name": self.name(), "resourceVersion": found.object.metadata.resource_version });
        let params = PatchParams::apply(MANAGER).force();
        self.api(client).patch(self.name(), &params, &Patch::Apply(&change)).await?;
        Ok(())
    }
}

impl Found {
    /// Returns whether every bundle contains these certificates.
    pub(crate) fn contains(&self, authorities: &[&str]) -> bool {
        self.bundles.iter().all(|(_, bundle)| {
            let present = certificates(bundle);
            authorities.iter().all(|it| certificates(it.as_bytes()).iter().all(|it| present.contains(it)))
        })
    }
}

/// Returns a bundle with its unexpired certificates and these authorities, in PEM.
fn extended(bundle: &[u8], authorities: &[&str], now: Timestamp) -> String {
    let wanted: Vec<_> = authorities.iter().flat_map(|it| certificates(it.as_bytes())).collect();
    let kept = certificates(bundle).into_iter().filter(|it| !wanted.contains(it) && is_current(it, now));
    let kept: Vec<_> = kept.collect();
    kept.iter().chain(&wanted).map(pem).collect()
}

/// Returns the certificates of a bundle. An unreadable part ends the bundle, as for an API server.
pub(crate) fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok).collect()
}

fn pem(certificate: &CertificateDer<'static>) -> String {
    let encoded = STANDARD.encode(certificate);
    let lines = encoded.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}
