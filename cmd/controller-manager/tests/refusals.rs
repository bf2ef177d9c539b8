//! Failures of the binary: one line on stderr, exit code 1, and no request to the cluster.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn windlass(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(arguments)
        // The test must not find a cluster in its environment.
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KUBERNETES_SERVICE_PORT")
        .env_remove("KUBECONFIG")
        .output()
        .expect("the binary starts")
}

/// Returns the line on stderr of a run that must fail.
#[track_caller]
fn failure(arguments: &[&str]) -> String {
    let output = windlass(arguments);
    let stderr = String::from_utf8(output.stderr).expect("stderr is text");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    let lines: Vec<_> = stderr.lines().filter(|line| line.starts_with("windlass: ")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {stderr}");
    stderr.lines().last().expect("a line").to_owned()
}

#[track_caller]
fn fails_with(arguments: &[&str], parts: &[&str]) {
    let line = failure(arguments);
    for part in parts {
        assert!(line.contains(part), "{arguments:?}: {part:?} is not in: {line}");
    }
}

/// Starts a server that counts connections and answers each with an error.
fn counting_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let serve = move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let Ok(mut stream) = stream else { continue };
            // The client can have closed the connection.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
        }
    };
    #[expect(clippy::disallowed_methods, reason = "a server for another process lives in real time")]
    std::thread::spawn(serve);
    (address, connections)
}

#[test]
fn help_and_version_exit_with_zero() {
    for (flag, part) in
        [("--help", "replicaset-controller"), ("-h", "--leader-elect"), ("--version", "windlass 0.")]
    {
        let output = windlass(&[flag]);
        let text = String::from_utf8(output.stdout).expect("stdout is text");
        assert!(output.status.success() && output.stderr.is_empty(), "{flag}");
        assert!(text.contains(part), "{flag}: {text}");
    }
}

/// Returns the kinds and names of the objects that `windlass manifests` prints.
fn manifests(arguments: &[&str]) -> Vec<String> {
    let output = windlass(&[&["manifests"], arguments].concat());
    let text = String::from_utf8(output.stdout).expect("stdout is text");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let object = |document: &str| {
        let read: serde_json::Value = serde_saphyr::from_str(document).expect("YAML");
        let text = |at: &str| read.pointer(at).and_then(serde_json::Value::as_str).map(str::to_owned);
        let namespace = text("/metadata/namespace").map(|it| it + "/").unwrap_or_default();
        format!("{} {namespace}{}", text("/kind").expect("a kind"), text("/metadata/name").expect("a name"))
    };
    let objects = text.split("---\n").filter(|document| !document.is_empty()).map(object);
    objects.filter(|object| !object.contains("Binding")).collect()
}

#[test]
fn manifests_contain_the_roles_that_settings_require() {
    let process = ["ServiceAccount kube-system/windlass", "ClusterRole windlass"];
    let election = "Role kube-system/windlass-leader-election";
    assert_eq!(manifests(&[]), [&process[..], &[election]].concat());
    assert_eq!(manifests(&["rbac", "--secure-port=0", "--leader-elect=false"]), process);
    assert_eq!(manifests(&["crd"]), [""; 0]);
    let namespaced =
        ["rbac", "--namespace=ops", "--watch-namespaces=blue", "--secure-port=0", "--leader-elect=false"];
    assert_eq!(manifests(&namespaced), ["ServiceAccount ops/windlass", "Role blue/windlass"]);
    let disabled = ["--per-controller", "--controllers=replicaset-controller", "--leader_elect=false"];
    let expected = [process[0], "ClusterRole windlass:replicaset-controller", process[1]];
    assert_eq!(manifests(&disabled), expected);
    let accounts = manifests(&["--use-service-account-credentials", "--per-controller"]);
    for name in
        ["deployment-controller", "replicaset-controller", "replication-controller", "endpoint-controller"]
    {
        for object in [
            format!("ServiceAccount kube-system/{name}"),
            format!("ClusterRole windlass:{name}"),
            format!("ClusterRole windlass:{name}:caches"),
        ] {
            assert!(accounts.contains(&object), "{object}: {accounts:?}");
        }
    }
    for (arguments, parts) in [
        (&["manifests", "roles"][..], &["unknown part \"roles\" of manifests; use all, crd, rbac"][..]),
        (&["manifests", "--namespace=Ops"], &["--namespace", "lowercase"]),
        (&["manifests", "--shards=1", "--leader-elect=false"], &["--shards=1: "]),
    ] {
        fails_with(arguments, parts);
    }
}

#[test]
fn invalid_arguments_are_rejected_with_culprit_and_remedy() {
    for (argument, parts) in [
        ("explian", &["\"explian\": neither a flag nor a command; ", "did you mean explain?"][..]),
        (
            "--controllers=*,foo",
            &["--controllers=*,foo: \"foo\" is not a controller; ", "endpoints-controller"],
        ),
        (
            "--node-monitor-period=5s",
            &["--node-monitor-period: windlass does not implement ", "; leave it out"],
        ),
        (
            "--leader-elect-renew-deadline=20s",
            &["--leader-elect-renew-deadline=20s: ", "--leader-elect-lease-duration"],
        ),
    ] {
        fails_with(&[argument], parts);
    }
}

/// Writes a file. It is deleted when the first value is dropped.
fn file(content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("windlass.yaml");
    std::fs::write(&path, content).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (folder, path)
}

const HEAD: &str = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n";

// parity: validate-aggregate
#[test]
fn nothing_is_sent_if_settings_are_invalid() {
    let (server, connections) = counting_server();
    let master = format!("--master={server}");
    for (content, beginning) in [
        ("logging: {verbosity: 11}\n", ":3:22: logging.verbosity=11: invalid value; write a whole number"),
        ("logging: {verbose: 1}\n", ":3:11: unknown field logging.verbose; did you mean logging.verbosity?"),
        ("serving: {tlsCertFile: /c}\n", ":3:24: serving.tlsCertFile=/c: a certificate without a key; write"),
    ] {
        let (_folder, path) = file(&format!("{HEAD}{content}"));
        fails_with(&[&master, &format!("--config={path}")], &[&format!("windlass: {path}{beginning}")]);
    }
    fails_with(
        &[&master, "--config=no/such/file"],
        &["--config=no/such/file: the file cannot be read", "name a readable"],
    );
    fails_with(&[&master, "--config=/"], &["--config=/: the file cannot be read", "name a readable"]);
    fails_with(&[&master, "--plain-http"], &["--plain-http=true: plain HTTP requires a loopback address"]);
    fails_with(
        &[&master, "--tls-cert-file=no/such", "--tls-private-key-file=no/such"],
        &[
            "--tls-cert-file=no/such, --tls-private-key-file=no/such: cannot read",
            "name a certificate in PEM",
        ],
    );
    fails_with(
        &[&master, "--cert-dir=/dev/null/certificates"],
        &["--cert-dir=/dev/null/certificates: ", "kube-controller-manager.", "name a directory that this"],
    );
    assert_eq!(connections.load(Ordering::SeqCst), 0, "a request was sent to the API server");
}

// parity: write-config-to
#[test]
fn written_settings_are_accepted_unchanged() {
    let (folder, first) = file("");
    let second = folder.path().join("second.yaml").to_str().expect("text").to_owned();
    let write = |arguments: &[&str]| {
        let output = windlass(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout.is_empty() && stderr.is_empty(), "{stderr}");
    };
    write(&["--concurrent-rc-syncs=9", "--leader-elect=false", &format!("--write-config-to={first}")]);
    write(&[&format!("--config={first}"), &format!("--write-config-to={second}")]);
    let [first, second] = [first, second].map(|path| std::fs::read_to_string(path).expect("written"));
    assert!(first.contains("concurrentRCSyncs: 9\n") && first.starts_with(HEAD), "{first}");
    assert_eq!(first, second);
    let printed = windlass(&["--concurrent-rc-syncs=9", "--leader-elect=false", "--write-config-to=-"]);
    assert_eq!(String::from_utf8(printed.stdout).expect("text"), first, "a dash is stdout");
    fails_with(
        &["--write-config-to=no/such/folder"],
        &["--write-config-to=no/such/folder: the file cannot be written", "; name a writable file"],
    );
    fails_with(&["--write-config-to=no/such", "-v=99"], &["--v=99"]);
}

#[test]
fn unreadable_kubeconfig_is_reported() {
    fails_with(&["--kubeconfig=no/such/file"], &["no/such/file", "--kubeconfig"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "clusters: [").expect("written");
    let path = path.to_str().expect("text");
    fails_with(&["--kubeconfig", path], &[path, "not valid"]);
}

#[test]
fn missing_cluster_is_reported_with_remedies() {
    fails_with(&[], &["--kubeconfig", "Pod"]);
    fails_with(&["--master=nonsense"], &["--master=nonsense", "https://host:port"]);
    fails_with(&["--master=https://me:secret@host"], &["--master", "name the user in the kubeconfig"]);
    assert!(!failure(&["--master=https://me:secret@host"]).contains("secret"));
}

// parity: error-if-metrics-probe
#[test]
fn port_in_use_is_reported_before_any_request() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    let (server, connections) = counting_server();
    let (master, port) = (format!("--master={server}"), format!("--secure-port={port}"));
    fails_with(&[&master, &port], &[&port, "choose another port"]);
    assert_eq!(connections.load(Ordering::SeqCst), 0, "a request was sent to the API server");
}

#[test]
fn unreachable_api_server_is_reported_after_10s() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", free.local_addr().expect("bound"));
    drop(free);
    let master = format!("--master={address}");
    fails_with(&[&master, "--secure-port=0"], &["within 10s", &address, "--kubeconfig"]);
}

#[test]
fn failing_api_server_is_retried_and_then_reported() {
    let (server, connections) = counting_server();
    let master = format!("--master={server}");
    fails_with(&[&master, "--secure-port=0"], &["within 10s", &server]);
    assert!(connections.load(Ordering::SeqCst) > 1, "there was no retry");
}
