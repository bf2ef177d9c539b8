//! Generated files equal the committed files, and the chart has a value for every setting of the program.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_deploy::charts::{self, Program};
use windlass_deploy::schema::Schema;
use windlass_deploy::{Chart, Helm};
use windlass_harness::ManagerProcess;

use crate::cases::{CASES, NAMESPACE, RELEASE, objects, only};

/// Settings without a value: the chart chooses them, or they contradict a deployment in a cluster.
const WITHOUT_VALUE: &[&str] = &[
    "authorization.alwaysAllowPaths",
    "generic.clientConnection.master",
    "generic.leaderElection.resourceLock",
    "serving.certDir",
    "serving.disableHTTP2",
    "serving.plainHTTP",
];

#[tokio::test(flavor = "multi_thread")]
async fn generated_files_match_the_programs() -> Result<()> {
    let print = |program: Program, arguments: &[&str]| -> Result<String> {
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                match program {
                    Program::Windlass => {
                        let output = ManagerProcess::command(arguments).await?;
                        let errors = String::from_utf8_lossy(&output.stderr);
                        ensure!(output.status.success(), "windlass {arguments:?}: {errors}");
                        Ok(String::from_utf8(output.stdout)?)
                    }
                    Program::SiteOperator => ManagerProcess::example_prints("site-operator", arguments).await,
                }
            })
        })
    };
    for file in charts::generate(&print)? {
        let path = charts::root().join(&file.path);
        let committed = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(committed == file.text, "{} is outdated: run `cargo xtask chart`", file.path.display());
    }
    Ok(())
}

/// Returns the paths of all leaves, with dots.
fn leaves(value: &Value, above: &str) -> BTreeSet<String> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let below = |(name, value): (&String, &Value)| leaves(value, &format!("{above}{name}."));
            fields.iter().flat_map(below).collect()
        }
        _ => BTreeSet::from([above.trim_end_matches('.').to_owned()]),
    }
}

#[tokio::test]
async fn values_set_every_setting_and_the_program_accepts_them() -> Result<()> {
    let helm = Helm::new(None).await?;
    let folder = tempfile::tempdir()?;
    let mut configured = BTreeSet::new();
    for case in CASES.iter().filter(|case| case.chart == Chart::Windlass) {
        let release = (RELEASE, case.chart, NAMESPACE);
        let render = objects(&helm.release("template", release, case.values, &[]).await?)?;
        let config = &only(&render, "ConfigMap").or_else(|_| named_config(&render))?["data"]["config.yaml"];
        let config = config.as_str().context("no config.yaml")?;
        configured.extend(leaves(&serde_saphyr::from_str(config)?, ""));
        let path = folder.path().join(case.name);
        std::fs::write(&path, config)?;
        let argument = format!("--config={}", path.display());
        let output = ManagerProcess::command(&[&argument, "--write-config-to=-"]).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {errors}{config}", case.name);
    }
    let all = ManagerProcess::command(&["--write-config-to=-"]).await?;
    let all = leaves(&serde_saphyr::from_str(std::str::from_utf8(&all.stdout)?)?, "");
    let known = |path: &String| configured.contains(path) || WITHOUT_VALUE.contains(&path.as_str());
    let covers = |path: &String| configured.iter().any(|leaf| leaf.starts_with(&format!("{path}.")));
    let missing: Vec<_> = all.iter().filter(|path| !known(path) && !covers(path)).collect();
    ensure!(missing.is_empty(), "no case of the matrix sets {missing:?}");
    Ok(())
}

/// Returns the ConfigMap of the chart among others.
fn named_config(render: &[Value]) -> Result<&Value> {
    render.iter().find(|object| object["data"]["config.yaml"].is_string()).context("no configuration")
}

#[test]
fn matrix_sets_every_value() -> Result<()> {
    let schema = std::fs::read_to_string(charts::root().join("deploy/charts/windlass/values.schema.json"))?;
    let schema: Schema = serde_json::from_str(&schema)?;
    let mut set = BTreeSet::new();
    for case in CASES.iter().filter(|case| case.chart == Chart::Windlass) {
        set.extend(leaves(&serde_saphyr::from_str(case.values)?, ""));
    }
    // Both are set by the tests on the control plane, where Prometheus' kinds exist.
    let elsewhere =
        |path: &str| path.starts_with("metrics.serviceMonitor") || path.starts_with("metrics.prometheusRule");
    // The controllers have equal values.
    let is_controller = |path: &str| path.starts_with("controllers.");
    let is_set = |path: &str| set.iter().any(|leaf| leaf == path || leaf.starts_with(&format!("{path}.")));
    let missing: Vec<_> = schema.paths();
    let missing: Vec<_> =
        missing.iter().filter(|path| !is_set(path) && !elsewhere(path) && !is_controller(path)).collect();
    ensure!(missing.is_empty(), "no case of the matrix sets {missing:?}");
    Ok(())
}
