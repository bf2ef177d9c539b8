//! Installation, work, upgrade, rollback and uninstallation on a real control plane.
//!
//! kwok simulates the kubelets, so Pods become ready without a container. The programs run as processes of the test,
//! with arguments, configuration, token and permissions of the installed objects.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_deploy::{Chart, Helm};
use windlass_harness::{Assets, Binary, ControlPlane, ManagerProcess, Port};

use crate::cases::{NAMESPACE, RELEASE, name_of, objects};
use crate::cluster::{apply, plane};
use crate::monitoring::panels_and_alerts_have_data;

const TIMEOUT: Duration = Duration::from_secs(90);
const WAIT: [&str; 3] = ["--wait", "--timeout", "90s"];

/// The release of the operator.
pub(crate) const OPERATOR: (&str, Chart, &str) = ("sites", Chart::Project, NAMESPACE);

/// The Secret with the certificate of each operator.
const CERTIFICATE: &str = "serving";

/// The values of an operator with this certificate.
pub(crate) const SERVING: &str = "tls: {secretName: serving}";

/// The ServiceAccount of Prometheus, which can read metrics.
const READER: &str = "metrics: {reader: {serviceAccounts: [{name: default, namespace: monitoring}]}}";

/// Polls until `check` returns a value.
pub(crate) async fn eventually<T>(what: &str, check: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        let outcome = check().await;
        match outcome {
            Ok(Some(value)) => return Ok(value),
            outcome if started.elapsed() > TIMEOUT => {
                bail!("{what}: not within {TIMEOUT:?}: {:?}", outcome.err());
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn get(plane: &ControlPlane, arguments: &[&str]) -> Result<Value> {
    let text = plane.kubectl(&[&["get", "-o", "json"], arguments].concat()).await?;
    serde_json::from_str(&text).context("kubectl prints no JSON")
}

/// Returns the token of a ServiceAccount.
async fn token(plane: &ControlPlane, namespace: &str, name: &str, seconds: Option<i64>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await, namespace);
    let spec = TokenRequestSpec { expiration_seconds: seconds, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let issued = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    issued.status.and_then(|status| status.token).context("no token")
}

/// Creates the Secret of a serving certificate with a new authority, as cert-manager does.
async fn issue_certificate(plane: &ControlPlane, namespace: &str, service: &str) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = CertificateParams::new([format!("{service}.{namespace}.svc")])?;
    let certificate = names.signed_by(&key, &authority)?;
    let files =
        json!({ "tls.crt": certificate.pem(), "tls.key": key.serialize_pem(), "ca.crt": authority.pem() });
    let metadata = json!({ "name": CERTIFICATE, "namespace": namespace });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "stringData": files });
    apply(plane, &[secret], &[]).await.map(drop)
}

/// A Pod of a workload, as a process needs it: its configuration and the token of its ServiceAccount as files.
struct Pod {
    folder: TempDir,
    arguments: Vec<String>,
}

impl Pod {
    /// Reads the workload and creates the files that the kubelet would mount.
    async fn mount(plane: &ControlPlane, workload: &str, namespace: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let workload = get(plane, &[workload, "--namespace", namespace]).await?;
        let spec = &workload["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        ensure!(container["env"].is_null(), "a process of the test would need the environment");
        let text = |value: &Value| value.as_str().map(str::to_owned).context("not a text");
        let mut arguments = Vec::new();
        for argument in container["args"].as_array().context("no arguments")? {
            arguments.push(text(argument)?);
        }
        for volume in spec["volumes"].as_array().context("no volumes")? {
            let name = text(&volume["name"])?;
            let mounts = container["volumeMounts"].as_array().context("no mounts")?;
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).context("not mounted")?;
            let (from, to) = (text(&mount["mountPath"])?, folder.path().join(&name));
            std::fs::create_dir(&to)?;
            if let Some(map) = volume["configMap"]["name"].as_str() {
                let map = get(plane, &["configmap", map, "--namespace", namespace]).await?;
                for (file, content) in map["data"].as_object().context("no data")? {
                    std::fs::write(to.join(file), text(content)?)?;
                }
            } else if let Some(secret) = volume["secret"]["secretName"].as_str() {
                let secrets: Api<Secret> = Api::namespaced(plane.client().await, namespace);
                for (file, content) in secrets.get(secret).await?.data.context("no data")? {
                    std::fs::write(to.join(file), content.0)?;
                }
            } else {
                let projected = &volume["projected"]["sources"][0]["serviceAccountToken"];
                let seconds = projected["expirationSeconds"].as_i64();
                let account = text(&spec["serviceAccountName"])?;
                std::fs::write(to.join("token"), token(plane, namespace, &account, seconds).await?)?;
            }
            let to = to.to_str().context("the temporary folder is not UTF-8")?;
            for argument in &mut arguments {
                *argument = argument.replace(&from, to);
            }
        }
        let pod = Self { folder, arguments };
        pod.write_kubeconfig(plane, namespace)?;
        Ok(pod)
    }

    /// Writes a kubeconfig with the address of the cluster, the projected token and the namespace, in place of the
    /// variables and the fixed folder that a container has.
    fn write_kubeconfig(&self, plane: &ControlPlane, namespace: &str) -> Result<()> {
        let mut config = Kubeconfig::read_from(plane.kubeconfig_path())?;
        let file = self.folder.path().join("token/token");
        let file = file.to_str().context("the temporary folder is not UTF-8")?;
        for user in &mut config.auth_infos {
            user.auth_info = Some(AuthInfo { token_file: Some(file.to_owned()), ..AuthInfo::default() });
        }
        for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.namespace = Some(namespace.to_owned());
        }
        Ok(std::fs::write(self.kubeconfig(), serde_json::to_vec(&config)?)?)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Returns the arguments of the container, with the kubeconfig and these in addition.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        let more = more.iter().map(ToString::to_string);
        self.arguments.iter().cloned().chain([kubeconfig]).chain(more).collect()
    }
}

/// Sends a GET request to the admin server of a process, and accepts any certificate. Returns the body, or the status
/// code of the error.
async fn https(process: &ManagerProcess, path: &str, token: Option<&str>) -> Result<Result<String, u16>> {
    let mut config = kube::Config::new(format!("https://{}", process.admin_address()).parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let request = kube::client::Body::empty();
    let request = http::Request::get(path).body(request)?;
    let response = Client::try_from(config)?.send(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await?;
    Ok(if status == 200 { Ok(String::from_utf8(body.to_vec())?) } else { Err(status) })
}

/// Starts `windlass` as the installed DaemonSet would, and returns it when it is ready.
async fn start_windlass(plane: &ControlPlane, pod: &Pod) -> Result<ManagerProcess> {
    let arguments = pod.arguments(&["--bind-address=127.0.0.1"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let process = ManagerProcess::start(plane, &arguments).await?;
    let is_ready = async || match https(&process, "/readyz", None).await {
        Ok(Ok(_)) => Ok(Some(())),
        _ if process.exited().is_some() => bail!("it exited"),
        Ok(Err(code)) => bail!("it responds {code}"),
        Err(error) => Err(error),
    };
    eventually("windlass is ready", is_ready).await.with_context(|| log_of(&process))?;
    Ok(process)
}

fn log_of(process: &ManagerProcess) -> String {
    std::fs::read_to_string(process.log()).unwrap_or_else(|error| error.to_string())
}

/// Creates a ReplicaSet and a Service, and waits for Pods and Endpoints. Returns the namespace.
async fn reconciles(plane: &ControlPlane) -> Result<String> {
    let namespace = plane.namespace("shop").await?;
    let labels = json!({ "app": "web" });
    let container = json!({ "name": "web", "image": "web" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let spec = json!({ "replicas": 3, "selector": { "matchLabels": labels }, "template": template });
    let metadata = json!({ "name": "web", "namespace": namespace });
    let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec });
    let spec = json!({ "selector": labels, "ports": [{ "port": 80 }] });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
    apply(plane, &[set, service], &[]).await?;
    eventually("the ReplicaSet has ready Pods", async || {
        let set = get(plane, &["replicaset", "web", "--namespace", &namespace]).await?;
        Ok((set["status"]["readyReplicas"] == 3).then_some(()))
    })
    .await?;
    eventually("the Service has Endpoints", async || {
        let endpoints = get(plane, &["endpoints", "web", "--namespace", &namespace]).await?;
        let addresses = endpoints["subsets"][0]["addresses"].as_array().map_or(0, Vec::len);
        Ok((addresses == 3).then_some(()))
    })
    .await?;
    Ok(namespace)
}

/// Checks who can read metrics, and that the API server denied no request of the process.
async fn denies_and_is_denied_nothing(plane: &ControlPlane, process: &ManagerProcess) -> Result<()> {
    let reader = token(plane, "monitoring", "default", None).await?;
    let other = token(plane, "blue", "default", None).await?;
    ensure!(https(process, "/metrics", None).await? == Err(401), "an anonymous client reads metrics");
    ensure!(https(process, "/metrics", Some(&other)).await? == Err(403), "any token reads metrics");
    let metrics = https(process, "/metrics", Some(&reader)).await?;
    let metrics = metrics.map_err(|code| anyhow::anyhow!("the reader receives {code}"))?;
    ensure!(metrics.contains("\nwindlass_client_requests_total{"), "{metrics}");
    let requests = metrics.lines().filter(|line| line.starts_with("windlass_client_requests_total{"));
    let denied: Vec<_> = requests.filter(|line| line.contains("code=\"403\"")).collect();
    ensure!(denied.is_empty(), "the API server denied {denied:?}");
    Ok(())
}

/// An installed operator of the template, as a process of the test.
struct Operator<'a> {
    plane: &'a ControlPlane,
    process: ManagerProcess,
    /// The namespace of its Sites.
    namespace: String,
    /// The call of the webhook as the chart configures it.
    installed: Value,
    pod: Pod,
    _port: Port,
}

/// Returns the name of the objects of a release of the operator, such as the configuration of its webhook.
fn name_in(release: &str) -> String {
    format!("{release}-{}", Chart::Project.program())
}

async fn client_config(plane: &ControlPlane, release: &str) -> Result<Value> {
    let configuration = get(plane, &["validatingwebhookconfiguration", &name_in(release)]).await?;
    Ok(configuration["webhooks"][0]["clientConfig"].clone())
}

async fn set_client_config(plane: &ControlPlane, release: &str, value: &Value) -> Result<()> {
    let patch = json!([{ "op": "replace", "path": "/webhooks/0/clientConfig", "value": value }]).to_string();
    let name = name_in(release);
    let words = ["patch", "validatingwebhookconfiguration", &name, "--type=json", "--patch", &patch];
    plane.kubectl(&words).await.map(drop)
}

impl<'a> Operator<'a> {
    /// Installs the chart and starts its process. The API server cannot reach the Service, because no kube-proxy runs:
    /// it calls the process at a URL.
    async fn install(
        plane: &'a ControlPlane,
        helm: &Helm,
        release: (&str, Chart, &str),
        values: &str,
        sites: String,
    ) -> Result<Self> {
        let (name, _, namespace) = release;
        issue_certificate(plane, namespace, &name_in(name)).await?;
        helm.release("install", release, &format!("{SERVING}\n{values}"), &WAIT).await?;
        let pod = Pod::mount(plane, &format!("deployment/{}", name_in(name)), namespace).await?;
        let port = Port::reserve()?;
        let url = format!("https://127.0.0.1:{}", port.number());
        let installed = client_config(plane, name).await?;
        let called = json!({ "url": format!("{url}/admission/limits.sites.example.com") });
        set_client_config(plane, name, &called).await?;
        let webhook = format!("--webhook-address=127.0.0.1:{}", port.number());
        let arguments = pod.arguments(&[&webhook, &format!("--webhook-url={url}")]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = ManagerProcess::start_example(plane, &Chart::Project.program(), &arguments)?;
        Ok(Self { plane, process, namespace: sites, installed, pod, _port: port })
    }

    /// Applies a Site with kubectl.
    async fn apply(&self, replicas: i32) -> Result<()> {
        apply_site(self.plane, &self.namespace, replicas).await
    }

    /// Deletes the Site, whose finalizer the process removes.
    async fn delete(&self) -> Result<()> {
        let words = ["delete", "site", "home", "--namespace", &self.namespace, "--timeout=60s"];
        self.plane.kubectl(&words).await.map(drop)
    }

    async fn site(&self, columns: &str) -> Result<String> {
        let output = format!("custom-columns={columns}");
        self.plane
            .kubectl(&["get", "site", "home", "-n", &self.namespace, "--no-headers", "-o", &output])
            .await
    }

    /// Applies a Site, and waits until its status reports that all replicas are ready.
    async fn runs(&self, replicas: i32) -> Result<()> {
        self.apply(replicas).await?;
        let ready = replicas.to_string();
        eventually("the Site has ready Pods", async || {
            let row = self.site("READY:.status.readyReplicas,CONDITION:.status.conditions[0].status").await?;
            Ok((row.split_whitespace().collect::<Vec<_>>() == [&*ready, "True"]).then_some(()))
        })
        .await
    }

    /// A user applies Sites: the webhook denies the bad one, the status of the good one is reported.
    async fn works(&self) -> Result<()> {
        // The process writes its certificate authority into the configuration first. Until then all Sites are denied.
        let denial = eventually("the webhook denies a bad Site", async || {
            let error = self.apply(1000).await.err().context("the Site is accepted")?.to_string();
            Ok(error.contains("The Site \"home\" is invalid").then_some(error))
        });
        let denial = denial.await?;
        ensure!(denial.contains("spec.replicas: must be between 0 and 100"), "{denial}");
        self.runs(2).await?;
        denies_and_is_denied_nothing(self.plane, &self.process).await
    }
}

async fn apply_site(plane: &ControlPlane, namespace: &str, replicas: i32) -> Result<()> {
    let metadata = json!({ "name": "home", "namespace": namespace });
    let spec = json!({ "domain": "home.example.com", "image": "web", "replicas": replicas });
    let site = json!({ "apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata, "spec": spec });
    apply(plane, std::slice::from_ref(&site), &[]).await.map(drop)
}

/// Runs the test that a new project contains, with the kubectl and the kubeconfig of an administrator.
async fn end_to_end_test_passes(plane: &ControlPlane) -> Result<()> {
    let script = Chart::Project.folder().join("tests/e2e.sh");
    let kubectl = Assets::ensure()?.path(Binary::Kubectl);
    let folder = kubectl.parent().context("kubectl has no folder")?;
    let path = std::env::var_os("PATH").context("PATH is unset")?;
    let path = std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&path)))?;
    let mut command = tokio::process::Command::new(script);
    command.env("PATH", path).env("KUBECONFIG", plane.kubeconfig_path()).kill_on_drop(true);
    let output =
        tokio::time::timeout(4 * TIMEOUT, command.output()).await.context("e2e.sh does not exit")??;
    let lines = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(output.status.success(), "e2e.sh: {lines:?}");
    Ok(())
}

/// Changes a ReplicaSet of `windlass` and a Site of the operator while Prometheus scrapes both.
async fn is_monitored(
    (plane, helm): (&ControlPlane, &Helm),
    (windlass, namespace): (&ManagerProcess, &str),
    operator: &Operator<'_>,
) -> Result<()> {
    let token = token(plane, "monitoring", "default", None).await?;
    let secret = operator.pod.folder.path().join("tls");
    let load = async |round: usize| {
        let replicas = format!("--replicas={}", 3 + round % 3);
        plane.kubectl(&["scale", "replicaset", "web", "--namespace", namespace, &replicas]).await?;
        operator.apply(if round.is_multiple_of(2) { 2 } else { 3 }).await
    };
    panels_and_alerts_have_data((plane, helm), windlass, (&operator.process, &secret), &token, load).await
}

/// Installs the operator's chart, uses it, and upgrades it. Its ReplicaSet is reconciled by Windlass, whose objects in
/// `namespace` are changed too.
async fn operator_works(
    plane: &ControlPlane,
    helm: &Helm,
    (windlass, namespace): (&ManagerProcess, &str),
) -> Result<()> {
    let sites = plane.namespace("sites").await?;
    let operator = Operator::install(plane, helm, OPERATOR, "", sites).await?;
    operator.works().await.with_context(|| log_of(&operator.process))?;
    end_to_end_test_passes(plane).await.with_context(|| log_of(&operator.process))?;
    is_monitored((plane, helm), (windlass, namespace), &operator).await?;
    operator.delete().await?;
    let (release, ..) = OPERATOR;
    let mut before = operator.installed.clone();
    before["caBundle"] = client_config(plane, release).await?["caBundle"].take();
    ensure!(before["caBundle"].is_string(), "no authority is published: {before}");
    drop(operator);
    set_client_config(plane, release, &before).await?;
    helm.release("upgrade", OPERATOR, "podAnnotations: {a: b}", &WAIT).await?;
    let after = client_config(plane, release).await?;
    ensure!(after == before, "the upgrade changes {before} to {after}");
    uninstall_leaves(plane, helm, OPERATOR, &[CRD]).await
}

/// The object that each uninstallation of the operator keeps.
const CRD: &str = "CustomResourceDefinition /sites.example.com";

/// Installs two releases of the operator's chart for different namespaces. Each serves its own Sites, and the second
/// continues to do so when the first, which contains the CRD, is uninstalled.
async fn two_releases_are_independent(plane: &ControlPlane, helm: &Helm) -> Result<()> {
    let releases = [("east", Chart::Project, "blue"), ("west", Chart::Project, "green")];
    let [east, west] = [plane.namespace("east").await?, plane.namespace("west").await?];
    let values =
        |sites: &str, has_crds: bool| format!("watchNamespaces: [{sites}]\ncrds: {{enabled: {has_crds}}}");
    // The release `sites` owns the CRD that its uninstallation kept.
    plane.kubectl(&["delete", "crd", "sites.example.com", "--timeout=60s"]).await?;
    let first = Operator::install(plane, helm, releases[0], &values(&east, true), east.clone()).await?;
    first.works().await.with_context(|| log_of(&first.process))?;
    let second = Operator::install(plane, helm, releases[1], &values(&west, false), west.clone()).await?;
    second.works().await.with_context(|| log_of(&second.process))?;
    // The first still works, and its webhook has its own authority.
    first.runs(3).await.with_context(|| log_of(&first.process))?;
    let authorities = [client_config(plane, "east").await?, client_config(plane, "west").await?];
    let [one, other] = authorities.map(|mut config| config["caBundle"].take());
    ensure!(one.is_string() && other.is_string() && one != other, "{one} {other}");

    first.delete().await?;
    drop(first);
    let before = installed(plane, helm, releases[1]).await?;
    uninstall_leaves(plane, helm, releases[0], &[CRD]).await?;
    let after = installed(plane, helm, releases[1]).await?;
    ensure!(after == before && !after.is_empty(), "the second release changes: {before:?} {after:?}");
    second.works().await.with_context(|| log_of(&second.process))?;
    second.runs(1).await.with_context(|| log_of(&second.process))?;
    // No webhook reviews Sites in the namespace of the first release any more.
    apply_site(plane, &east, 1000).await?;
    plane.kubectl(&["delete", "site", "home", "--namespace", &east, "--timeout=60s"]).await?;
    second.delete().await?;
    drop(second);
    uninstall_leaves(plane, helm, releases[1], &[]).await
}

/// Returns the installed objects of a release with their UIDs.
async fn installed(
    plane: &ControlPlane,
    helm: &Helm,
    (release, _, namespace): (&str, Chart, &str),
) -> Result<Vec<(String, String)>> {
    let manifest = helm.run(&["get", "manifest", release, "--namespace", namespace]).await?;
    let mut installed = Vec::new();
    for object in objects(&manifest)? {
        installed.push((name_of(&object), uid(plane, &object).await?));
    }
    Ok(installed)
}

/// Returns the UID of an object, or an empty text if it does not exist.
async fn uid(plane: &ControlPlane, object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().context("no kind")?;
    let name = object["metadata"]["name"].as_str().context("no name")?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let output = ["--ignore-not-found", "-o", "jsonpath={.metadata.uid}"];
    plane.kubectl(&[&["get", kind, name, "--namespace", namespace][..], &output].concat()).await
}

/// Uninstalls a release and compares its remaining objects with `kept`.
async fn uninstall_leaves(
    plane: &ControlPlane,
    helm: &Helm,
    release: (&str, Chart, &str),
    kept: &[&str],
) -> Result<()> {
    let (name, _, namespace) = release;
    let manifest = helm.run(&["get", "manifest", name, "--namespace", namespace]).await?;
    helm.run(&[&["uninstall", name, "--namespace", namespace][..], &WAIT].concat()).await?;
    let mut left = Vec::new();
    for object in objects(&manifest)? {
        if !uid(plane, &object).await?.is_empty() {
            left.push(name_of(&object));
        }
    }
    ensure!(left == kept, "{name} leaves {left:?}");
    Ok(())
}

/// Returns the UIDs of the Pods of the release, and the configuration that they mount.
async fn state(plane: &ControlPlane) -> Result<(Vec<Value>, String)> {
    let pods = get(plane, &["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=windlass"]).await?;
    let pods = pods["items"].as_array().context("no list")?;
    let mut running: Vec<_> =
        pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
    running.sort_by_key(|pod| pod["metadata"]["name"].to_string());
    ensure!(running.iter().all(|pod| pod["status"]["phase"] == "Running"), "Pods do not run: {pods:?}");
    let config = get(plane, &["configmap", RELEASE, "-n", NAMESPACE]).await?;
    let config = config["data"]["config.yaml"].as_str().context("no configuration")?.to_owned();
    Ok((running.iter().map(|pod| pod["metadata"]["uid"].clone()).collect(), config))
}

/// CRDs of the Prometheus operator, without their schemas.
fn prometheus_crds() -> Vec<Value> {
    let crd = |kind: &str, plural: &str| {
        let group = "monitoring.coreos.com";
        let schema =
            json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": schema });
        let names = json!({ "kind": kind, "plural": plural, "singular": kind.to_lowercase() });
        let spec = json!({ "group": group, "scope": "Namespaced", "names": names, "versions": [version] });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": spec,
        })
    };
    vec![crd("ServiceMonitor", "servicemonitors"), crd("PrometheusRule", "prometheusrules")]
}

/// Flags of a kube-controller-manager, and those of the installed controllers that the chart finds in it.
const UPSTREAM: &[(&str, &[&str])] = &[
    (
        "--controllers=*,bootstrapsigner",
        &[
            "deployment-controller",
            "endpoints-controller",
            "pod-garbage-collector-controller",
            "replicaset-controller",
            "replicationcontroller-controller",
            "serviceaccount-controller",
            "statefulset-controller",
            "ttl-controller",
        ],
    ),
    ("--controllers=ttl,-endpoint,podgc,-podgc", &["pod-garbage-collector-controller", "ttl-controller"]),
    (
        "--controllers=$(LIST),-deployment,-endpoint,-podgc,-replicaset,-replicationcontroller,-serviceaccount,-ttl",
        &["statefulset-controller"],
    ),
    (
        "--controllers=*,-deployment,-endpoint,-podgc,-replicaset-controller,-replicationcontroller,-serviceaccount,\
         -statefulset,-ttl,ttl",
        &[],
    ),
];

/// The chart is not installed next to a kube-controller-manager that runs the same controllers.
async fn is_refused_next_to_upstream(plane: &ControlPlane, helm: &Helm) -> Result<()> {
    let remove = async || {
        let words = [
            "delete",
            "pod",
            "kcm",
            "-n",
            "kube-system",
            "--grace-period=0",
            "--force",
            "--ignore-not-found",
        ];
        plane.kubectl(&words).await.map(drop)
    };
    for (flag, running) in UPSTREAM {
        remove().await?;
        let container =
            json!({ "name": "kcm", "image": "kcm", "command": ["kube-controller-manager", flag] });
        let labels = json!({ "component": "kube-controller-manager" });
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "kcm", "namespace": "kube-system", "labels": labels },
            "spec": { "schedulerName": "nobody", "containers": [container] },
        });
        apply(plane, &[pod], &[]).await?;
        let install =
            helm.release("install", (RELEASE, Chart::Windlass, NAMESPACE), "{}", &["--dry-run=server"]);
        let message = install.await.err().map(|error| error.to_string()).unwrap_or_default();
        let expected = format!("Pod kube-system/kcm runs {}, so", running.join(", "));
        ensure!(message.contains(&expected) != running.is_empty(), "{flag}: {message}");
    }
    remove().await
}

/// An upgrade cannot let old and new Pods elect by different Leases.
async fn lease_is_kept_while_pods_run(helm: &Helm) -> Result<()> {
    let release = (RELEASE, Chart::Windlass, NAMESPACE);
    for (values, old) in [
        ("nameOverride: other\nleaderElection: {leaseName: other}", "standby kube-system/windlass"),
        ("leaderElection: {mode: shards, leaseNamespace: blue}", "standby kube-system/windlass"),
    ] {
        let error = helm.release("upgrade", release, values, &["--dry-run=server"]).await.err();
        let message = error.with_context(|| format!("{values} is accepted"))?.to_string();
        ensure!(message.contains(&format!("the Pods of this release elect by \"{old}\"")), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn release_is_installed_works_and_is_removed() -> Result<()> {
    let plane = plane().await?;
    let helm = Helm::new(Some(plane)).await?;
    let release = (RELEASE, Chart::Windlass, NAMESPACE);
    is_refused_next_to_upstream(plane, &helm).await?;
    helm.release("install", release, READER, &WAIT).await?;
    let (first, config) = state(plane).await?;
    lease_is_kept_while_pods_run(&helm).await?;
    ensure!(first.len() == 3, "one Pod on each node: {first:?}");

    let pod = Pod::mount(plane, "daemonset/windlass", NAMESPACE).await?;
    let windlass = start_windlass(plane, &pod).await?;
    let namespace = reconciles(plane).await.with_context(|| log_of(&windlass))?;
    let objects = (&windlass, &*namespace);
    operator_works(plane, &helm, objects).await.with_context(|| log_of(&windlass))?;
    two_releases_are_independent(plane, &helm).await.with_context(|| log_of(&windlass))?;
    denies_and_is_denied_nothing(plane, &windlass).await?;
    windlass.terminate();
    ensure!(windlass.wait_exit(TIMEOUT).await?.success(), "it does not stop: {}", log_of(&windlass));

    helm.release("upgrade", release, &format!("{READER}\nlogging: {{level: 4}}"), &WAIT).await?;
    let (second, upgraded) = state(plane).await?;
    ensure!(upgraded.contains("verbosity: 4") && upgraded != config, "{upgraded}");
    ensure!(second.len() == 3 && second.iter().all(|uid| !first.contains(uid)), "{first:?} {second:?}");

    helm.run(&[&["rollback", RELEASE, "1", "--namespace", NAMESPACE][..], &WAIT].concat()).await?;
    let (third, restored) = state(plane).await?;
    ensure!(restored == config && third.iter().all(|uid| !second.contains(uid)), "{restored}");

    let monitors = async |expected: bool| {
        let manifest = helm.run(&["get", "manifest", RELEASE, "--namespace", NAMESPACE]).await?;
        let found =
            ["ServiceMonitor", "PrometheusRule"].map(|kind| manifest.contains(&format!("kind: {kind}")));
        ensure!(found == [expected; 2], "{manifest}");
        Ok(())
    };
    monitors(false).await?;
    apply(plane, &prometheus_crds(), &[]).await?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    helm.release("upgrade", release, READER, &WAIT).await?;
    monitors(true).await?;
    uninstall_leaves(plane, &helm, release, &[]).await?;
    // The Lease belongs to the processes, which can run in another release.
    plane.kubectl(&["get", "lease", "windlass", "--namespace", "kube-system"]).await.map(drop)
}
