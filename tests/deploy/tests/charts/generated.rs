//! Generated files equal the committed files, and the chart has a value for every setting of the program.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_deploy::charts::{self, Program};
use windlass_deploy::schema::Schema;
use windlass_deploy::{Chart, Helm};
use windlass_harness::ManagerProcess;

use crate::cases::{CASES, NAMESPACE, OPERATOR_EXTRAS, RELEASE, objects, only};

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

/// Returns the aliases in a help text, each with its flag.
fn aliases(help: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = help.split_whitespace().collect();
    let is_flag = |(index, word): &(usize, &&str)| {
        word.starts_with("--") && words.get(index + 1).is_some_and(|next| next.starts_with(['<', '[']))
    };
    let mut found = Vec::new();
    for (start, _) in words.iter().enumerate().filter(|(_, word)| word.starts_with("[alias")) {
        let flag = words.iter().enumerate().take(start).rfind(is_flag);
        let flag = flag.map_or("", |(_, flag)| flag);
        for word in &words[start + 1..] {
            found.push((flag.to_owned(), word.trim_end_matches([',', ']']).to_owned()));
            if word.ends_with(']') {
                break;
            }
        }
    }
    found
}

/// The other names of a flag that would bypass the roles are rejected like the flag.
#[tokio::test]
async fn aliases_of_rejected_arguments_are_rejected() -> Result<()> {
    let helm = Helm::new(None).await?;
    let help = String::from_utf8(ManagerProcess::command(&["--help"]).await?.stdout)?;
    let advice = async |flag: &str| {
        let values = format!("extraArgs: ['{flag}=x']");
        let release = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), &values, &[]).await;
        let message = release.err().map(|error| error.to_string());
        message.and_then(|message| message.split_once(" bypasses ").map(|(_, advice)| advice.to_owned()))
    };
    let mut rejected = 0;
    for (flag, alias) in aliases(&help) {
        let (expected, of_alias) = (advice(&flag).await, advice(&alias).await);
        ensure!(of_alias == expected, "{flag}: {expected:?}, {alias}: {of_alias:?}");
        rejected += usize::from(expected.is_some());
    }
    ensure!(rejected > 0, "no rejected flag has an alias: {help}");
    Ok(())
}

/// The roles of the chart follow the mode of the election, so no other value can switch on the coordinated election.
#[tokio::test]
async fn mode_decides_the_election_also_with_all_gates_of_a_stage() -> Result<()> {
    let helm = Helm::new(None).await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config.yaml");
    for mode in ["standby", "shards", "coordinated"] {
        for (gate, absent) in
            [("AllAlpha", "TaintTolerationComparisonOperators"), ("AllBeta", "MaxUnavailableStatefulSet")]
        {
            let gates = format!("{{{gate}: true, {absent}: false}}");
            let values = format!(
                "leaderElection: {{mode: {mode}, leaseNamespace: blue}}\nconfig: {{featureGates: {gates}}}"
            );
            let release = (RELEASE, Chart::Windlass, NAMESPACE);
            let render = objects(&helm.release("template", release, &values, &[]).await?)?;
            let config = &only(&render, "ConfigMap")?["data"]["config.yaml"];
            let config = config.as_str().context("no config.yaml")?;
            ensure!(config.contains(&format!("{gate}: true")), "{config}");
            std::fs::write(&path, config)?;
            let arguments = ["manifests", "rbac", &format!("--config={}", path.display())];
            let output = ManagerProcess::command(&arguments).await?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{values}: {errors}");
            let is_coordinated = String::from_utf8(output.stdout)?.contains("leasecandidates");
            ensure!(is_coordinated == (mode == "coordinated"), "{values}: the program elects otherwise");
        }
    }
    Ok(())
}

/// A program that reads its certificate from files needs no permission for certificates.
#[tokio::test]
async fn roles_of_an_operator_with_certificates_in_files_match_the_program() -> Result<()> {
    let helm = Helm::new(None).await?;
    let render = helm.release("template", ("x", Chart::Operator, NAMESPACE), OPERATOR_EXTRAS, &[]).await?;
    // The chart adds these roles for users.
    let of_users = ["-edit", "-view", "-metrics-reader"];
    let roles = |objects: Vec<Value>, prefix: &str| -> BTreeSet<String> {
        let roles =
            objects.iter().filter(|object| object["roleRef"].is_object() || object["rules"].is_array());
        let names = roles.filter_map(|it| Some((it["kind"].as_str()?, it["metadata"]["name"].as_str()?)));
        let names = names.filter(|(_, name)| !of_users.iter().any(|suffix| name.ends_with(suffix)));
        names.map(|(kind, name)| format!("{kind} {}", name.trim_start_matches(prefix))).collect()
    };
    let arguments = [
        "manifests",
        "rbac",
        "--per-controller",
        "--webhook-cert-file=/etc/webhook/tls.crt",
        "--webhook-key-file=/etc/webhook/tls.key",
    ];
    let printed = ManagerProcess::example_prints("site-operator", &arguments).await?;
    let (installed, printed) = (roles(objects(&render)?, "x-"), roles(objects(&printed)?, ""));
    ensure!(installed == printed && !printed.is_empty(), "{installed:?} {printed:?}");
    Ok(())
}

/// Returns the ConfigMap of the chart among others.
fn named_config(render: &[Value]) -> Result<&Value> {
    render.iter().find(|object| object["data"]["config.yaml"].is_string()).context("no configuration")
}

/// Returns the paths of all values in the schema of a chart.
fn paths(folder: &str) -> Result<Vec<String>> {
    let schema = std::fs::read_to_string(charts::root().join(folder).join("values.schema.json"))?;
    let schema: Schema = serde_json::from_str(&schema)?;
    Ok(schema.paths())
}

#[test]
fn matrix_sets_every_value() -> Result<()> {
    let (mut of_windlass, mut of_operators) = (BTreeSet::new(), BTreeSet::new());
    for case in CASES {
        let set = if case.chart == Chart::Windlass { &mut of_windlass } else { &mut of_operators };
        set.extend(leaves(&serde_saphyr::from_str(case.values)?, ""));
    }
    // Both are set by the tests on the control plane, where Prometheus' kinds exist.
    let elsewhere =
        |path: &str| path.starts_with("metrics.serviceMonitor") || path.starts_with("metrics.prometheusRule");
    // The controllers have equal values.
    let is_controller = |path: &str| path.starts_with("controllers.");
    let is_in = |set: &BTreeSet<String>, path: &str| {
        set.iter().any(|leaf| leaf == path || leaf.starts_with(&format!("{path}.")))
    };
    let values = paths("deploy/charts/windlass")?;
    // Both charts use the same templates for the values that they share.
    let mut own = paths("templates/operator/chart")?;
    own.retain(|path| !values.contains(path));
    let missing = values.iter().filter(|path| !is_in(&of_windlass, path));
    let missing = missing.chain(own.iter().filter(|path| !is_in(&of_operators, path)));
    let missing: Vec<_> = missing.filter(|path| !elsewhere(path) && !is_controller(path)).collect();
    ensure!(missing.is_empty(), "no case of the matrix sets {missing:?}");
    Ok(())
}
