//! The dashboard of the charts: rendered for a release, and its queries and the alerts evaluated by a real Prometheus
//! that scrapes the real programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_deploy::picture::{self, Curve};
use windlass_deploy::{Chart, Helm, charts};
use windlass_harness::{ControlPlane, ManagerProcess, Port, Process};
use windlass_metrics::names::{self, MetricType};

use crate::alerts;
use crate::cases::{NAMESPACE, RELEASE, objects, only};
use crate::lifecycle::{OPERATOR, SERVING, eventually};

/// Panels and rows without data in the test, and the reason.
const WITHOUT_DATA: &[(&str, &str)] =
    &[("Shards", "the release has one leader"), ("Repeated requests", "the API server is not overloaded")];

/// The row whose data the operator has, because `windlass` has no webhooks.
const OF_OPERATOR: &str = "Webhooks";

/// Alerts whose condition must not hold while everything works. Those about rates of failures are not among them.
const INACTIVE: &[&str] = &[
    "WindlassNoMetrics",
    "WindlassTargetDown",
    "WindlassNoLeader",
    "WindlassSeveralLeaders",
    "WindlassShardNotHeld",
    "WindlassShardHeldTwice",
    "WindlassQuarantinedKeys",
    "WindlassUndecodableKeys",
    "WindlassStuckWorker",
];

/// The alert whose condition must hold: a kube-controller-manager runs a controller of `windlass`.
const TWO_MANAGERS: &str = "WindlassTwoManagers";

/// A query of a panel.
struct Query {
    row: String,
    /// The ID of the panel.
    id: u64,
    panel: String,
    legend: String,
    expression: String,
}

impl Query {
    /// Returns the expression for the release that has the data of the row.
    fn of_release(&self) -> String {
        let (release, chart, namespace) = match &*self.row {
            OF_OPERATOR => OPERATOR,
            _ => (RELEASE, Chart::Windlass, NAMESPACE),
        };
        let expression = self.expression.replace("$job", &job(release, chart));
        expression.replace("$namespace", namespace).replace("$__rate_interval", "10s")
    }

    /// Whether the panel has data in the test.
    fn has_data(&self) -> bool {
        WITHOUT_DATA.iter().all(|(title, _)| *title != self.row && *title != self.panel)
    }
}

/// Returns the committed dashboard.
fn committed() -> Result<Value> {
    let path = charts::root().join("deploy/charts/operator-base/files/dashboard.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

/// Returns all queries of a dashboard.
fn queries(dashboard: &Value) -> Result<Vec<Query>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("not a text");
    let mut queries = Vec::new();
    let mut row = String::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = text(&panel["title"])?;
        if panel["type"] == "row" {
            row = title;
            continue;
        }
        for target in panel["targets"].as_array().context("no targets")? {
            let expression = text(&target["expr"])?;
            queries.push(Query {
                row: row.clone(),
                id: panel["id"].as_u64().context("no ID")?,
                panel: title.clone(),
                legend: text(&target["legendFormat"])?,
                expression,
            });
        }
    }
    Ok(queries)
}

/// Returns the names before a selector, which are metrics.
pub(crate) fn metrics(expression: &str) -> Vec<&str> {
    let name = |(at, _)| {
        let before = &expression[..at];
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |last| last + 1);
        &before[start..]
    };
    expression.match_indices('{').map(name).collect()
}

/// Whether a series belongs to a family of the table.
fn is_known(metric: &str) -> bool {
    names::ALL.iter().any(|family| match family.kind {
        MetricType::Histogram(_) => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| metric.strip_suffix(suffix) == Some(family.name)),
        _ => metric == family.name,
    })
}

#[tokio::test]
async fn panels_and_alerts_query_metrics_of_the_table() -> Result<()> {
    let mut expressions: Vec<String> =
        queries(&committed()?)?.into_iter().map(|query| query.expression).collect();
    for values in [alerts::VALUES, alerts::SHARDS] {
        let rules = alerts::rules(Chart::Windlass, values).await?;
        let found = alerts::alerts(&rules).into_iter().filter_map(|alert| alert["expr"].as_str());
        expressions.extend(found.map(str::to_owned));
    }
    for expression in &expressions {
        let found = metrics(expression);
        ensure!(!found.is_empty(), "no metric in {expression}");
        // Prometheus itself adds `up`.
        let unknown: Vec<_> = found.iter().filter(|metric| **metric != "up" && !is_known(metric)).collect();
        ensure!(unknown.is_empty(), "{unknown:?} in {expression}");
    }
    Ok(())
}

#[tokio::test]
async fn dashboard_is_rendered_with_title_uid_and_selection_of_the_release() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values =
        "metrics: {dashboard: {enabled: true, labels: {team: a}, annotations: {grafana_folder: Platform}}}";
    let mut uids = BTreeSet::new();
    for (release, chart, name) in [
        (RELEASE, Chart::Windlass, "windlass"),
        ("other", Chart::Windlass, "other-windlass"),
        ("sites", Chart::Operator, "sites-site-operator"),
    ] {
        let render = helm.release("template", (release, chart, NAMESPACE), values, &[]).await?;
        let render = objects(&render)?;
        let is_dashboard = |object: &&Value| object["metadata"]["labels"]["grafana_dashboard"] == "1";
        let map = render.iter().find(is_dashboard).context("no dashboard")?;
        ensure!(map["metadata"]["labels"]["team"] == "a", "{map}");
        ensure!(map["metadata"]["annotations"] == json!({ "grafana_folder": "Platform" }), "{map}");
        let file = map["data"][format!("{name}.json")].as_str().context("no file")?;
        let mut dashboard: Value = serde_json::from_str(file)?;
        uids.insert(dashboard["uid"].as_str().context("no UID")?.to_owned());
        ensure!(dashboard["title"] == format!("Windlass: {NAMESPACE}/{name}"), "{}", dashboard["title"]);
        for (variable, selected) in [(1, NAMESPACE), (2, name)] {
            let current = dashboard["templating"]["list"][variable]["current"].take();
            ensure!(current == json!({ "text": selected, "value": selected }), "{current}");
            dashboard["templating"]["list"][variable]["current"] = json!({});
        }
        let committed = committed()?;
        for field in ["title", "uid"] {
            dashboard[field] = committed[field].clone();
        }
        ensure!(dashboard == committed, "the render differs from the file in more than the release");
    }
    ensure!(
        uids.len() == 3 && uids.iter().all(|uid| uid.len() <= 40),
        "Grafana needs different UIDs: {uids:?}"
    );
    let without = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), "{}", &[]).await?;
    ensure!(!without.contains("grafana_dashboard"), "{without}");
    Ok(())
}

/// A Prometheus that scrapes the programs each second, with the alerts of the chart.
struct Prometheus {
    process: Process,
    client: Client,
    _folder: TempDir,
    _port: Port,
}

impl Prometheus {
    /// Starts the server.
    async fn start(plane: &ControlPlane, scrapes: &[Value]) -> Result<Self> {
        let program = tokio::task::spawn_blocking(windlass_harness::prometheus).await??.server;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(
            path("rules.yaml"),
            alerts::rules(Chart::Windlass, alerts::VALUES).await?.to_string(),
        )?;
        std::fs::write(path("shards.yaml"), alerts::rules_of_shards().await?.to_string())?;
        let config = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": [path("rules.yaml"), path("shards.yaml")],
            "scrape_configs": scrapes,
        });
        std::fs::write(path("prometheus.yaml"), config.to_string())?;
        let port = Port::reserve()?;
        let address = format!("127.0.0.1:{}", port.number());
        let process = plane.start_program(
            program,
            &[
                &format!("--config.file={}", path("prometheus.yaml").display()),
                &format!("--storage.tsdb.path={}", path("data").display()),
                &format!("--web.listen-address={address}"),
            ],
            "prometheus",
        )?;
        let mut config = kube::Config::new(format!("http://{address}").parse()?);
        config.default_retry = false;
        Ok(Self { process, client: Client::try_from(config)?, _folder: folder, _port: port })
    }

    /// Sends a GET request to the API and returns `data` of the response.
    async fn get(&self, path: &str) -> Result<Value> {
        ensure!(self.process.exited().is_none(), "Prometheus exited: {}", self.log());
        let request = http::Request::get(path).body(kube::client::Body::empty())?;
        let response = self.client.send(request).await?;
        let body = response.into_body().collect_bytes().await?;
        let mut body: Value = serde_json::from_slice(&body).context("the response is not JSON")?;
        ensure!(body["status"] == "success", "{path}: {body}");
        Ok(body["data"].take())
    }

    /// Returns the samples of an instant query that are numbers.
    async fn samples(&self, expression: &str) -> Result<usize> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        let samples = data["result"].as_array().with_context(|| format!("no vector: {data}"))?;
        Ok(samples.iter().filter(|sample| sample["value"][1] != "NaN").count())
    }

    /// Returns the dashboard with the data of the last seconds as SVG.
    async fn picture(&self) -> Result<String> {
        let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
        let start = end - f64::from(picture::WINDOW);
        let mut curves: BTreeMap<u64, Vec<Curve>> = BTreeMap::new();
        for query in queries(&committed()?)? {
            let range = format!("start={start:.3}&end={end:.3}&step=1");
            let path = format!("/api/v1/query_range?{range}&query={}", encoded(&query.of_release()));
            let data = self.get(&path).await?;
            for series in data["result"].as_array().with_context(|| format!("no matrix: {data}"))? {
                let labels = serde_json::from_value(series["metric"].clone())?;
                let legend = picture::legend(&query.legend, &labels);
                curves.entry(query.id).or_default().push(Curve { legend, points: points(series, start)? });
            }
        }
        picture::svg(&committed()?, &curves)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap_or_else(|error| error.to_string())
    }

    /// Fails if a panel that must have data has none.
    async fn check_panels(&self) -> Result<()> {
        let mut empty = BTreeSet::new();
        for query in queries(&committed()?)? {
            let expression = query.of_release();
            if self.samples(&expression).await? == 0 && query.has_data() {
                empty.insert(format!("{}/{}: {expression}", query.row, query.panel));
            }
        }
        ensure!(empty.is_empty(), "no samples: {empty:#?}");
        Ok(())
    }

    /// Fails until each alert was evaluated, and if one is active that must not be, or inactive that must be active.
    async fn check_alerts(&self) -> Result<()> {
        let data = self.get("/api/v1/rules").await?;
        let mut seen = BTreeSet::new();
        for rule in alerts::alerts(&data) {
            let name = rule["name"].as_str().context("an alert has a name")?;
            ensure!(rule["health"] == "ok", "{name}: {}, {}", rule["health"], rule["lastError"]);
            ensure!(!INACTIVE.contains(&name) || rule["state"] == "inactive", "{name}: {rule}");
            if name == TWO_MANAGERS {
                let active = rule["alerts"].as_array().into_iter().flatten();
                let controllers: Vec<_> = active.map(|alert| &alert["labels"]["name"]).collect();
                ensure!(controllers == ["ttlcontroller"], "both run {controllers:?}");
            }
            seen.insert(name.to_owned());
        }
        let mut expected = INACTIVE.iter().chain([&TWO_MANAGERS]);
        ensure!(expected.all(|name| seen.contains(*name)), "Prometheus has only {seen:?}");
        Ok(())
    }
}

/// Returns a text for the query of a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the samples of a series that are numbers, with their seconds since `start`.
fn points(series: &Value, start: f64) -> Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for sample in series["values"].as_array().context("no values")? {
        let value: f64 = sample[1].as_str().context("no value")?.parse()?;
        if value.is_finite() {
            points.push((sample[0].as_f64().context("no time")? - start, value));
        }
    }
    Ok(points)
}

/// The picture of the dashboard in the documentation.
fn page() -> PathBuf {
    charts::root().join("docs/dashboard.svg")
}

/// Fails if a picture has another structure than the dashboard, or no data in a panel that must have data.
fn check_picture(drawn: &str) -> Result<()> {
    let expected = picture::svg(&committed()?, &BTreeMap::new())?;
    ensure!(
        picture::structure(drawn) == picture::structure(&expected),
        "the picture is not that of the dashboard; run `WRITE_DOCS=1 cargo test -p windlass-deploy release`"
    );
    let queries = queries(&committed()?)?;
    let needs_data = |title: &&&str| queries.iter().any(|query| query.panel == **title && query.has_data());
    let empty = picture::without_data(drawn);
    let empty: Vec<_> = empty.iter().filter(needs_data).collect();
    ensure!(empty.is_empty(), "the picture has no data of {empty:?}");
    Ok(())
}

/// The values differ from run to run; titles, positions and units do not.
#[test]
fn picture_in_documentation_shows_each_panel_of_dashboard_with_data() -> Result<()> {
    check_picture(&std::fs::read_to_string(page()).context("docs/dashboard.svg")?)
}

/// Returns the label `job` of a release, which is the name of its Service.
fn job(release: &str, chart: Chart) -> String {
    match chart {
        Chart::Windlass => release.to_owned(),
        chart => format!("{release}-{}", chart.program()),
    }
}

/// Returns the scrape that the ServiceMonitor of a release configures, with another file of the token. `secret` is the
/// folder with the files of its Secret.
async fn scrape_of_monitor(
    helm: &Helm,
    (release, chart, namespace): (&str, Chart, &str),
    values: &str,
    (address, token): (&str, &str),
    secret: &Path,
) -> Result<Value> {
    let served = ["--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"];
    let render = helm.release("template", (release, chart, namespace), values, &served).await?;
    let render = objects(&render)?;
    let endpoint = &only(&render, "ServiceMonitor")?["spec"]["endpoints"][0];
    ensure!(endpoint["bearerTokenFile"].is_string(), "the ServiceMonitor sends no token");
    let tls = &endpoint["tlsConfig"];
    let tls = match tls["ca"]["secret"]["key"].as_str() {
        None => json!({ "insecure_skip_verify": tls["insecureSkipVerify"] }),
        Some(file) => json!({ "ca_file": secret.join(file), "server_name": tls["serverName"] }),
    };
    Ok(json!({
        "job_name": job(release, chart),
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "tls_config": tls,
        "authorization": { "type": "Bearer", "credentials": token },
        "static_configs": [{ "targets": [address], "labels": { "namespace": namespace, "instance": release } }],
    }))
}

/// Prometheus scrapes both programs and a kube-controller-manager that runs one controller of `windlass`. Each panel
/// has data while `load` runs, and each alert is evaluated. With `WRITE_DOCS` the data become a picture. `token` can
/// read the metrics of both programs. Prometheus verifies the certificate of the operator; the folder `secret` contains
/// the authority.
pub(crate) async fn panels_and_alerts_have_data(
    (plane, helm): (&ControlPlane, &Helm),
    windlass: &ManagerProcess,
    (operator, secret): (&ManagerProcess, &Path),
    token: &str,
    load: impl AsyncFn(usize) -> Result<()>,
) -> Result<()> {
    let port = Port::reserve()?;
    let upstream = format!("127.0.0.1:{}", port.number());
    let arguments =
        [&*format!("--secure-port={}", port.number()), "--authorization-always-allow-paths=/metrics"];
    let controllers = ["ttl-controller", "ttl-after-finished-controller"];
    let _upstream = plane.start_upstream_controllers(&controllers, &arguments)?;
    let release = (RELEASE, Chart::Windlass, NAMESPACE);
    let scrapes = [
        scrape_of_monitor(helm, release, "{}", (&windlass.admin_address(), token), secret).await?,
        scrape_of_monitor(helm, OPERATOR, SERVING, (&operator.admin_address(), token), secret).await?,
        json!({
            "job_name": "kube-controller-manager",
            "scheme": "https",
            "tls_config": { "insecure_skip_verify": true },
            "static_configs": [{ "targets": [upstream], "labels": { "namespace": "kube-system" } }],
        }),
    ];
    let prometheus = Prometheus::start(plane, &scrapes).await?;
    let round = std::cell::Cell::new(0);
    let checked = eventually("each panel and each alert has data", async || {
        round.set(round.get() + 1);
        load(round.get()).await?;
        prometheus.check_panels().await?;
        prometheus.check_alerts().await.map(Some)
    });
    if let Err(error) = checked.await {
        bail!("{error:#}\n{}", prometheus.log());
    }
    let writes = std::env::var_os("WRITE_DOCS").is_some();
    let started = Instant::now();
    // The curves of the picture cover the whole window.
    while writes && started.elapsed() < Duration::from_secs(picture::WINDOW.into()) {
        round.set(round.get() + 1);
        load(round.get()).await?;
    }
    let drawn = prometheus.picture().await?;
    check_picture(&drawn)?;
    if writes {
        std::fs::write(page(), drawn).context("docs/dashboard.svg")?;
    }
    Ok(())
}
