//! Tests of the rotation of certificates by several replicas in virtual time, against the in-process API server.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use tower::ServiceExt as _;
use windlass_api_server::{ApiServer, ApiServerOptions};

use super::*;
use crate::certificates::bundle::{Target, certificates};
use crate::certificates::rotation::{Rotation, ServedCertificate};
use crate::certificates::state::Lifetimes;

const NAME: &str = "keeper-webhook.ops.svc";

/// Lifetimes that make every kind of step happen within hours.
const SHORT: Lifetimes = Lifetimes {
    authority: Duration::from_secs(6 * 3600),
    leaf: Duration::from_secs(2 * 3600),
    announcement: Duration::from_secs(5 * 60),
    period: Duration::from_secs(30),
};

/// The time after which an API server uses a changed `caBundle` in these tests: less than the announcement.
const LAG: Duration = Duration::from_secs(4 * 60);

/// A cluster with a webhook configuration and replicas.
struct Rotating {
    env: Env,
    server: ApiServer,
    replicas: Vec<Arc<ServedCertificate>>,
    metrics: Metrics,
    /// The bundles so far.
    bundles: Vec<(Timestamp, Vec<CertificateDer<'static>>)>,
    issuers: BTreeSet<Vec<u8>>,
    /// While set, every request of a replica fails.
    is_away: Arc<AtomicBool>,
    /// The number of replicas, from the first, that must be covered by old bundles too.
    lagging: usize,
}

impl Rotating {
    fn new(seed: u64) -> Self {
        let env = Env::virtual_time(seed);
        let server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let (replicas, bundles, issuers) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (metrics, is_away) = (Metrics::new(), Arc::default());
        Self { env, server, replicas, metrics, bundles, issuers, is_away, lagging: usize::MAX }
    }

    /// Starts a replica. Every request takes up to two seconds, and every change of a configuration `patch_delay` more.
    fn start(&mut self, patch_delay: Duration) {
        let env = self.env.with_incarnation("replica", u64::try_from(self.replicas.len()).expect("few"));
        let (server, delays) = (self.server.clone(), env.clone());
        let (random, is_away) =
            (Arc::new(std::sync::Mutex::new(env.rng("network"))), Arc::clone(&self.is_away));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, env, random) = (server.clone(), delays.clone(), Arc::clone(&random));
            let is_away = is_away.load(Ordering::Relaxed);
            async move {
                let delay = |most| random.lock().expect("not poisoned").between(Duration::ZERO, most);
                let (before, after) = (delay(Duration::from_secs(1)), delay(Duration::from_secs(1)));
                env.sleep(before).await;
                if request.method() == http::Method::PATCH {
                    env.sleep(patch_delay).await;
                }
                if is_away {
                    return Err(std::io::Error::other("the API server is away"));
                }
                let Ok(response) = server.oneshot(request).await;
                env.sleep(after).await;
                Ok(response)
            }
        });
        let served = Arc::new(ServedCertificate::default());
        let rotation = Rotation {
            env: env.clone(),
            client: kube::Client::new(service, "default"),
            secret: "certificates".to_owned(),
            names: vec![NAME.to_owned()],
            targets: vec![Target::Validating {
                name: "keeper".to_owned(),
                webhooks: vec!["a.example.com".to_owned(), "b.example.com".to_owned()],
            }],
            lifetimes: SHORT,
            metrics: self.metrics.webhooks(),
            served: Arc::clone(&served),
        };
        drop(env.spawn("rotation", rotation.run()));
        self.replicas.push(served);
    }

    fn client(&self) -> kube::Client {
        kube::Client::new(self.server.clone(), "default")
    }

    /// Installs the configuration without `caBundle`.
    async fn install(&self) {
        let webhook = |name: &str| {
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": { "url": "https://keeper-webhook.ops.svc/admission" },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            })
        };
        let configuration = json!({
            "metadata": { "name": "keeper" },
            "webhooks": [webhook("a.example.com"), webhook("b.example.com"), webhook("foreign.example.com")],
        });
        let configuration: ValidatingWebhookConfiguration =
            serde_json::from_value(configuration).expect("valid");
        let api = Api::all(self.client());
        if api.create(&PostParams::default(), &configuration).await.is_err() {
            api.delete("keeper", &DeleteParams::default()).await.expect("deleted");
            api.create(&PostParams::default(), &configuration).await.expect("created");
        }
    }

    /// Returns the certificates in the bundles of both webhooks, which are equal.
    async fn bundle(&self) -> Vec<CertificateDer<'static>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client());
        let Some(found) = api.get_opt("keeper").await.expect("read") else { return Vec::new() };
        let webhooks = found.webhooks.unwrap_or_default();
        let bundles: Vec<_> = webhooks
            .into_iter()
            .map(|it| it.client_config.ca_bundle.map(|it| certificates(&it.0)).unwrap_or_default())
            .collect();
        assert_eq!(bundles[0], bundles[1]);
        assert!(bundles[2].is_empty(), "the webhook of another program is left alone");
        bundles[0].clone()
    }

    /// Advances in steps of 20 s. After each step, every served certificate is covered by the `caBundle`, also by one
    /// that an API server with a delay of [`LAG`] still uses.
    async fn advance(&mut self, time: Duration) {
        let end = self.env.now() + time;
        while self.env.now() < end {
            self.env.sleep(Duration::from_secs(20)).await;
            let (now, bundle) = (self.env.wall(), self.bundle().await);
            self.issuers.extend(bundle.iter().map(|it| it.to_vec()));
            self.bundles.push((now, bundle));
            let lagging =
                self.bundles.iter().rev().find(|(at, _)| now.duration_since(*at).unsigned_abs() >= LAG);
            for (replica, served) in self.replicas.iter().enumerate() {
                let Some(leaf) = served.current() else { continue };
                let used = [self.bundles.last(), lagging.filter(|_| replica < self.lagging)];
                for (at, bundle) in used.into_iter().flatten().filter(|(_, bundle)| !bundle.is_empty()) {
                    let covered = covers(bundle, &leaf, now);
                    assert_eq!(covered, Ok(()), "replica {replica} at {now}, with the bundle of {at}");
                }
            }
        }
    }

    fn served(&self) -> usize {
        self.replicas.iter().filter(|it| it.check(self.env.wall()).is_ok() && it.current().is_some()).count()
    }
}

/// Verifies a leaf as an API server does.
fn covers(
    bundle: &[CertificateDer<'static>],
    leaf: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    let parsed = ParsedCertificate::try_from(leaf)?;
    let seconds = u64::try_from(now.as_second()).expect("after 1970");
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let algorithms = windlass_serving::provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms)?;
    verify_server_name(&parsed, &ServerName::try_from(NAME).expect("a name"))
}

// parity: certificates-webhooks
#[tokio::test(start_paused = true)]
async fn served_certificates_are_covered_while_authorities_rotate() {
    let mut rotating = Rotating::new(7);
    rotating.install().await;
    for _ in 0..3 {
        rotating.start(Duration::ZERO);
    }
    rotating.advance(Duration::from_secs(60)).await;
    assert_eq!(rotating.served(), 3, "all replicas serve within a minute");
    rotating.advance(Duration::from_secs(24 * 3600)).await;
    // A new authority every four hours.
    assert_eq!(rotating.issuers.len(), 7, "one authority was replaced by the next");
    assert!(rotating.bundle().await.len() <= 3, "expired authorities are removed");
    assert!(rotating.metrics.webhooks().serving.certificate_replaced.get() >= 3 * 15);
}

#[tokio::test(start_paused = true)]
async fn replica_that_was_paused_before_its_write_removes_no_authority() {
    let mut rotating = Rotating::new(8);
    rotating.install().await;
    rotating.start(Duration::ZERO);
    rotating.start(Duration::ZERO);
    // Longer than the announcement.
    rotating.start(Duration::from_secs(20 * 60));
    rotating.advance(Duration::from_secs(4 * 3600 - 600)).await;
    assert_eq!(rotating.issuers.len(), 1);
    // Each manifest removes the bundle, so that the slow replica restores it too: with the only authority so far. By
    // the time of its write there is another authority, whose certificate is served.
    for _ in 0..12 {
        rotating.install().await;
        rotating.advance(Duration::from_secs(40)).await;
    }
    rotating.advance(Duration::from_secs(3600)).await;
    assert_eq!(rotating.issuers.len(), 2);
    rotating.advance(Duration::from_secs(6 * 3600)).await;
    assert!(rotating.issuers.len() >= 3);
}

#[tokio::test(start_paused = true)]
async fn deleted_secret_leaves_served_certificates_covered() {
    let mut rotating = Rotating::new(9);
    rotating.install().await;
    rotating.start(Duration::ZERO);
    rotating.start(Duration::ZERO);
    rotating.advance(Duration::from_secs(3600)).await;
    let before = rotating.replicas[0].current();
    let secrets: Api<Secret> = Api::default_namespaced(rotating.client());
    secrets.delete("certificates", &DeleteParams::default()).await.expect("deleted");
    // A new replica has nothing else to serve than a certificate of the new authority.
    rotating.lagging = 2;
    rotating.start(Duration::ZERO);
    rotating.advance(Duration::from_secs(120)).await;
    assert_eq!(rotating.served(), 3, "a new replica needs no announcement");
    assert_eq!(rotating.replicas[0].current(), before, "an old replica waits for the announcement");
    rotating.advance(Duration::from_secs(3600)).await;
    assert_ne!(rotating.replicas[0].current(), before);
}

#[tokio::test(start_paused = true)]
async fn replaced_configuration_gets_its_bundle_within_a_period() {
    let mut rotating = Rotating::new(10);
    rotating.start(Duration::ZERO);
    rotating.advance(Duration::from_secs(60)).await;
    assert_eq!(rotating.served(), 1, "a missing configuration needs no bundle");
    rotating.install().await;
    rotating.advance(Duration::from_secs(60)).await;
    assert_eq!(rotating.bundle().await.len(), 1);
    rotating.install().await;
    assert!(rotating.bundle().await.is_empty());
    rotating.advance(Duration::from_secs(60)).await;
    assert_eq!(rotating.bundle().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn broken_secret_is_reported_with_remedy() {
    let mut rotating = Rotating::new(11);
    let secrets: Api<Secret> = Api::default_namespaced(rotating.client());
    let state = r#"{"authorities": "a key"}"#;
    let broken = json!({
        "metadata": { "name": "certificates" },
        "data": { "state.json": base64::engine::general_purpose::STANDARD.encode(state) },
    });
    let broken: Secret = serde_json::from_value(broken).expect("valid");
    secrets.create(&PostParams::default(), &broken).await.expect("created");
    rotating.start(Duration::ZERO);
    rotating.advance(Duration::from_secs(60)).await;
    let fault = rotating.replicas[0].check(rotating.env.wall()).expect_err("no certificate");
    assert!(fault.contains("column 23; delete the Secret") && !fault.contains("a key"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn expired_certificate_fails_readiness_while_server_is_away() {
    let mut rotating = Rotating::new(12);
    rotating.install().await;
    rotating.start(Duration::ZERO);
    rotating.advance(Duration::from_secs(60)).await;
    assert_eq!(rotating.served(), 1);
    rotating.is_away.store(true, Ordering::Relaxed);
    rotating.env.sleep(SHORT.leaf / 2).await;
    assert_eq!(rotating.served(), 1, "a valid certificate needs no API server");
    rotating.env.sleep(SHORT.leaf).await;
    let fault = rotating.replicas[0].check(rotating.env.wall()).expect_err("expired");
    assert!(fault.starts_with("the certificate has expired: "), "{fault}");
}
