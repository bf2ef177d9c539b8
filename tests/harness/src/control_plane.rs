//! A control plane: starting, using, interrupting and stopping it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use crate::assets::{Assets, Binary};
use crate::components::{self, identity};
use crate::layout::Layout;
use crate::logs;
use crate::nodes::{self, TaintRemover};
use crate::options::ControlPlaneOptions;
use crate::pki::CertificateAuthority;
use crate::ports::Port;
use crate::process::{FolderRemover, Process, Program};

/// Timeout of readiness: thirty times the duration on two idle cores, for machines that are busy building.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Interval between two polls.
const POLL: Duration = Duration::from_millis(20);

/// Time for a killed process to exit.
const DYING: Duration = Duration::from_secs(10);

/// Number of ports to try if other processes occupy them.
const PORT_ATTEMPTS: usize = 5;

/// A running control plane. Dropping it kills all its processes and removes its files.
#[derive(Debug)]
pub struct ControlPlane {
    // In drop order: processes before the folders they write to.
    api_server: Mutex<Option<Process>>,
    supporting_controllers: Option<Process>,
    scheduler: Option<Process>,
    kwok: Mutex<Option<Process>>,
    etcd: Process,
    port: Port,
    config: kube::Config,
    kubeconfig: PathBuf,
    logs: PathBuf,
    options: ControlPlaneOptions,
    nodes: AtomicUsize,
    controller_managers: AtomicUsize,
    files: ControlPlaneFiles,
}

// Starting and stopping.
impl ControlPlane {
    /// Starts a control plane and returns when it is ready, after about four seconds, or minutes if the binaries must
    /// be built.
    ///
    /// # Errors
    /// Returns an error if a binary can be neither found nor built, or a process exits or is not ready in two minutes;
    /// the logs are then kept.
    ///
    /// # Cancel safety
    /// A dropped start leaves no processes and files.
    pub async fn start(options: ControlPlaneOptions) -> anyhow::Result<Self> {
        let assets = tokio::task::spawn_blocking(Assets::ensure).await??;
        // A previously installed provider stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let files = ControlPlaneFiles::prepare(assets)?;
        let layout = files.layout.clone();
        let (etcd, api_server, port) = match files.start_servers(&options).await {
            Ok(servers) => servers,
            Err(error) => {
                logs::keep(layout.run());
                return Err(error);
            }
        };
        let plane = Self {
            api_server: Mutex::new(Some(api_server)),
            supporting_controllers: None,
            scheduler: None,
            kwok: Mutex::new(None),
            etcd,
            config: admin_config(&layout).await?,
            kubeconfig: layout.kubeconfig(identity::ADMIN),
            logs: layout.logs(),
            port,
            options,
            nodes: AtomicUsize::new(0),
            controller_managers: AtomicUsize::new(0),
            files,
        };
        plane.complete().await
    }

    /// Returns the control plane with default options that all tests of this process share. The first call starts it.
    /// Any panic in the process keeps its logs.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start); the next call tries again.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        let start = || async {
            let plane = Self::start(ControlPlaneOptions::default()).await?;
            plane.keep_logs_on_panic();
            Ok(plane)
        };
        SHARED.get_or_try_init(start).await
    }

    /// Stops all processes and removes the files, including logs unless they are to be kept.
    ///
    /// # Errors
    /// Returns an error if a killed process does not exit, or the files cannot be removed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let supporting = [self.supporting_controllers.take(), self.scheduler.take()];
        let mut processes: Vec<Process> = supporting.into_iter().flatten().collect();
        processes.extend(self.kwok.lock().await.take());
        processes.extend(self.api_server.lock().await.take());
        for process in &processes {
            process.kill();
        }
        self.etcd.kill();
        for process in processes.iter().chain([&self.etcd]) {
            process.wait_exit(DYING).await?;
        }
        match self.files.folder_remover.take() {
            Some(folder_remover) => tokio::task::spawn_blocking(|| folder_remover.finish()).await?,
            None => Ok(()),
        }
    }

    /// Starts the clients of the API server, and waits until they work.
    async fn complete(mut self) -> anyhow::Result<Self> {
        // The logs are marked before drop removes the files.
        self.start_supporting().await.inspect_err(|_| self.keep_logs())?;
        Ok(self)
    }

    async fn start_supporting(&mut self) -> anyhow::Result<()> {
        if !self.options.upstream_controllers.is_empty() {
            self.supporting_controllers = Some(self.start_supporting_controllers()?);
        }
        if self.options.scheduler {
            self.scheduler = Some(self.start_scheduler().await?);
        }
        self.await_service_account("default").await?;
        self.add_nodes(self.options.nodes).await
    }

    fn start_supporting_controllers(&self) -> anyhow::Result<Process> {
        let options = &self.options;
        let controllers: Vec<&str> = options.upstream_controllers.iter().map(String::as_str).collect();
        let mut arguments =
            components::controller_manager(&self.files.layout, &controllers, options.authorization_rbac);
        arguments.extend(components::limits(options));
        self.files.start_isolated(Binary::KubeControllerManager, "kube-controller-manager", &arguments)
    }

    async fn start_scheduler(&self) -> anyhow::Result<Process> {
        let config = self.files.layout.run().join("scheduler.json");
        let settings = components::scheduler_config(&self.files.layout, &self.options);
        tokio::fs::write(&config, settings.to_string()).await?;
        self.files.start_isolated(Binary::KubeScheduler, "kube-scheduler", &components::scheduler(&config))
    }
}

// Using a control plane.
impl ControlPlane {
    /// Returns the kubeconfig of an administrator.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the socket on which etcd serves, without credentials.
    #[must_use]
    pub fn etcd_socket(&self) -> PathBuf {
        self.files.layout.etcd_socket()
    }

    /// Returns the file of the certificate authority of the API server.
    #[must_use]
    pub fn root_ca(&self) -> PathBuf {
        self.files.layout.pki("ca.crt")
    }

    /// Creates a kubeconfig for `user`, in `group` if given, with only the RBAC permissions bound to either. `name` is
    /// the name of the file and must be unique per control plane.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be created or written.
    pub fn kubeconfig_for(&self, name: &str, user: &str, group: Option<&str>) -> anyhow::Result<PathBuf> {
        let path = self.files.layout.kubeconfig(name);
        ensure!(!path.exists(), "there is a kubeconfig named {name} already");
        self.files.authority.kubeconfig(name, user, group, &server_url(&self.port))?;
        Ok(path)
    }

    /// Returns the settings of an administrator's client, without rate limit and retries, so that a test observes every
    /// response of the server.
    #[must_use]
    pub fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// Returns a new client of an administrator, bound to the calling runtime.
    ///
    /// # Panics
    /// Panics if the settings are invalid, although a client was created from them at startup.
    // Async, because a client must be created on the runtime that drives its connections.
    #[allow(clippy::unused_async)]
    pub async fn client(&self) -> Client {
        Client::try_from(self.config()).expect("a client was created from these settings at startup")
    }

    /// Creates a unique namespace with the name prefix `prefix`, and returns its name when its `default` ServiceAccount
    /// exists.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the namespace, or the ServiceAccount does not appear in two minutes.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let name = namespaces.create(&PostParams::default(), &namespace).await?.name_any();
        self.await_service_account(&name).await?;
        Ok(name)
    }

    /// Adds `count` nodes, named `node-0` and so on, and returns when pods can be scheduled on them. The first nodes
    /// start kwok.
    ///
    /// # Errors
    /// Returns an error if kwok does not start, or a node is not ready in two minutes.
    pub async fn add_nodes(&self, count: usize) -> anyhow::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let mut kwok = self.kwok.lock().await;
        let kwok = match &mut *kwok {
            Some(kwok) => kwok,
            none => none.insert(self.start_kwok()?),
        };
        let first = self.nodes.fetch_add(count, Ordering::Relaxed);
        let names: BTreeSet<String> = (first..first + count).map(|number| format!("node-{number}")).collect();
        let untainting = match self.options.runs_upstream("node-lifecycle-controller") {
            true => TaintRemover::Upstream,
            false => TaintRemover::Ours,
        };
        let api = Api::all(self.client().await);
        nodes::create(&api, &names).await?;
        await_from(kwok, "new nodes take pods", async || nodes::settle(&api, &names, untainting).await).await
    }

    /// Starts another upstream controller manager with default settings and without leader election, for these
    /// controllers and with these arguments. It is killed when the returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if it cannot be started. Errors in its arguments are in its log.
    pub fn start_upstream_controllers(&self, controllers: &[&str], args: &[&str]) -> anyhow::Result<Process> {
        let rbac = self.options.authorization_rbac;
        let mut arguments = components::controller_manager(&self.files.layout, controllers, rbac);
        arguments.extend(args.iter().map(ToString::to_string));
        let number = self.controller_managers.fetch_add(1, Ordering::Relaxed);
        let name = format!("upstream-controllers-{number}");
        self.files.start_isolated(Binary::KubeControllerManager, &name, &arguments)
    }

    /// Starts another program next to the control plane, such as Prometheus. It is killed when the returned value is
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if it cannot be started. Errors in its arguments are in its log.
    pub fn start_program(&self, path: PathBuf, args: &[&str], name: &str) -> anyhow::Result<Process> {
        self.start_additional(&Program::new(path, args.iter().map(OsString::from)), name)
    }

    /// Runs kubectl as an administrator and returns its output.
    ///
    /// # Errors
    /// Returns an error with kubectl's error output if it fails.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = tokio::process::Command::new(self.files.assets.path(Binary::Kubectl))
            .env("KUBECONFIG", self.kubeconfig_path())
            .env("HOME", self.files.layout.home())
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", args.join(" "), complaint.trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the folder of the logs of all processes.
    #[must_use]
    pub fn logs_dir(&self) -> &Path {
        &self.logs
    }

    /// Keeps the logs when the control plane is removed, and prints their location.
    pub fn keep_logs(&self) {
        logs::keep(self.files.layout.run());
    }

    /// Keeps the logs after any panic in the process. For control planes in statics: they are never dropped, so a panic
    /// is the only sign of a failed test.
    pub fn keep_logs_on_panic(&self) {
        let run = self.files.layout.run().to_owned();
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            logs::keep(&run);
            previous(panic);
        }));
    }

    /// Starts `program` with the inherited environment, as a process that ends with this process.
    pub(crate) fn start_additional(&self, program: &Program, name: &str) -> anyhow::Result<Process> {
        self.files.start(program, name)
    }

    fn start_kwok(&self) -> anyhow::Result<Process> {
        let arguments = components::kwok(&self.files.layout, &self.files.assets.kwok_stages());
        self.files.start_isolated(Binary::Kwok, "kwok", &arguments)
    }

    /// Waits for the `default` ServiceAccount of `namespace`, or creates it if upstream's controller does not run.
    async fn await_service_account(&self, namespace: &str) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await, namespace);
        match &self.supporting_controllers {
            Some(controllers) if self.options.runs_upstream("serviceaccount-controller") => {
                let there = async || Ok(accounts.get_opt("default").await?.is_some());
                await_from(controllers, &format!("{namespace} has its service account"), there).await
            }
            _ => create_default_account(&accounts).await,
        }
    }
}

// Interrupting a control plane.
impl ControlPlane {
    /// Kills the API server to simulate an outage: connections break and new connections are refused.
    ///
    /// # Errors
    /// Returns an error if it is not running.
    pub async fn stop_api_server(&self) -> anyhow::Result<()> {
        let Some(server) = self.api_server.lock().await.take() else { bail!("no API server is running") };
        server.kill();
        server.wait_exit(DYING).await?;
        Ok(())
    }

    /// Starts the API server again, on the same port and data, and returns when it is ready.
    ///
    /// # Errors
    /// Returns an error if it is already running, exits, or is not ready in two minutes.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        let mut server = self.api_server.lock().await;
        ensure!(server.is_none(), "the API server is running");
        *server = Some(self.files.start_api_server(&self.port, &self.options).await?);
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
    }
}

/// Resources of the processes: binaries, folders and keys.
#[derive(Debug)]
struct ControlPlaneFiles {
    assets: Assets,
    layout: Layout,
    authority: CertificateAuthority,
    /// `None` only while the control plane stops.
    folder_remover: Option<FolderRemover>,
}

impl ControlPlaneFiles {
    fn prepare(assets: Assets) -> anyhow::Result<Self> {
        let layout = Layout::create()?;
        // From here on the folders are removed with this process.
        let folder_remover =
            FolderRemover::start(&assets.path(Binary::Supervise), layout.data(), layout.run())?;
        if logs::always_kept() {
            logs::keep(layout.run());
        }
        let authority = CertificateAuthority::create(&layout)?;
        Ok(Self { assets, layout, authority, folder_remover: Some(folder_remover) })
    }

    async fn start_servers(&self, options: &ControlPlaneOptions) -> anyhow::Result<(Process, Process, Port)> {
        let etcd = self.start_etcd().await?;
        for _ in 0..PORT_ATTEMPTS {
            let port = Port::reserve()?;
            self.write_kubeconfigs(&port)?;
            let log = self.layout.log("kube-apiserver");
            let logged = logs::length(&log);
            match self.start_api_server(&port, options).await {
                Ok(server) => return Ok((etcd, server, port)),
                Err(_) if logs::contains_address_in_use(&log, logged) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("other processes occupied {PORT_ATTEMPTS} ports in a row")
    }

    fn write_kubeconfigs(&self, port: &Port) -> anyhow::Result<()> {
        for (name, user, group) in identity::ALL {
            self.authority.kubeconfig(name, user, group, &server_url(port))?;
        }
        Ok(())
    }

    async fn start_etcd(&self) -> anyhow::Result<Process> {
        let etcd = self.start_isolated(Binary::Etcd, "etcd", &components::etcd(&self.layout))?;
        let socket = self.layout.etcd_socket();
        let serves = async || Ok(UnixStream::connect(&socket).await.is_ok());
        await_from(&etcd, "etcd serves", serves).await?;
        Ok(etcd)
    }

    async fn start_api_server(&self, port: &Port, options: &ControlPlaneOptions) -> anyhow::Result<Process> {
        let arguments = components::api_server(&self.layout, port.number(), options);
        let server = self.start_isolated(Binary::KubeApiserver, "kube-apiserver", &arguments)?;
        let client = Client::try_from(admin_config(&self.layout).await?)?;
        await_from(&server, "the API server is ready", async || answers_readyz(&client).await).await?;
        await_from(&server, "Services get addresses", async || accepts_services(&client).await).await?;
        Ok(server)
    }

    fn start_isolated(&self, binary: Binary, name: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let program = Program::new(self.assets.path(binary), arguments);
        self.start(&program.isolated(&self.layout.home()), name)
    }

    fn start(&self, program: &Program, name: &str) -> anyhow::Result<Process> {
        Process::start(&self.assets.path(Binary::Supervise), program, name, &self.layout.log(name))
    }
}

/// Waits until `holds` returns true. Fails if the process exits first, or after [`TIMEOUT`].
async fn await_from(
    process: &Process,
    what: &str,
    holds: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let name = process.name();
    let awaited = async {
        while !holds().await? {
            if let Some(status) = process.exited() {
                bail!("{name} exited with {status}: {}", logs::tail(process.log()));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    match timeout(TIMEOUT, awaited).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("not within {TIMEOUT:?}: {what}; log of {name}: {}", logs::tail(process.log())),
    }
}

async fn answers_readyz(client: &Client) -> anyhow::Result<bool> {
    let readiness = http::Request::get("/readyz").body(Vec::new())?;
    // A single request can hang while the server starts; the next attempt succeeds.
    let answer = timeout(Duration::from_secs(2), client.request_text(readiness)).await;
    Ok(matches!(answer, Ok(Ok(_))))
}

/// Returns whether Services can be created. A ready API server rejects them for a moment, until its allocators know the
/// range of addresses.
async fn accepts_services(client: &Client) -> anyhow::Result<bool> {
    let service = serde_json::from_value(json!({
        "metadata": { "generateName": "probe-" },
        "spec": { "ports": [{ "port": 80 }] },
    }))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let answer = timeout(Duration::from_secs(2), services.create(&dry_run, &service)).await;
    Ok(matches!(answer, Ok(Ok(_))))
}

async fn create_default_account(accounts: &Api<ServiceAccount>) -> anyhow::Result<()> {
    let metadata = ObjectMeta { name: Some("default".into()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(()),
        // Another controller under test created it first.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).context("creating the default service account"),
    }
}

async fn admin_config(layout: &Layout) -> anyhow::Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(layout.kubeconfig(identity::ADMIN))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(config)
}

fn server_url(port: &Port) -> String {
    format!("https://127.0.0.1:{}", port.number())
}
