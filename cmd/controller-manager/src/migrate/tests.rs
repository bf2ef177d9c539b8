//! Reports for clusters in different states.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use kube::api::ObjectMeta;
use windlass::manager::Manifests;

use super::cluster::upstream_pod;
use super::flags::Flags;
use super::report::{Check, Expected, Holder, MissingRight, UpstreamPod};
use crate::settings::built_in;

fn expected(controllers: &[&'static str]) -> Expected {
    let settings = [("concurrent-deployment-syncs", "5"), ("endpoint-updates-batch-period", "0s")];
    Expected {
        known: built_in(),
        controllers: controllers.to_vec(),
        lease: Some(("kube-system".to_owned(), "windlass".to_owned())),
        manifests: Manifests::default(),
        account: "windlass".to_owned(),
        user: "system:serviceaccount:kube-system:windlass".to_owned(),
        has_no_hidden_upstream: false,
        stated: BTreeSet::new(),
        settings: settings.map(|(flag, value)| (flag.to_owned(), value.to_owned())).into(),
    }
}

fn check(upstream: &[(&str, &[&str])]) -> Check {
    let pod = |(name, words): &(&str, &[&str])| UpstreamPod {
        name: (*name).to_owned(),
        node: Some("cp-1".to_owned()),
        hosts: vec!["10.0.0.1".to_owned(), "Master-1.example.com".to_owned()],
        flags: Some(Flags::parse(words.iter().copied())),
    };
    Check {
        version: "v1.36.3".to_owned(),
        upstream: upstream.iter().map(pod).collect(),
        upstream_lease: Some(Holder { identity: "cp-1_a".to_owned(), age: 1 }),
        own_lease: None,
        missing: Vec::new(),
        expected: expected(&["deployment-controller", "endpoints-controller"]),
    }
}

#[test]
fn default_flags_run_every_controller_and_the_report_disables_ours() {
    let check =
        check(&[("kcm-a", &["kube-controller-manager", "--controllers=*,bootstrapsigner,tokencleaner"])]);
    assert_eq!(check.remaining_steps(), 1);
    assert_eq!(
        check.to_string(),
        "API server: v1.36.3
kube-controller-manager: Pod kcm-a on cp-1
kube-controller-manager: led by cp-1_a, renewed 1 s ago

Controllers of windlass with these settings:
  deployment-controller: runs in kube-controller-manager
  endpoints-controller: runs in kube-controller-manager

Step: restart each kube-controller-manager with this flag, before windlass starts:
  kcm-a: --controllers=*,bootstrapsigner,tokencleaner,-deployment-controller,-endpoints-controller
"
    );
}

#[test]
fn wait_ends_when_every_pod_that_ran_a_controller_has_other_flags() {
    const OLD: &[&str] = &["--controllers=*"];
    const NEW: &[&str] = &["--controllers=*,-deployment,-endpoint"];
    let mut restarts = BTreeSet::new();
    let mut reason = |pods: &[(&str, &[&str])]| check(pods).reason_to_wait(&mut restarts);
    let runs = |name: &str| Some(format!("controllers of windlass run in {name}"));
    let is_absent = |name: &str| {
        Some(format!("{name} must return with other flags; if its node was removed, run the check again"))
    };
    assert_eq!(reason(&[("kcm-a", OLD), ("kcm-b", OLD)]), runs("kcm-a, kcm-b"));
    assert_eq!(reason(&[("kcm-b", OLD)]), runs("kcm-b"));
    // A Pod that is deleted, or whose manifest was moved, can return with its old flags.
    assert_eq!(reason(&[("kcm-b", NEW)]), is_absent("kcm-a"));
    assert_eq!(reason(&[("kcm-a", OLD), ("kcm-b", NEW)]), runs("kcm-a"));
    assert_eq!(reason(&[]), is_absent("kcm-a"));
    assert_eq!(reason(&[("kcm-a", NEW), ("kcm-b", NEW)]), None);
}

#[test]
fn only_restarts_are_worth_a_wait() {
    let old: &[(&str, &[&str])] = &[("kcm-a", &["--controllers=*"])];
    assert!(!check(old).needs_more_than_restarts());
    assert!(check(&[]).needs_more_than_restarts(), "a hidden process needs a statement");
    let mut denied = check(old);
    denied.missing.push(MissingRight {
        account: None,
        resource: "pods".to_owned(),
        name: None,
        namespace: None,
        verb: "list".to_owned(),
    });
    assert!(denied.needs_more_than_restarts());
    let mut hidden = check(&[old, old].concat());
    hidden.upstream[1].flags = None;
    assert!(hidden.needs_more_than_restarts());
}

#[test]
fn disabled_controllers_are_free_by_name_and_alias() {
    let check =
        check(&[("kcm-a", &["--controllers=-deployment,*", "--controllers", "-endpoints-controller"])]);
    assert_eq!(check.remaining_steps(), 0);
    let report = check.to_string();
    assert!(
        report.contains("deployment-controller: off in kube-controller-manager")
            && report.ends_with("Windlass can start.\n"),
        "{report}"
    );
}

#[test]
fn replica_with_old_flags_is_named() {
    let check = check(&[
        ("kcm-a", &["--controllers=*,-deployment,-endpoint"]),
        ("kcm-b", &["--controllers=deployment,job"]),
    ]);
    let report = check.to_string();
    assert!(report.contains("  deployment-controller: runs in kcm-b only\n"), "{report}");
    assert!(report.contains("  endpoints-controller: off in kube-controller-manager\n"), "{report}");
    // Without `*` an entry is removed instead of disabled.
    assert!(report.contains("  kcm-b: --controllers=job\n") && !report.contains("kcm-a: --"), "{report}");
}

#[test]
fn cluster_without_visible_kube_controller_manager_needs_a_statement() {
    let check = check(&[]);
    assert_eq!(check.remaining_steps(), 1);
    let report = check.to_string();
    assert!(report.contains("endpoints-controller: unknown"), "{report}");
    assert!(report.contains("--assert-no-other-kube-controller-manager"), "{report}");
    let expected = Expected { has_no_hidden_upstream: true, ..check.expected };
    let stated = Check { expected, upstream_lease: None, ..check };
    assert_eq!(stated.remaining_steps(), 0);
    assert!(stated.to_string().contains("kube-controller-manager: no process holds its Lease"));
}

#[test]
fn quoted_entries_are_read_and_unreadable_entries_are_a_step() {
    let quoted = check(&[("kcm-a", &[r#"--controllers="*","-deployment""#])]);
    let report = quoted.to_string();
    assert!(report.contains("deployment-controller: off in kube-controller-manager"), "{report}");
    assert!(report.contains("endpoints-controller: runs in kube-controller-manager"), "{report}");
    let variable = check(&[("kcm-a", &["--controllers=$(CONTROLLERS)"])]);
    assert_eq!(variable.remaining_steps(), 1);
    let report = variable.to_string();
    assert!(
        report.contains(
            "Pod kcm-a are unknown: its --controllers has entries that name no controller: $(CONTROLLERS)"
        ),
        "{report}"
    );
}

/// Returns the flags of a Pod of kube-system, if it counts as a kube-controller-manager.
fn pod(labels: &[(&str, &str)], container: &str, command: &[&str], args: &[&str]) -> Option<Option<Flags>> {
    let words = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        (!words.is_empty()).then_some(words)
    };
    let container = Container {
        name: container.to_owned(),
        command: words(command),
        args: words(args),
        ..Container::default()
    };
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    upstream_pod(Pod { metadata, spec: Some(spec), ..Pod::default() }).map(|pod| pod.flags)
}

#[test]
fn kube_controller_manager_is_found_by_label_container_and_command() {
    let program = "/usr/local/bin/kube-controller-manager";
    let flags = || Some(Some(Flags::parse(["--controllers=job"])));
    assert_eq!(pod(&[], "main", &[program, "--controllers=job"], &[]), flags());
    assert_eq!(pod(&[], "main", &[program], &["--controllers=job"]), flags());
    let shell = format!("exec {program} '--controllers=job' >/log");
    assert_eq!(pod(&[], "main", &["/bin/sh", "-c", &shell], &[]), flags());
    assert_eq!(pod(&[], "kube-controller-manager", &[], &["--controllers=job"]), flags());
    assert_eq!(pod(&[], "kube-controller-manager", &["/start.sh"], &["--controllers=job"]), Some(None));
    assert_eq!(pod(&[("k8s-app", "kube-controller-manager")], "main", &["/start.sh"], &[]), Some(None));
    let dns = ["/coredns", "--conf=/etc/kube-controller-manager"];
    assert_eq!(pod(&[("k8s-app", "dns")], "dns", &dns, &[]), None);
}

#[test]
fn pod_that_has_ended_runs_nothing() {
    let metadata = ObjectMeta {
        labels: Some([("component".to_owned(), "kube-controller-manager".to_owned())].into()),
        ..ObjectMeta::default()
    };
    for (phase, counts) in [("Running", true), ("Pending", true), ("Succeeded", false), ("Failed", false)] {
        let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
        let pod = Pod { metadata: metadata.clone(), status: Some(status), spec: None };
        assert_eq!(upstream_pod(pod).is_some(), counts, "{phase}");
    }
}

#[test]
fn pod_without_visible_flags_is_a_step_until_a_statement() {
    let mut check = check(&[("kcm-a", &[])]);
    check.upstream[0].flags = None;
    assert_eq!(check.remaining_steps(), 1);
    let report = check.to_string();
    assert!(report.contains("deployment-controller: unknown in kube-controller-manager\n"), "{report}");
    assert!(report.contains("Pod kcm-a are unknown: the Pod does not show its flags"), "{report}");
    assert!(report.contains("--assert-disabled-in=kcm-a"), "{report}");
    check.expected.stated = ["kcm-a".to_owned()].into();
    assert_eq!((check.remaining_steps(), check.stray_statement()), (0, None));
    check.expected.stated.insert("kcm-b".to_owned());
    assert_eq!(check.stray_statement(), Some("kcm-b"));
}

/// The flags that a Pod shows are stronger than a statement.
#[test]
fn statement_does_not_hide_a_controller_that_runs() {
    for flag in ["--controllers=*", "--controllers=*,-removed-in-1.36"] {
        let mut check = check(&[("kcm-a", &[flag])]);
        check.expected.stated = ["kcm-a".to_owned()].into();
        assert_eq!(check.remaining_steps(), 1, "{flag}");
        assert!(check.to_string().contains("  kcm-a: --controllers=*"), "{check}");
    }
}

#[test]
fn two_processes_in_one_pod_have_unknown_flags() {
    let container = |flag: &str| Container {
        name: "kube-controller-manager".to_owned(),
        args: Some(vec![flag.to_owned()]),
        ..Container::default()
    };
    let containers = vec![container("--controllers=*,-ttl"), container("--controllers=ttl")];
    let spec = PodSpec { containers, ..PodSpec::default() };
    let found = upstream_pod(Pod { spec: Some(spec), ..Pod::default() }).expect("counts");
    assert_eq!(found.flags, None);
}

#[test]
fn leader_outside_of_the_visible_pods_is_a_step() {
    let disabled: &[(&str, &[&str])] = &[("kcm-a", &["--controllers=*,-deployment,-endpoint"])];
    let led_by = |identity: &str| Check {
        upstream_lease: Some(Holder { identity: identity.to_owned(), age: 1 }),
        ..check(disabled)
    };
    for visible in ["cp-1_x", "CP-1.example.com_x", "kcm-a_x", "master-1_x", "10.0.0.1_x", "cp-1"] {
        assert_eq!(led_by(visible).remaining_steps(), 0, "{visible}");
    }
    for hidden in ["cp-2_x", "10.0.0.2_x", "10_x", "master-1.other.org_x", "cp-1_x_y"] {
        assert_eq!(led_by(hidden).remaining_steps(), 1, "{hidden}");
    }
    let report = led_by("cp-2_x").to_string();
    assert!(report.contains("the leader cp-2_x is in none of these Pods"), "{report}");
    assert!(report.contains("deployment-controller: unknown in kube-controller-manager\n"), "{report}");
}

#[test]
fn controller_that_no_process_will_run_is_a_warning() {
    let mut check = check(&[("kcm-a", &["--controllers=*,-deployment,-endpoint,-ttl,-podgc"])]);
    let report = check.to_string();
    let warning = "\nWarning: neither kube-controller-manager nor windlass will run: ttl-controller, \
                   pod-garbage-collector-controller\n\nWindlass can start.\n";
    assert!(report.ends_with(warning), "{report}");
    check.expected.controllers.extend(["ttl-controller", "pod-garbage-collector-controller"]);
    assert!(!check.to_string().contains("Warning"));
}

#[test]
fn root_ca_of_kube_controller_manager_is_a_step() {
    let words = ["--controllers=*,-root-ca-cert-publisher", "--root-ca-file=/etc/kubernetes/pki/ca.crt"];
    let mut check = check(&[("kcm-a", &words)]);
    check.expected.controllers = vec!["root-ca-certificate-publisher-controller"];
    assert_eq!(check.remaining_steps(), 1);
    let report = check.to_string();
    assert!(
        report.contains("set --root-ca-file to the certificates of /etc/kubernetes/pki/ca.crt"),
        "{report}"
    );
    // The file can have another path in another Pod.
    check.expected.settings.insert("root-ca-file".to_owned(), "/ca.crt".to_owned());
    assert_eq!(check.remaining_steps(), 0);
    check.expected.settings.clear();
    check.expected.controllers = vec!["ttl-controller"];
    assert!(!check.to_string().contains("set --root-ca-file"));
}

#[test]
fn settings_with_other_values_are_listed_as_flags() {
    let words = [
        "--controllers=*,-deployment,-endpoint",
        "--concurrent_deployment_syncs=10",
        "--endpoint-updates-batch-period=0",
        "--bind-address=127.0.0.1",
        "--leader-elect",
    ];
    let report = check(&[("kcm-a", &words)]).to_string();
    let listed = report.split("keep their effect:\n").nth(1).expect("a list");
    assert_eq!(listed, "  --concurrent-deployment-syncs=10\n\nWindlass can start.\n");
}

#[test]
fn missing_rights_are_a_step() {
    let right = |account: Option<&str>, name: Option<&str>, namespace: Option<&str>| MissingRight {
        account: account.map(str::to_owned),
        resource: "pods/status".to_owned(),
        name: name.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        verb: "update".to_owned(),
    };
    let missing = vec![
        right(None, None, None),
        right(Some("kube-system:deployment-controller"), Some("a"), Some("shop")),
    ];
    let check = Check { missing, ..check(&[("kcm-a", &["--controllers=-deployment,-endpoint,*"])]) };
    assert_eq!(check.remaining_steps(), 1);
    let report = check.to_string();
    assert!(report.contains("\n  update pods/status\n"), "{report}");
    let of_account =
        "\n  ServiceAccount kube-system:deployment-controller: update pods/status a in namespace shop\n";
    assert!(report.contains(of_account), "{report}");
}
