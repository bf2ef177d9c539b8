//! A session with an unmodified kubectl: rollouts of each kind of workload.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use windlass_harness::{Assets, Binary};

/// The manifest of a workload; `kubectl create` creates only Deployments.
const MANIFEST: &str = "apiVersion: apps/v1
kind: KIND
metadata: { name: shop, namespace: default }
spec:
  selector: { matchLabels: { app: KIND } }
  template:
    metadata: { labels: { app: KIND } }
    spec: { containers: [{ name: main, image: 'example/shop:1' }] }
";

/// kubectl with the kubeconfig of a demo, and without settings and caches of the user.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        let program = Assets::ensure().expect("the control plane is built").path(Binary::Kubectl);
        let home = tempfile::tempdir().expect("a folder");
        Self { program, kubeconfig: kubeconfig.into(), home }
    }

    /// Returns the standard output, or the error output if the command fails.
    fn run(&self, command: &str) -> Result<String, String> {
        let mut kubectl = Command::new(&self.program);
        kubectl.env("HOME", self.home.path()).stdin(Stdio::null());
        kubectl
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--request-timeout=60s")
            .args(command.split(' '));
        let output = kubectl.output().expect("kubectl starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8").trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn prints(&self, command: &str, expected: &str) {
        let printed = self.run(command).unwrap_or_else(|error| panic!("kubectl {command}: {error}"));
        assert!(printed.contains(expected), "kubectl {command}: {printed:?} lacks {expected:?}");
    }

    /// Rolls a workload out, restarts it and returns to the first revision.
    pub(crate) fn roll_out(&self, kind: &str) {
        let resource = kind.to_lowercase();
        let file = self.home.path().join("workload.yaml");
        std::fs::write(&file, MANIFEST.replace("KIND", kind)).expect("it is writable");
        let shop = format!("{resource}/shop");
        let revisions = |expected: [u32; 3]| {
            let history = self.run(&format!("rollout history {shop}")).expect("it has a history");
            let numbers = history.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
            assert_eq!(numbers.collect::<Vec<u32>>(), expected, "{history}");
        };
        let changes_to = |command: &str, expected: &str, image: &str| {
            self.prints(command, expected);
            self.wait_for_rollout(&shop);
            self.prints(
                &format!("get {shop} -o jsonpath={{.spec.template.spec.containers[0].image}}"),
                image,
            );
        };
        changes_to(&format!("apply -f {}", file.display()), "created", "example/shop:1");
        changes_to(&format!("set image {shop} main=example/shop:2"), "image updated", "example/shop:2");
        changes_to(&format!("rollout restart {shop}"), "restarted", "example/shop:2");
        revisions([1, 2, 3]);
        changes_to(&format!("rollout undo {shop} --to-revision=1"), "rolled back", "example/shop:1");
        revisions([2, 3, 4]);
        if kind != "DaemonSet" {
            self.prints(&format!("scale {shop} --replicas=3"), "scaled");
            self.wait_for_rollout(&shop);
            self.prints(&format!("get {shop} -o jsonpath={{.status.readyReplicas}}"), "3");
        }
        self.prints(&format!("delete {shop} --timeout=60s"), "deleted");
        let absent = self.run(&format!("get {shop}")).expect_err("it is deleted");
        assert!(absent.contains("NotFound"), "{absent}");
    }

    fn wait_for_rollout(&self, workload: &str) {
        self.run(&format!("rollout status {workload} --timeout=60s")).expect("the rollout ends");
    }

    /// Requests the deletions that only a garbage collector can end.
    pub(crate) fn cannot_wait_for_dependents(&self, workload: &str) {
        for cascade in ["foreground", "orphan"] {
            let command = format!("delete {workload} --cascade={cascade} --timeout=60s");
            let error = self.run(&command).expect_err("no garbage collector ends it");
            assert!(
                error.contains("no garbage collector") && error.contains("--cascade=background"),
                "{error}"
            );
        }
    }
}
