//! The alerts of the chart, evaluated by `promtool`, and the page that describes each of them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_deploy::{Chart, Helm, charts};

use crate::cases::{NAMESPACE, RELEASE, objects, only};

const VALUES: &str = "metrics: {prometheusRule: {runbookUrl: 'https://docs.example.com/alerts'}}";

/// Returns the alerts of the chart with these values, as Prometheus reads them.
async fn rules(chart: Chart, values: &str) -> Result<Value> {
    let helm = Helm::new(None).await?;
    let served = ["--api-versions", "monitoring.coreos.com/v1/PrometheusRule"];
    let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &served).await?;
    Ok(only(&objects(&render)?, "PrometheusRule")?["spec"].clone())
}

/// Returns the rules that have an alert, in order.
fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect()
}

async fn promtool(folder: &Path, arguments: &[&str]) -> Result<()> {
    let program = tokio::task::spawn_blocking(windlass_harness::promtool).await??;
    let mut command = tokio::process::Command::new(program);
    let output = command.args(arguments).current_dir(folder).kill_on_drop(true).output().await?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "promtool {arguments:?}: {text}");
    Ok(())
}

#[tokio::test]
async fn alerts_fire_while_their_condition_lasts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("rules.yaml"), rules(Chart::Windlass, VALUES).await?.to_string())?;
    let tests = charts::root().join("tests/deploy/alerts.yaml");
    std::fs::copy(&tests, folder.path().join("alerts.yaml")).context("copying the tests")?;
    promtool(folder.path(), &["check", "rules", "rules.yaml"]).await?;
    promtool(folder.path(), &["test", "rules", "alerts.yaml"]).await
}

#[tokio::test]
async fn each_alert_has_a_test_and_a_section_in_the_runbook() -> Result<()> {
    let page = std::fs::read_to_string(charts::root().join("docs/alerts.md"))?;
    let tests = std::fs::read_to_string(charts::root().join("tests/deploy/alerts.yaml"))?;
    for (chart, values) in [(Chart::Windlass, VALUES), (Chart::Operator, VALUES)] {
        let rules = rules(chart, values).await?;
        let alerts = alerts(&rules);
        ensure!(alerts.len() == 5, "{alerts:?}");
        for alert in alerts {
            let name = alert["alert"].as_str().context("an alert has a name")?;
            ensure!(page.contains(&format!("\n## {name}\n")), "docs/alerts.md has no section {name}");
            ensure!(tests.contains(&format!("alertname: {name}\n")), "alerts.yaml does not let {name} fire");
            let expected = format!("https://docs.example.com/alerts#{}", name.to_lowercase());
            ensure!(alert["annotations"]["runbook_url"] == expected, "{alert}");
        }
    }
    let without = rules(Chart::Windlass, "{}").await?;
    ensure!(alerts(&without).iter().all(|alert| alert["annotations"]["runbook_url"].is_null()), "{without}");
    Ok(())
}
