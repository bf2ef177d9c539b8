//! The alerts of the charts, evaluated by `promtool`, and the page that describes each of them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_deploy::{Chart, Helm, charts};

use crate::cases::{NAMESPACE, RELEASE, objects, only};
use crate::monitoring::metrics;

pub(crate) const VALUES: &str = "metrics: {prometheusRule: {runbookUrl: 'https://docs.example.com/alerts'}}";

/// Values of a release whose replicas share four shards.
pub(crate) const SHARDS: &str = "leaderElection: {mode: shards, shards: 4, leaseNamespace: windlass-system}\n\
                                 metrics: {prometheusRule: {runbookUrl: 'https://docs.example.com/alerts'}}";

/// The prefix of the names of all alerts of shards.
const OF_SHARDS: &str = "WindlassShard";

/// Returns the alerts of the chart with these values, as Prometheus reads them.
pub(crate) async fn rules(chart: Chart, values: &str) -> Result<Value> {
    let helm = Helm::new(None).await?;
    let served = ["--api-versions", "monitoring.coreos.com/v1/PrometheusRule"];
    let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &served).await?;
    Ok(only(&objects(&render)?, "PrometheusRule")?["spec"].clone())
}

/// Returns the alerts of shards. All others are those of a release with one leader.
pub(crate) async fn rules_of_shards() -> Result<Value> {
    let mut rules = rules(Chart::Windlass, SHARDS).await?;
    let group = &mut rules["groups"][0];
    group["name"] = "shards".into();
    let alerts = group["rules"].as_array_mut().context("no rules")?;
    alerts.retain(|alert| alert["alert"].as_str().is_some_and(|name| name.starts_with(OF_SHARDS)));
    Ok(rules)
}

/// Returns the rules that have an alert, in order.
pub(crate) fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect()
}

async fn promtool(folder: &Path, arguments: &[&str]) -> Result<()> {
    let program = tokio::task::spawn_blocking(windlass_harness::prometheus).await??.promtool;
    let mut command = tokio::process::Command::new(program);
    let output = command.args(arguments).current_dir(folder).kill_on_drop(true).output().await?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "promtool {arguments:?}: {text}");
    Ok(())
}

#[tokio::test]
async fn alerts_fire_while_their_condition_lasts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, rules: Value| std::fs::write(folder.path().join(name), rules.to_string());
    write("rules.yaml", rules(Chart::Windlass, VALUES).await?)?;
    write("shards.yaml", rules_of_shards().await?)?;
    let tests = charts::root().join("tests/deploy/alerts.yaml");
    std::fs::copy(&tests, folder.path().join("alerts.yaml")).context("copying the tests")?;
    promtool(folder.path(), &["check", "rules", "rules.yaml", "shards.yaml"]).await?;
    promtool(folder.path(), &["test", "rules", "alerts.yaml"]).await
}

/// Returns the names of alerts that a unit test expects to fire, or not to fire.
fn tested(tests: &Value, fires: bool) -> BTreeSet<String> {
    let tests = tests["tests"].as_array().into_iter().flatten();
    let cases = tests.flat_map(|test| test["alert_rule_test"].as_array().into_iter().flatten());
    let cases = cases.filter(|case| case["exp_alerts"].is_array() == fires);
    cases.filter_map(|case| case["alertname"].as_str()).map(str::to_owned).collect()
}

#[tokio::test]
async fn each_alert_has_two_tests_and_a_section_in_the_runbook() -> Result<()> {
    let page = std::fs::read_to_string(charts::root().join("docs/alerts.md"))?;
    let tests = std::fs::read_to_string(charts::root().join("tests/deploy/alerts.yaml"))?;
    let tests: Value = serde_saphyr::from_str(&tests)?;
    let mut names = BTreeSet::new();
    for (chart, values) in [(Chart::Windlass, VALUES), (Chart::Windlass, SHARDS), (Chart::Operator, VALUES)] {
        for alert in alerts(&rules(chart, values).await?) {
            let name = alert["alert"].as_str().context("an alert has a name")?;
            let expected = format!("https://docs.example.com/alerts#{}", name.to_lowercase());
            ensure!(alert["annotations"]["runbook_url"] == expected, "{alert}");
            names.insert(name.to_owned());
        }
    }
    let sections = page.lines().filter_map(|line| line.strip_prefix("## Windlass"));
    let sections: BTreeSet<String> = sections.map(|name| format!("Windlass{name}")).collect();
    ensure!(sections == names, "docs/alerts.md has {sections:?}, the charts have {names:?}");
    for fires in [true, false] {
        let tested = tested(&tests, fires);
        ensure!(tested == names, "tests with fires={fires}: {tested:?}, the charts have {names:?}");
    }
    let without = rules(Chart::Windlass, "{}").await?;
    ensure!(alerts(&without).iter().all(|alert| alert["annotations"]["runbook_url"].is_null()), "{without}");
    Ok(())
}

#[tokio::test]
async fn page_of_metrics_lists_each_alert_with_its_metrics_and_duration() -> Result<()> {
    let page = std::fs::read_to_string(charts::root().join("docs/metrics.md"))?;
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `Windlass")).collect();
    let mut names = BTreeSet::new();
    for values in [VALUES, SHARDS] {
        for alert in alerts(&rules(Chart::Windlass, values).await?) {
            let text = |field: &str| alert[field].as_str().with_context(|| format!("no {field}: {alert}"));
            let name = text("alert")?;
            let row = rows.iter().find(|row| row.starts_with(&format!("| `{name}` |")));
            let row = row.with_context(|| format!("docs/metrics.md has no row {name}"))?;
            let missing: Vec<_> =
                metrics(text("expr")?).into_iter().filter(|name| !row.contains(name)).collect();
            ensure!(missing.is_empty(), "{missing:?} is not in {row}");
            ensure!(row.ends_with(&format!("| {} |", text("for")?.replace('m', " min"))), "{row}: {alert}");
            names.insert(name.to_owned());
        }
    }
    ensure!(rows.len() == names.len(), "docs/metrics.md has {rows:?}, the chart has {names:?}");
    Ok(())
}

#[tokio::test]
async fn only_releases_next_to_kube_controller_manager_have_its_alert() -> Result<()> {
    let other_job = "metrics: {prometheusRule: {kubeControllerManagerJob: kcm}}";
    let no_job = "metrics: {prometheusRule: {kubeControllerManagerJob: ''}}";
    let other_cluster = "kubeconfig: {secretName: hosted}";
    for (chart, values, expected) in [
        (Chart::Windlass, "{}", Some("job=\"kube-controller-manager\"")),
        (Chart::Windlass, other_job, Some("job=\"kcm\"")),
        (Chart::Windlass, no_job, None),
        (Chart::Windlass, other_cluster, None),
        (Chart::Operator, "{}", None),
    ] {
        let rules = rules(chart, values).await?;
        let found = alerts(&rules).into_iter().find(|alert| alert["alert"] == "WindlassTwoManagers");
        let expression = found.and_then(|alert| alert["expr"].as_str());
        ensure!(expression.is_some() == expected.is_some(), "{values}: {expression:?}");
        ensure!(expression.is_none_or(|text| text.contains(expected.unwrap_or_default())), "{expression:?}");
    }
    Ok(())
}
