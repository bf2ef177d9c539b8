//! The admin server with a real API server: authorization, certificate reloads and overload.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::join_all;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_admin::{Access, AdminConfig, Tls};
use windlass_black_box::audit::{Audit, count_by_kind};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::exits_gracefully;
use windlass_black_box::wait::eventually;
use windlass_env::{Env, Task};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};
use windlass_manager::{Manager, ManagerConfig, ManagerError, Registry, ShutdownSignals, ShutdownTrigger};

/// Timeout of a response, longer than the timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Prints a measurement.
#[expect(clippy::print_stdout, reason = "measurements are shown with --nocapture")]
fn figure(line: &str) {
    println!("{line}");
}

/// Returns the options of a control plane with only an API server.
fn bare() -> ControlPlaneOptions {
    let none: [&str; 0] = [];
    ControlPlaneOptions::default().nodes(0).scheduler(false).upstream_controllers(none)
}

/// The admin server of a manager without controllers.
struct Served {
    env: Env,
    address: SocketAddr,
    connector: TlsConnector,
    trigger: ShutdownTrigger,
    run: Task<Result<(), ManagerError>>,
}

impl Served {
    /// Starts the manager with this kubeconfig.
    async fn start(kubeconfig: &Path, tls: Tls, access: Access) -> Result<Self> {
        // The test picks a free port.
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let admin = AdminConfig { address: free, tls, access };
        let config = ManagerConfig { admin: Some(admin), election: None, ..ManagerConfig::new("admin") };
        let env = Env::system("admin");
        let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let cluster = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        let manager = Manager::new(env.clone(), config, cluster)?;
        let (trigger, signals) = ShutdownSignals::manual();
        let run = env.spawn("manager", manager.run(signals));
        let served = Self { env, address: free, connector: connector(), trigger, run };
        let ready = async || Ok(served.get("/readyz", None).await.map_or(0, |(code, _)| code));
        eventually("the manager is ready", ready, |code| *code == 200).await?;
        Ok(served)
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        connect(&self.connector, self.address).await
    }

    /// Requests `path` on a new connection, and returns status code and body.
    async fn get(&self, path: &str, token: Option<&str>) -> Result<(u16, String)> {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let lines = format!("{token}Connection: close\r\n");
        tokio::time::timeout(TIMEOUT, async { exchange(&mut self.connect().await?, path, &lines).await })
            .await
            .with_context(|| format!("no answer to {path} within {TIMEOUT:?}"))?
    }

    async fn code(&self, path: &str, token: &str) -> Result<u16> {
        Ok(self.get(path, Some(token)).await?.0)
    }

    /// Returns a sample of the server's metrics.
    async fn metric(&self, sample: &str, token: &str) -> Result<f64> {
        let (code, text) = self.get("/metrics", Some(token)).await?;
        ensure!(code == 200, "{code}: {text}");
        let line = text.lines().find_map(|line| line.strip_prefix(sample));
        Ok(line.with_context(|| format!("no {sample}"))?.trim().parse()?)
    }

    async fn stop(self) -> Result<()> {
        self.trigger.fire();
        self.run.await??;
        self.env.wait_for_tasks().await;
        Ok(())
    }
}

async fn connect(connector: &TlsConnector, address: SocketAddr) -> Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    Ok(connector.connect(ServerName::try_from("localhost")?, socket).await?)
}

/// Sends one request and reads the response by its length. The connection can be reused.
async fn exchange(stream: &mut TlsStream<TcpStream>, path: &str, lines: &str) -> Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let end = loop {
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        ensure!(stream.read_buf(&mut answer).await? > 0, "closed before an answer");
    };
    let head = String::from_utf8(answer[..end].to_vec())?.to_ascii_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("a status")?;
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let length = length.context("a length")?;
    while answer.len() < end + length {
        ensure!(stream.read_buf(&mut answer).await? > 0, "closed within an answer");
    }
    Ok((code, String::from_utf8(answer[end..].to_vec())?))
}

/// A verifier that accepts every certificate, because these tests do not check the server's identity.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn connector() -> TlsConnector {
    let config = ClientConfig::builder().dangerous();
    let mut config = config.with_custom_certificate_verifier(Arc::new(Credulous)).with_no_client_auth();
    // A resumed session has the certificate of its first handshake.
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn create<K>(plane: &ControlPlane, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    Api::<K>::all(plane.client().await)
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// Creates a ClusterRole with these rules and binds it to the subject; both are named `name`.
pub(crate) async fn grant(plane: &ControlPlane, name: &str, rules: Value, subject: Value) -> Result<()> {
    create::<ClusterRole>(plane, json!({ "metadata": { "name": name }, "rules": rules })).await?;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let binding = json!({ "metadata": { "name": name }, "roleRef": role, "subjects": [subject] });
    create::<ClusterRoleBinding>(plane, binding).await
}

/// Returns the kubeconfig of a user with exactly the permissions that the admin server declares.
async fn reviewer(plane: &ControlPlane) -> Result<std::path::PathBuf> {
    let rule = |rule: &windlass_object::Rule| {
        json!({ "apiGroups": [rule.group], "resources": [rule.resource],
                "verbs": rule.verbs.iter().map(ToString::to_string).collect::<Vec<_>>() })
    };
    let rules: Vec<Value> = Registry::reviews().rules.iter().map(rule).collect();
    let user = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reviewer" });
    grant(plane, "reviewer", json!(rules), user).await?;
    plane.kubeconfig_for("reviewer", "reviewer", None)
}

/// Returns the token of a new ServiceAccount.
async fn token(plane: &ControlPlane, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await, "default");
    let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request = TokenRequest::default();
    let granted = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    granted.status.and_then(|status| status.token).context("a token")
}

/// Returns a token with permission to read every endpoint.
async fn scraper(plane: &ControlPlane) -> Result<String> {
    let token = token(plane, "scraper").await?;
    let account = json!({ "kind": "ServiceAccount", "name": "scraper", "namespace": "default" });
    grant(plane, "scraper", json!([{ "nonResourceURLs": ["/*"], "verbs": ["get"] }]), account).await?;
    Ok(token)
}

/// Returns the numbers of TokenReviews and SubjectAccessReviews of the admin server in the audit log.
fn reviews(audit: &Audit) -> Result<(usize, usize)> {
    let counts = count_by_kind(&audit.writes("windlass", &["admin-server"])?);
    let count = |resource: &str| counts.get(&format!("create {resource} 201")).copied().unwrap_or_default();
    Ok((count("tokenreviews"), count("subjectaccessreviews")))
}

fn remembered_for(authentication: u64, allow: u64, deny: u64) -> Access {
    let Access::Delegated { always_allow, .. } = Access::reviewed() else { unreachable!("reviewed") };
    Access::Delegated {
        always_allow,
        authentication_ttl: Duration::from_secs(authentication),
        allow_ttl: Duration::from_secs(allow),
        deny_ttl: Duration::from_secs(deny),
    }
}

// parity: health-pprof-metrics-server, token-review-subject-access
#[tokio::test(flavor = "multi_thread")]
async fn authorized_clients_read_and_reviews_are_cached_as_configured() -> Result<()> {
    with_control_plane(bare(), async |plane, audit| {
        let kubeconfig = reviewer(plane).await?;
        let (scraper, foreign) = (scraper(plane).await?, token(plane, "stranger").await?);

        let served = Served::start(&kubeconfig, Tls::SelfSigned, Access::reviewed()).await?;
        ensure!(served.get("/livez?verbose", None).await?.0 == 200, "probes need no token");
        ensure!(served.get("/metrics", None).await?.0 == 401, "no token");
        ensure!(reviews(audit)? == (0, 0), "a request without a token needs no review");
        ensure!(served.code("/metrics", "made-up").await? == 401, "an unknown token");
        let (code, why) = served.get("/metrics", Some(&foreign)).await?;
        let expected =
            "forbidden: user \"system:serviceaccount:default:stranger\" cannot get path \"/metrics\"";
        ensure!(code == 403 && why.starts_with(expected) && why.lines().count() == 1, "{code}: {why}");
        for path in ["/metrics", "/metrics/slis", "/configz", "/statusz", "/flagz", "/livez/ping", "/"] {
            ensure!(served.code(path, &scraper).await? == 200, "{path}");
        }
        let before = reviews(audit)?;
        // TokenReviews: the unknown token and two accounts. SubjectAccessReviews: one path and seven paths.
        ensure!(before == (3, 8), "{before:?}");
        for _ in 0..50 {
            ensure!(served.code("/metrics", &scraper).await? == 200, "again");
        }
        ensure!(reviews(audit)? == before, "both reviews are cached");
        served.stop().await?;

        reviews_are_cached_for_configured_ttl(plane, audit, &kubeconfig, &scraper).await
    })
    .await
}

/// Uses short cache times, and then removes the permission.
async fn reviews_are_cached_for_configured_ttl(
    plane: &ControlPlane,
    audit: &Audit,
    kubeconfig: &Path,
    scraper: &str,
) -> Result<()> {
    let before = reviews(audit)?;
    let served = Served::start(kubeconfig, Tls::SelfSigned, remembered_for(2, 5, 1)).await?;
    let (begun, mut asked_at) = (Instant::now(), Vec::new());
    while bounds(&asked_at, Duration::from_secs(5)).0 < 2 {
        let asked = begun.elapsed();
        ensure!(served.code("/metrics", scraper).await? == 200, "the scraper has the permission");
        asked_at.push((asked, begun.elapsed()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = reviews(audit)?;
    let asked = (after.0 - before.0, after.1 - before.1);
    for (what, times, seconds) in [("the token", asked.0, 2), ("the right", asked.1, 5)] {
        let (fewest, most) = bounds(&asked_at, Duration::from_secs(seconds));
        ensure!((fewest..=most).contains(&times), "{what}: {times} of {fewest} to {most}");
    }

    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client().await);
    bindings.delete("scraper", &DeleteParams::default()).await?;
    eventually("the cached permission expires", || served.code("/metrics", scraper), |code| *code == 403)
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await, "default");
    accounts.delete("scraper", &DeleteParams::default()).await?;
    eventually(
        "the token of the deleted account expires",
        || served.code("/metrics", scraper),
        |code| *code == 401,
    )
    .await?;
    served.stop().await
}

/// Returns the minimum and maximum number of reviews for requests at these times, if each result is cached for a fixed
/// time that starts during its request.
fn bounds(requests: &[(Duration, Duration)], good_for: Duration) -> (usize, usize) {
    let needed = |sure: bool| {
        let (mut reviews, mut until) = (0, Duration::ZERO);
        for (begun, ended) in requests {
            // As late as possible for the fewest, as early as possible for the most.
            let (seen, renewed) = if sure { (begun, ended) } else { (ended, begun) };
            if reviews == 0 || *seen >= until {
                reviews += 1;
                until = *renewed + good_for;
            }
        }
        reviews
    };
    (needed(true), needed(false))
}

// parity: authorization-always-allow-paths
#[tokio::test(flavor = "multi_thread")]
async fn api_server_outage_keeps_probes_and_cached_clients_working() -> Result<()> {
    with_control_plane(bare(), async |plane, _| {
        let kubeconfig = reviewer(plane).await?;
        let (scraper, late) = (scraper(plane).await?, token(plane, "late").await?);
        let served = Served::start(&kubeconfig, Tls::SelfSigned, Access::reviewed()).await?;
        ensure!(served.code("/metrics", &scraper).await? == 200, "at first");
        plane.stop_api_server().await?;
        let asking = served.get("/metrics", Some(&late));
        let meanwhile = async {
            for _ in 0..10 {
                ensure!(served.get("/livez", None).await?.0 == 200, "alive");
                ensure!(served.code("/metrics", &scraper).await? == 200, "remembered");
            }
            Ok(())
        };
        let (asked, meanwhile) = futures_util::future::join(asking, meanwhile).await;
        meanwhile?;
        let (code, why) = asked?;
        ensure!(code == 500 && why.lines().count() == 1, "{code}: {why}");
        plane.start_api_server().await?;
        eventually("asked again", || served.code("/metrics", &late), |code| *code == 403).await?;
        served.stop().await?;

        // Without its role the admin server cannot send reviews, and rejects all requests except probes.
        Api::<ClusterRoleBinding>::all(plane.client().await)
            .delete("reviewer", &DeleteParams::default())
            .await?;
        let served = Served::start(&kubeconfig, Tls::SelfSigned, Access::reviewed()).await?;
        ensure!(served.code("/metrics", &scraper).await? == 500, "no role");
        ensure!(served.get("/healthz", None).await?.0 == 200, "probes need none");
        served.stop().await
    })
    .await
}

/// Writes a new certificate and key the way Kubernetes updates a mounted Secret, and returns the certificate in DER.
fn replace_certificate(folder: &Path, number: usize) -> Result<Vec<u8>> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
    let version = format!("..{number}");
    std::fs::create_dir(folder.join(&version))?;
    std::fs::write(folder.join(&version).join("tls.crt"), certificate.pem())?;
    std::fs::write(folder.join(&version).join("tls.key"), key.serialize_pem())?;
    std::os::unix::fs::symlink(&version, folder.join("..next"))?;
    std::fs::rename(folder.join("..next"), folder.join("..data"))?;
    Ok(certificate.der().to_vec())
}

// parity: certwatcher-errors-without-files
#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_replaced_under_load_without_a_dropped_scrape() -> Result<()> {
    with_control_plane(bare(), async |plane, _| {
        let (kubeconfig, scraper) = (reviewer(plane).await?, scraper(plane).await?);
        let folder = tempfile::tempdir()?;
        replace_certificate(folder.path(), 0)?;
        let in_folder = |name: &str| folder.path().join("..data").join(name);
        let tls = Tls::Files { certificate: in_folder("tls.crt"), key: in_folder("tls.key") };
        let served = Served::start(&kubeconfig, tls, Access::reviewed()).await?;

        let over = AtomicBool::new(false);
        let load = join_all((0..8).map(|number| scrape_until(&served, &scraper, number % 2 == 0, &over)));
        let replacing = async {
            let replaced = replace_twice((&served.connector, served.address), folder.path()).await;
            over.store(true, Ordering::Relaxed);
            replaced
        };
        let (scrapes, replaced) = futures_util::future::join(load, replacing).await;
        replaced?;
        let scrapes: usize = scrapes.into_iter().sum::<Result<usize>>()?;
        figure(&format!("{scrapes} scrapes during 2 replacements, none dropped"));
        let replaced =
            served.metric("windlass_admin_certificate_changes_total{result=\"replaced\"}", &scraper).await?;
        ensure!(replaced == 2.0 && scrapes > 100, "{replaced} replaced, {scrapes} scrapes");
        served.stop().await
    })
    .await
}

/// Replaces the certificate twice, and waits each time until the server at the address presents the new one.
async fn replace_twice(server: (&TlsConnector, SocketAddr), folder: &Path) -> Result<()> {
    for number in 1..=2 {
        presents(server, &replace_certificate(folder, number)?).await?;
    }
    Ok(())
}

/// Waits until the server at the address presents this certificate.
async fn presents((connector, address): (&TlsConnector, SocketAddr), certificate: &[u8]) -> Result<()> {
    let presented = async || {
        let stream = connect(connector, address).await?;
        let chain = stream.get_ref().1.peer_certificates().context("a chain")?;
        Ok(chain.first().is_some_and(|leaf| **leaf == *certificate))
    };
    eventually("the certificate is served", presented, |served| *served).await?;
    Ok(())
}

/// Returns the flags of a program of `windlass::run` for the certificate in a folder.
fn flags(folder: &Path) -> [String; 2] {
    [("--tls-cert-file", "tls.crt"), ("--tls-private-key-file", "tls.key")]
        .map(|(flag, name)| format!("{flag}={}", folder.join("..data").join(name).display()))
}

#[tokio::test]
async fn operator_serves_certificate_of_its_flags_and_reloads_it() -> Result<()> {
    with_control_plane(bare(), async |plane, _| {
        let folder = tempfile::tempdir()?;
        let first = replace_certificate(folder.path(), 0)?;
        let [certificate, key] = flags(folder.path());
        let operator = ManagerProcess::start_example(plane, "hello", &[&certificate, &key])?;
        let (connector, address) = (connector(), operator.admin_address().parse()?);
        let listens = async || Ok(TcpStream::connect(address).await.is_ok());
        eventually("the operator listens", listens, |listens| *listens).await?;
        presents((&connector, address), &first).await?;
        let get = async |path| {
            exchange(&mut connect(&connector, address).await?, path, "Connection: close\r\n").await
        };
        ensure!(get("/livez").await?.0 == 200, "probes need no token");
        ensure!(get("/metrics").await?.0 == 401, "an anonymous client reads metrics");
        replace_twice((&connector, address), folder.path()).await?;
        ensure!(operator.exited().is_none(), "it exited");
        exits_gracefully(&operator, TIMEOUT).await
    })
    .await
}

/// Runs an operator with the certificate in a folder until it fails, and returns the last line of its error.
async fn operator_fails(folder: &Path) -> Result<String> {
    let kubeconfig = folder.join("kubeconfig");
    // No server listens: the certificate is loaded before the first request.
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "http://127.0.0.1:9" } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "users": [{ "name": "a", "user": {} }],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let [certificate, key] = flags(folder);
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = ["--address=127.0.0.1:0", &certificate, &key, &kubeconfig];
    let error = ManagerProcess::example_prints("hello", &arguments).await.err().context("it runs")?;
    Ok(error.to_string().lines().last().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn operator_names_flags_of_unusable_certificate_and_remedy() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().join("..data");
    let [certificate, key] = flags(folder.path());
    let start = format!("Error: {certificate}, {key}: ");
    let remedy = "; name a certificate in PEM and the key that belongs to it";
    let error = operator_fails(folder.path()).await?;
    let missing = format!("{start}cannot read {}: No such file", at.join("tls.crt").display());
    ensure!(error.starts_with(&missing) && error.ends_with(remedy), "{error}");

    for number in 0..2 {
        replace_certificate(folder.path(), number)?;
    }
    std::fs::copy(folder.path().join("..0/tls.key"), at.join("tls.key"))?;
    let error = operator_fails(folder.path()).await?;
    ensure!(error.starts_with(&start) && error.ends_with(remedy), "{error}");
    ensure!(error.contains("tls.key cannot be used together: "), "{error}");
    Ok(())
}

/// Scrapes repeatedly, on one connection or on new ones, and returns the number of scrapes.
async fn scrape_until(served: &Served, token: &str, keep: bool, over: &AtomicBool) -> Result<usize> {
    let lines = format!("Authorization: Bearer {token}\r\n");
    let mut scrapes = 0;
    let mut stream = served.connect().await?;
    while !over.load(Ordering::Relaxed) {
        if !keep {
            stream = served.connect().await?;
        }
        let (code, body) = exchange(&mut stream, "/metrics", &lines).await?;
        ensure!(code == 200 && body.ends_with('\n'), "{code} after {scrapes} scrapes");
        scrapes += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(scrapes)
}

/// Number of concurrent idle connections. All must be open, or the test fails.
const IDLE: usize = 10_000;

/// Other open files of this process: the server's own connections, concurrent tests, and a margin.
const OTHERS: usize = 1_000;

/// Raises the limit of open files. The hard limit is raised too if the process is allowed to.
fn make_room_for_idle() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::try_from(IDLE + OTHERS)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let most = maximum.map(|most| most.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).with_context(|| {
        format!(
            "{IDLE} idle connections take {needed} open files, and {} may be open: raise the hard limit",
            maximum.unwrap_or(u64::MAX)
        )
    })
}

// parity: read-header-timeout-32
#[tokio::test(flavor = "multi_thread")]
async fn slow_idle_and_oversized_clients_do_not_block_admin_server() -> Result<()> {
    with_control_plane(bare(), async |plane, _| {
        let (kubeconfig, scraper) = (reviewer(plane).await?, scraper(plane).await?);
        let served = Served::start(&kubeconfig, Tls::SelfSigned, Access::reviewed()).await?;
        let memory = served.metric("process_resident_memory_bytes", &scraper).await?;

        // Slow clients send a request head byte by byte.
        let over = AtomicBool::new(false);
        let slow = join_all((0..100).map(|_| trickle(&served, &over)));
        let others = async {
            let stood = idle_and_oversized(&served, &scraper).await;
            over.store(true, Ordering::Relaxed);
            stood
        };
        let (_, others) = futures_util::future::join(slow, others).await;
        let now = others?;
        let took = (now - memory) / 1024.0 / 1024.0;
        figure(&format!("all of it took {took:.1} MiB of memory, the clients' own included"));
        ensure!(took < 256.0, "{took} MiB");
        ensure!(served.get("/livez", None).await?.0 == 200, "after it all");
        served.stop().await
    })
    .await
}

/// Runs the idle and the oversized clients, and returns the resident memory of the process in bytes.
async fn idle_and_oversized(served: &Served, scraper: &str) -> Result<f64> {
    make_room_for_idle()?;
    let _idle = idle(served, scraper).await?;
    oversized(served, scraper).await?;
    served.metric("process_resident_memory_bytes", scraper).await
}

/// Opens connections that send no data, one in fifty after a handshake, and checks that probes and scrapes still work.
async fn idle(served: &Served, scraper: &str) -> Result<(Vec<TcpStream>, Vec<TlsStream<TcpStream>>)> {
    let (mut silent, mut handshaken, mut slowest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for number in 0..IDLE {
        let short = || format!("{number} of {IDLE} idle connections were opened");
        match number % 50 {
            0 => handshaken.push(served.connect().await.with_context(short)?),
            _ => silent.push(TcpStream::connect(served.address).await.with_context(short)?),
        }
        if number % 250 == 0 {
            let begun = Instant::now();
            ensure!(served.get("/livez", None).await?.0 == 200, "a probe next to {number} connections");
            ensure!(served.code("/metrics", scraper).await? == 200, "a scrape next to {number} connections");
            slowest = slowest.max(begun.elapsed());
        }
    }
    let open = served.metric("windlass_admin_connections", scraper).await?;
    let shed = served.metric("windlass_admin_connections_shed_total", scraper).await?;
    let held = silent.len() + handshaken.len();
    ensure!(held == IDLE, "{held} of {IDLE} idle connections are held");
    figure(&format!(
        "next to {held} idle connections a probe and a scrape took {slowest:?} at most; {open} open, {shed} shed"
    ));
    ensure!(open <= 256.0, "{open} open");
    Ok((silent, handshaken))
}

async fn oversized(served: &Served, scraper: &str) -> Result<()> {
    for size in [33, 60, 1024] {
        let lines = format!("X-Large: {}\r\n", "a".repeat(size * 1024));
        let mut stream = served.connect().await?;
        // The server can close the connection with unread data before the response arrives.
        if let Ok((code, _)) = exchange(&mut stream, "/livez", &lines).await {
            ensure!(code == 431, "{code} to {size} KiB");
        } else {
            ensure!(size > 33, "what fits into its buffer is answered");
        }
        ensure!(served.code("/metrics", scraper).await? == 200, "after {size} KiB");
    }
    Ok(())
}

/// Sends a request head slowly until the server closes the connection or the test ends.
async fn trickle(served: &Served, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = served.connect().await else { continue };
        let mut sent = stream.write_all(b"GET /livez HTTP/1.1\r\nX-Slow: ").await;
        while sent.is_ok() && !over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sent = async {
                stream.write_all(b"a").await?;
                stream.flush().await
            }
            .await;
        }
    }
}
