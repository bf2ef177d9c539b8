//! Runs an operator with webhooks under exactly the roles that it prints. kubectl sees converted, defaulted and denied
//! objects. The rotation of certificates and the shutdown fail no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass_black_box::audit::{AUDITED, Audit};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::ready;
use windlass_black_box::wait::eventually;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess, Port};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The user of the ServiceAccount. Kubeconfigs of the harness have the namespace `default`.
const ACCOUNT: &str = "system:serviceaccount:default:lamps";

const SECRET: &str = "lamps-webhook-certificates";

/// An operator with webhooks on a control plane.
struct Lamps<'a> {
    plane: &'a ControlPlane,
    client: Client,
    operator: ManagerProcess,
    port: Port,
}

/// A file for kubectl.
fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> Result<String> {
    let path = folder.path().join(name);
    std::fs::write(&path, text)?;
    Ok(path.to_str().context("a path of text")?.to_owned())
}

impl<'a> Lamps<'a> {
    /// Applies the printed manifests, and starts the operator.
    async fn start(plane: &'a ControlPlane) -> Result<Self> {
        let port = Port::reserve()?;
        let address = format!("--webhook-address=127.0.0.1:{}", port.number());
        let url = format!("--webhook-url=https://127.0.0.1:{}", port.number());
        let printed = ManagerProcess::example_prints("lamps", &["manifests", &address, &url]).await?;
        let folder = tempfile::tempdir()?;
        let manifests = file(&folder, "manifests.yaml", &printed)?;
        plane.kubectl(&["apply", "--server-side", "-f", &manifests]).await?;
        let kubeconfig = plane.kubeconfig_for("lamps", ACCOUNT, Some(AUDITED))?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let operator = ManagerProcess::start_example(plane, "lamps", &[&kubeconfig, &address, &url])?;
        ready(&operator, TIMEOUT).await?;
        Ok(Self { plane, client: plane.client().await, operator, port })
    }

    /// Creates a lamp with kubectl.
    async fn create(&self, lamp: &Value) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let path = file(&folder, "lamp.json", &lamp.to_string())?;
        self.plane.kubectl(&["create", "-f", &path]).await
    }

    /// Returns the lamp `hall` in one version.
    async fn hall(&self, version: &str) -> Result<Value> {
        let kind = format!("lamps.{version}.example.com");
        let printed = self.plane.kubectl(&["get", &kind, "hall", "-o", "json"]).await?;
        Ok(serde_json::from_str(&printed)?)
    }

    fn api(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("example.com", version, "Lamp");
        Api::namespaced_with(
            self.client.clone(),
            "default",
            &ApiResource::from_gvk_with_plural(&kind, "lamps"),
        )
    }

    /// Reads and changes the state in the Secret of certificates.
    async fn edit_state(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        let mut secret = secrets.get(SECRET).await?;
        let data = secret.data.get_or_insert_default();
        let mut state: Value = serde_json::from_slice(&data.get("state.json").context("a state")?.0)?;
        change(&mut state);
        data.insert("state.json".to_owned(), ByteString(serde_json::to_vec(&state)?));
        secrets.replace(SECRET, &PostParams::default(), &secret).await?;
        Ok(())
    }

    async fn state(&self) -> Result<Value> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        Ok(serde_json::from_slice(&data.get("state.json").context("a state")?.0)?)
    }

    /// Returns the certificate that the webhook server presents, verified with the `caBundle`.
    async fn presented(&self) -> Result<CertificateDer<'static>> {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let webhooks = configurations.get("lamps").await?.webhooks.context("webhooks")?;
        let bundle = webhooks[0].client_config.ca_bundle.clone().context("a bundle")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&bundle.0) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let socket = TcpStream::connect(("127.0.0.1", self.port.number())).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let presented = stream.get_ref().1.peer_certificates().context("certificates")?;
        Ok(presented[0].clone().into_owned())
    }
}

fn lamp(version: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Lamp",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

/// Returns whether clients repeat the request. An API server that is notified of a changed CRD opens its storage again,
/// and answers requests for that kind with 429 until then.
fn is_repeated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 && status.message.contains("initializing"))
}

/// Users who send requests that need all webhooks, one after the other.
struct Users {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Users {
    /// Starts users who create lamps in a dry run, and list them in the version that is not stored.
    fn start(lamps: &Lamps<'_>) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let user = |number: usize| {
            let (api, stop, sent) = (lamps.api("v1"), Arc::clone(&stop), Arc::clone(&sent));
            tokio::spawn(async move {
                let mut failures = Vec::new();
                let object = lamp("v1", &format!("user-{number}"), &json!({ "color": "red" }));
                let object: DynamicObject = serde_json::from_value(object).expect("an object");
                while !stop.load(Ordering::Relaxed) {
                    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
                    let created = api.create(&dry_run, &object).await.map(drop);
                    let listed = api.list(&ListParams::default()).await.map(drop);
                    let failed = [created, listed].into_iter().filter_map(Result::err);
                    failures
                        .extend(failed.filter(|error| !is_repeated(error)).map(|error| error.to_string()));
                    sent.fetch_add(2, Ordering::Relaxed);
                }
                failures
            })
        };
        let tasks = (0..4).map(user).collect();
        Self { stop, sent, tasks }
    }

    /// Stops the users. No request has failed, and some were sent.
    async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            let failures = task.await?;
            ensure!(failures.is_empty(), "{} requests failed, first: {}", failures.len(), failures[0]);
        }
        ensure!(self.sent.load(Ordering::Relaxed) > 100, "too few requests were sent");
        Ok(())
    }
}

/// In a cluster the API server reaches the webhooks through a Service.
async fn manifests_with_service_are_accepted(plane: &ControlPlane) -> Result<()> {
    let printed = ManagerProcess::example_prints("lamps", &["manifests"]).await?;
    let folder = tempfile::tempdir()?;
    let manifests = file(&folder, "manifests.yaml", &printed)?;
    let applied = plane.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", &manifests]).await?;
    for applied_kind in
        ["service/lamps-webhook", "validatingwebhookconfiguration", "mutatingwebhookconfiguration"]
    {
        ensure!(applied.contains(applied_kind), "{applied_kind} is missing: {applied}");
    }
    Ok(())
}

async fn objects_are_converted_defaulted_and_denied(lamps: &Lamps<'_>) -> Result<()> {
    lamps.create(&lamp("v1", "hall", &json!({ "color": "red+blue" }))).await?;
    let first = lamps.hall("v1").await?;
    assert_eq!(first["spec"], json!({ "color": "red+blue", "brightness": 50 }), "the default was set");
    let second = lamps.hall("v2").await?;
    assert_eq!(second["spec"], json!({ "colors": ["red", "blue"], "brightness": 50 }));
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);

    let denied = lamps.create(&lamp("v1", "sun", &json!({ "brightness": 500 }))).await;
    let message = denied.expect_err("too bright").to_string();
    ensure!(message.contains("spec.brightness: must be between 1 and 100"), "{message}");
    let dark = serde_json::from_value(lamp("v2", "sun", &json!({ "brightness": 0 })))?;
    let status = match lamps.api("v2").create(&PostParams::default(), &dark).await {
        Err(kube::Error::Api(status)) => status,
        other => anyhow::bail!("too dark: {other:?}"),
    };
    assert_eq!(status.code, 422);
    let message = "admission webhook \"limits.lamps.example.com\" denied the request: the lamp cannot be lit: \
                   spec.brightness: must be between 1 and 100";
    assert_eq!(status.message, message);

    // The quota of three lamps, which a webhook counts in its cache.
    for name in ["kitchen", "bath"] {
        lamps.create(&lamp("v2", name, &json!({ "colors": ["red"] }))).await?;
    }
    let folder = tempfile::tempdir()?;
    let attic = file(&folder, "lamp.json", &lamp("v2", "attic", &json!({})).to_string())?;
    let denied = async || {
        let created = lamps.plane.kubectl(&["create", "--dry-run=server", "-f", &attic]).await;
        anyhow::Ok(created.err().map(|error| error.to_string()).unwrap_or_default())
    };
    let is_denied = |message: &String| message.contains("the namespace default has 3 lamps already");
    eventually("the quota is exceeded", denied, is_denied).await?;
    lamps.plane.kubectl(&["delete", "lamps", "kitchen", "bath"]).await?;

    // The controller's cache was listed in the stored version.
    let status = async || Ok(lamps.hall("v1").await?["status"].clone());
    eventually("the controller reports the colors", status, |status| status["lit"] == 2).await?;
    Ok(())
}

async fn rotation_fails_no_request(lamps: &Lamps<'_>) -> Result<()> {
    let before = lamps.presented().await?;
    let users = Users::start(lamps);
    // Two thirds of the life of the authority have passed.
    lamps.edit_state(|state| state["authorities"][0]["renewAt"] = "2020-01-01T00:00:00Z".into()).await?;
    let announced = |state: &Value| state["authorities"][1]["announced"].is_string();
    let state = async || lamps.state().await;
    let state = eventually("the next authority is announced", state, announced).await?;
    assert_eq!(lamps.presented().await?, before, "the announcement takes five minutes");
    assert_eq!(state["leaf"]["issuer"], state["authorities"][0]["name"]);
    // The five minutes have passed.
    let past = Timestamp::now() - SignedDuration::from_mins(6);
    lamps.edit_state(|state| state["authorities"][1]["announced"] = past.to_string().into()).await?;
    let changed = async || lamps.presented().await;
    eventually("the next authority issues the certificate", changed, |presented| *presented != before)
        .await?;
    let state = lamps.state().await?;
    assert_eq!(state["leaf"]["issuer"], state["authorities"][1]["name"]);
    let replaced =
        lamps.operator.metric("windlass_webhook_certificate_changes_total", &[r#"result="replaced""#]);
    assert_eq!(replaced.await?, Some(1.0));
    users.stop().await
}

fn nothing_was_forbidden(audit: &Audit, lamps: &Lamps<'_>) -> Result<()> {
    let mut forbidden = audit.all_writes("")?;
    forbidden.retain(|request| {
        request.user.username == ACCOUNT && request.response_status.is_some_and(|answer| answer.code == 403)
    });
    ensure!(forbidden.is_empty(), "forbidden: {forbidden:#?}");
    let log = std::fs::read_to_string(lamps.operator.log())?;
    ensure!(!log.contains("forbidden"), "forbidden: {log}");
    Ok(())
}

/// The operator serves webhooks after the signal, while its readiness already fails.
async fn shutdown_fails_no_request(lamps: Lamps<'_>) -> Result<()> {
    let users = Users::start(&lamps);
    lamps.operator.terminate();
    let readiness = async || Ok(lamps.operator.get("/readyz").await.map_or(0, |(code, _)| code));
    eventually("the operator is not ready", readiness, |code| *code == 500).await?;
    // Less than the ten seconds for which the operator lingers.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(lamps.operator.exited().is_none(), "the operator exited early");
    users.stop().await?;
    let status = lamps.operator.wait_exit(TIMEOUT).await?;
    ensure!(status.success(), "the operator exited with {status}");
    Ok(())
}

/// `docs/webhooks.md` describes this command for objects that remain after an uninstallation.
async fn kept_objects_are_readable_without_conversion(plane: &ControlPlane) -> Result<()> {
    let get = async || plane.kubectl(&["get", "lamps.v1.example.com", "hall", "-o", "json"]).await;
    let error = get().await.expect_err("no process converts").to_string();
    ensure!(error.contains("conversion webhook for example.com/v2, Kind=Lamp failed"), "{error}");
    let patch = r#"{"spec": {"conversion": {"strategy": "None", "webhook": null}}}"#;
    plane.kubectl(&["patch", "crd", "lamps.example.com", "--type=merge", "--patch", patch]).await?;
    let spec = async || {
        let printed = get().await.unwrap_or_default();
        Ok(serde_json::from_str::<Value>(&printed).unwrap_or_default()["spec"].clone())
    };
    eventually("the object is readable", spec, |spec| *spec == json!({ "brightness": 50 })).await?;
    plane.kubectl(&["delete", "lamp", "hall", "--timeout=60s"]).await.map(drop)
}

// parity: webhook-server-conversion-certificates
#[tokio::test]
async fn webhooks_serve_kubectl_through_rotation_and_shutdown() -> Result<()> {
    let options = ControlPlaneOptions::default().authorization_rbac(true);
    with_control_plane(options, async |plane, audit| {
        manifests_with_service_are_accepted(plane).await?;
        let lamps = Lamps::start(plane).await?;
        objects_are_converted_defaulted_and_denied(&lamps).await?;
        rotation_fails_no_request(&lamps).await?;
        nothing_was_forbidden(audit, &lamps)?;
        shutdown_fails_no_request(lamps).await?;
        kept_objects_are_readable_without_conversion(plane).await
    })
    .await
}
