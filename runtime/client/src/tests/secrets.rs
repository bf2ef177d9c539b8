//! Secrets of credential plugins. Runs a real plugin, so that kube's own errors occur.

use std::error::Error;

use kube::{Config, config::ExecConfig};
use serde_json::json;

use super::*;
use crate::{ClientError, CredentialsError, RequestError, one_line};

/// Returns a shell script as a credential plugin, with a secret in its environment.
fn plugin(script: &str) -> ExecConfig {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "env": [{"name": "PASSWORD", "value": "s3cr3t-environment"}], "interactiveMode": "Never",
    });
    serde_json::from_value(exec).unwrap()
}

fn config(script: &str) -> Config {
    let mut config = Config::new(Uri::from_static("http://127.0.0.1:1"));
    config.auth_info.exec = Some(plugin(script));
    config
}

fn clients(config: Config) -> Result<Clients, ClientError> {
    let env = Env::system("test");
    Clients::new(env, config, ClientOptions::default(), &Metrics::new(), Arc::new(OpenFence))
}

/// Formats an error and its causes in all ways: `Display` and `Debug`.
fn printed(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let each: Vec<_> = causes.map(|cause| format!("{cause} {cause:?} {cause:#?}")).collect();
    format!("{} {}", one_line(error), each.join(" "))
}

#[tokio::test]
async fn plugin_environment_and_output_appear_in_no_error() {
    for (script, expected) in [
        (
            "echo s3cr3t-output; echo s3cr3t-error >&2; exit 3",
            CredentialsError::PluginFailed { code: Some(3) },
        ),
        ("echo s3cr3t-output", CredentialsError::PluginOutput),
        ("echo '{\"kind\": \"s3cr3t-output\", \"status\": 1}'", CredentialsError::PluginOutput),
    ] {
        let error = clients(config(script)).unwrap_err();
        let ClientError::Credentials(found) = &error else { panic!("{}", printed(&error)) };
        assert_eq!(*found, expected);
        assert!(!printed(&error).contains("s3cr3t"), "{}", printed(&error));
    }
    let failed = CredentialsError::PluginFailed { code: Some(3) };
    assert_eq!(failed.to_string(), "credential plugin failed (exit status 3)");
}

#[tokio::test]
async fn later_plugin_failure_is_not_quoted_by_any_request() {
    let directory = tempfile::tempdir().unwrap();
    let ran = directory.path().join("ran");
    // The credential has already expired when it is printed, so that the first request runs the plugin again. The first
    // two runs are for the process and for the election, which refreshes its credentials separately.
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"s3cr3t-token","expirationTimestamp":"2020-01-01T00:00:00Z"}}"#;
    let script = format!(
        "if [ -e {ran}2 ]; then echo s3cr3t-output; exit 4; fi; \
         if [ -e {ran} ]; then touch {ran}2; fi; touch {ran}; echo '{credential}'",
        ran = ran.display()
    );
    let clients = clients(config(&script)).unwrap();
    let workers = clients.for_controller("test-controller").unwrap();
    let log = Arc::<TestLog>::default();
    let worker = workers.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None);
    let election = clients.for_election().unwrap();
    for client in [worker, workers.client(), election, clients.for_health()] {
        let error = create(&client).await.unwrap_err();
        let message = printed(&error);
        assert!(message.contains("credential plugin failed (exit status 4)"), "{message}");
        assert!(!message.contains("s3cr3t"), "{message}");
        let error = RequestError::from(error);
        assert!(matches!(error, RequestError::Transport(_)), "{error:?}");
        assert!(!printed(&error).contains("s3cr3t"), "{error:?}");
    }
    assert!(log.is_empty(), "a request without credentials was not sent");
}

#[tokio::test]
async fn election_refreshes_its_credentials_separately() {
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"s3cr3t-token"}}"#;
    let clients = clients(config(&format!("echo run >> {}; echo '{credential}'", runs.display()))).unwrap();
    let count = || std::fs::read_to_string(&runs).unwrap().lines().count();
    let workers = clients.for_controller("test-controller").unwrap();
    let (_client, _health) = (workers.client(), clients.for_health());
    assert_eq!(count(), 1, "all others share the credentials of the process");
    let _election = clients.for_election().unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn error_line_hides_kube_error_below_any_wrapping() {
    let inner = kube::client::AuthError::AuthExec("s3cr3t".into());
    let error = kube::Error::Service(Box::new(kube::Error::Auth(inner)));
    assert_eq!(one_line(&error), CredentialsError::Other.to_string());
}
