//! Loads the configuration of the cluster: its address and the credentials for it.
//!
//! [`load_config`] uses a kubeconfig only if it is named explicitly, like kube-controller-manager: a program must not
//! start in another cluster because `KUBECONFIG` is set in a shell. [`infer_config`] searches the locations that
//! developers of operators expect, and returns the location. Errors name the file and the remedy on one line, and never
//! quote the file, because it contains secrets.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Uri;
use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::error::one_line;

/// Loads the configuration of the cluster from the named file, or else from the Pod that this process runs in.
///
/// `master` overrides the address of the server. Without a file, `master` is used without credentials.
///
/// The result contains secrets: do not log it.
///
/// # Errors
///
/// If the file is missing, unreadable or incomplete, if `master` is not a valid address, or if neither is given and
/// the process does not run in a Pod.
pub async fn load_config(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Config, ConfigError> {
    let server = master.filter(|address| !address.is_empty()).map(server).transpose()?;
    match (kubeconfig.filter(|path| !path.as_os_str().is_empty()), server) {
        (Some(path), server) => {
            let (mut config, _context) = configured(path, read(path)?).await?;
            config.cluster_url = server.unwrap_or(config.cluster_url);
            if has_userinfo(&config.cluster_url) { Err(ConfigError::Userinfo) } else { Ok(config) }
        }
        (None, Some(server)) => Ok(Config::new(server)),
        (None, None) => Config::incluster().map_err(not_in_cluster),
    }
}

/// Returns the certificates in PEM with which `config` verifies the API server, exactly as its CA file or the
/// kubeconfig that it was loaded from contains them. The result is empty if the configuration has no such certificates.
///
/// # Errors
///
/// If the CA file or the kubeconfig is not readable.
pub fn server_authority(config: &Config, kubeconfig: Option<&Path>) -> Result<Vec<u8>, ConfigError> {
    if let Some(file) = &config.root_cert_file {
        let unreadable =
            |error: std::io::Error| ConfigError::Authority { path: file.clone(), reason: error.to_string() };
        return std::fs::read(file).map_err(unreadable);
    }
    let Some(path) = kubeconfig.filter(|path| !path.as_os_str().is_empty()) else { return Ok(Vec::new()) };
    let kubeconfig = read(path)?;
    let data = current_cluster(&kubeconfig).and_then(|cluster| cluster.certificate_authority_data.as_deref());
    let malformed = |error: base64::DecodeError| ConfigError::Incomplete {
        path: path.to_path_buf(),
        reason: format!("its certificate-authority-data is not base64: {error}"),
    };
    BASE64_STANDARD.decode(data.unwrap_or_default()).map_err(malformed)
}

/// A cluster configuration and its source. The configuration contains secrets.
#[derive(Clone)]
pub struct Cluster {
    /// The configuration.
    pub config: Config,
    /// The source of the configuration.
    pub source: ClusterSource,
}

/// The source of a cluster configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterSource {
    /// A kubeconfig file.
    File {
        /// The file.
        path: PathBuf,
        /// The current context of the file.
        context: String,
    },
    /// The service account of the Pod that the process runs in.
    Pod,
}

impl fmt::Display for ClusterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, context } => write!(f, "context {context} of {}", path.display()),
            Self::Pod => f.write_str("the service account of the Pod"),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Finds the cluster in the named file, else in the files of `$KUBECONFIG`, else in the Pod that the process runs in,
/// else in `~/.kube/config`. This is the order of controller-runtime: in a Pod, the home directory is not searched.
///
/// # Errors
/// If the first existing source cannot be used, or if none exists.
pub async fn infer_config(kubeconfig: Option<&Path>) -> Result<Cluster, ConfigError> {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    infer(kubeconfig, env("KUBECONFIG"), env("HOME"), Config::incluster).await
}

/// Implements [`infer_config`]; the parameters replace the environment of the process.
async fn infer(
    named: Option<&Path>,
    variable: Option<PathBuf>,
    home: Option<PathBuf>,
    in_pod: impl FnOnce() -> Result<Config, InClusterError>,
) -> Result<Cluster, ConfigError> {
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        return in_files(vec![path.to_path_buf()]).await;
    }
    let listed: Vec<PathBuf> = variable.iter().flat_map(std::env::split_paths).collect();
    let listed: Vec<PathBuf> = listed.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    if !listed.is_empty() {
        return in_files(listed).await;
    }
    let missing = match in_pod() {
        Ok(config) => return Ok(Cluster { config, source: ClusterSource::Pod }),
        // The process does not run in a Pod.
        Err(error @ InClusterError::ReadEnvironmentVariable(_)) => error,
        Err(error) => return Err(not_in_cluster(error)),
    };
    match home.map(|home| home.join(".kube/config")).filter(|path| path.exists()) {
        Some(path) => in_files(vec![path]).await,
        None => Err(ConfigError::Nowhere { reason: one_line(&missing) }),
    }
}

/// Returns the cluster of these files, merged as in kubectl: for each name the first definition is used, and if there
/// are several files, missing files are skipped.
async fn in_files(mut paths: Vec<PathBuf>) -> Result<Cluster, ConfigError> {
    if paths.len() > 1 {
        let existing: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
        paths = if existing.is_empty() { paths[..1].to_vec() } else { existing };
    }
    let path = paths[0].clone();
    let mut merged = read(&path)?;
    for other in &paths[1..] {
        merged = merged.merge(read(other)?).map_err(|error| unusable(other, error))?;
    }
    let (config, context) = configured(&path, merged).await?;
    if has_userinfo(&config.cluster_url) {
        return Err(ConfigError::Userinfo);
    }
    Ok(Cluster { config, source: ClusterSource::File { path, context } })
}

/// Error while loading the configuration of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file does not exist or is not readable.
    #[error("cannot read kubeconfig {}: {reason}; name a readable file with --kubeconfig", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The file with the certificates of the server's CA is not readable.
    #[error("cannot read the CA file {}: {reason}; correct certificate-authority in the kubeconfig", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The file is not the YAML of a kubeconfig.
    #[error("kubeconfig {} is not valid{}; check its YAML", path.display(), at(place.as_deref()))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line and column, if known.
        place: Option<String>,
    },
    /// The file has no current context, or refers to entries that it does not contain.
    #[error("kubeconfig {} is incomplete: {reason}; `kubectl config view` shows its content", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing part.
        reason: String,
    },
    /// No file was named, and the process does not run in a Pod, or its Pod mounts no token.
    #[error(
        "no --kubeconfig is set and no service account of a Pod is available ({reason}); set --kubeconfig or run in a Pod"
    )]
    NoCluster {
        /// The missing part.
        reason: String,
    },
    /// No file exists, and the process does not run in a Pod.
    #[error(
        "no cluster: there is no --kubeconfig, no $KUBECONFIG, no service account of a Pod ({reason}) and no ~/.kube/config; \
         name a file with --kubeconfig"
    )]
    Nowhere {
        /// The part of a Pod's configuration that is missing.
        reason: String,
    },
    /// The address of the server is not valid.
    #[error("--master {0:?} is not a valid server address; write https://host:port")]
    Master(String),
    /// The address of the server contains a user name or password. These would be visible wherever the address is
    /// printed, and are not used.
    #[error(
        "the server address contains a user name or password; write https://host:port and set the user in the kubeconfig"
    )]
    Userinfo,
}

fn at(place: Option<&str>) -> String {
    place.map(|place| format!(" ({place})")).unwrap_or_default()
}

fn server(address: &str) -> Result<Uri, ConfigError> {
    // Check the text first, so that an address with other errors is not quoted with its password.
    if address.contains('@') {
        return Err(ConfigError::Userinfo);
    }
    let refused = || ConfigError::Master(address.into());
    let uri: Uri = address.parse().map_err(|_| refused())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if is_http && uri.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(refused()) }
}

fn has_userinfo(server: &Uri) -> bool {
    server.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

fn read(path: &Path) -> Result<Kubeconfig, ConfigError> {
    Kubeconfig::read_from(path).map_err(|error| unusable(path, error))
}

/// Returns the configuration and name of the current context. `path` is only for errors.
async fn configured(path: &Path, kubeconfig: Kubeconfig) -> Result<(Config, String), ConfigError> {
    let authority = authority_file(&kubeconfig);
    let context = kubeconfig.current_context.clone().unwrap_or_default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| unusable(path, error))?;
    // kube reloads a CA file if the configuration names it.
    config.root_cert_file = authority.filter(|_| config.root_cert.is_some());
    Ok((config, context))
}

/// Returns the CA file of the current context's cluster, unless the kubeconfig contains the certificates.
fn authority_file(kubeconfig: &Kubeconfig) -> Option<PathBuf> {
    let cluster = current_cluster(kubeconfig)?;
    let file = cluster.certificate_authority.as_ref()?;
    cluster.certificate_authority_data.is_none().then(|| PathBuf::from(file))
}

/// Returns the cluster of the current context.
fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&kube::config::Cluster> {
    let name = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == *name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()
}

fn unusable(path: &Path, error: KubeconfigError) -> ConfigError {
    let path = path.to_path_buf();
    let incomplete = |reason: String| ConfigError::Incomplete { path: path.clone(), reason };
    match error {
        KubeconfigError::ReadConfig(error, path) => {
            ConfigError::Unreadable { path, reason: error.to_string() }
        }
        KubeconfigError::Parse(error) => ConfigError::Malformed { path, place: place(&error.to_string()) },
        KubeconfigError::CurrentContextNotSet => incomplete("it has no current-context".into()),
        KubeconfigError::LoadContext(name) => incomplete(format!("it has no context {name:?}")),
        KubeconfigError::LoadClusterOfContext(name) => {
            incomplete(format!("it has no cluster for context {name:?}"))
        }
        KubeconfigError::MissingClusterUrl => incomplete("its cluster has no server".into()),
        other => incomplete(one_line(&other)),
    }
}

/// Extracts line and column from an error of the YAML parser. The rest of the message can quote the file.
fn place(message: &str) -> Option<String> {
    let number_after = |word: &str| {
        let rest = message.split(word).nth(1)?.trim_start_matches([' ', ':']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    Some(format!("line {}, column {}", number_after("line")?, number_after("column")?))
}

fn not_in_cluster(error: InClusterError) -> ConfigError {
    ConfigError::NoCluster { reason: one_line(&error) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const WHOLE: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: web}}]
clusters: [{name: c, cluster: {server: 'https://example.com:6443'}}]
users: [{name: u, user: {token: s3cr3t-token}}]
";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    async fn load_error(text: &str) -> ConfigError {
        load_config(Some(file(text).path()), None).await.unwrap_err()
    }

    #[tokio::test]
    async fn explicitly_named_kubeconfig_is_used() {
        let config = load_config(Some(file(WHOLE).path()), None).await.unwrap();
        assert_eq!(config.cluster_url, "https://example.com:6443/");
        assert_eq!(config.default_namespace, "web");
    }

    #[tokio::test]
    async fn server_authority_is_the_text_of_kubeconfig_or_ca_file() {
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
        let pem = format!("a comment\n{authority}");
        let of_kubeconfig = async |field: String| {
            let file = file(&WHOLE.replace("server:", &format!("{field}server:")));
            let config = load_config(Some(file.path()), None).await.unwrap();
            server_authority(&config, Some(file.path())).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(of_kubeconfig(String::new()).await, Ok(String::new()));
        let data = format!("certificate-authority-data: {}, ", BASE64_STANDARD.encode(&pem));
        assert_eq!(of_kubeconfig(data).await, Ok(pem.clone()));
        let ca = file(&pem);
        let named = format!("certificate-authority: '{}', ", ca.path().display());
        assert_eq!(of_kubeconfig(named).await, Ok(pem));
        let anonymous = Config::new(Uri::from_static("https://example.com"));
        assert_eq!(server_authority(&anonymous, None), Ok(Vec::new()));
        let mut missing = anonymous;
        missing.root_cert_file = Some("/nowhere/ca.crt".into());
        let error = server_authority(&missing, None).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the CA file /nowhere/ca.crt: "), "{error}");
    }

    #[tokio::test]
    async fn cluster_config_is_searched_in_a_fixed_order() {
        let (named, variable, home) = (file(WHOLE), file(WHOLE), tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        let in_home = home.path().join(".kube/config");
        std::fs::write(&in_home, WHOLE).unwrap();
        let home = Some(home.path().to_path_buf());
        let no_pod = || Err(InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent));
        let pod = || Ok(Config::new(Uri::from_static("https://pod")));
        let of = |path: &Path| ClusterSource::File { path: path.to_path_buf(), context: "here".into() };
        let variable = Some(variable.path().to_path_buf());
        let found = infer(Some(named.path()), variable.clone(), home.clone(), pod).await.unwrap();
        assert_eq!(found.source, of(named.path()));
        let found = infer(None, variable.clone(), home.clone(), pod).await.unwrap();
        assert_eq!(found.source, of(variable.as_deref().unwrap()));
        let found = infer(None, None, home.clone(), pod).await.unwrap();
        assert_eq!(found.source, ClusterSource::Pod, "in a Pod the home directory is not searched");
        let found = infer(None, None, home, no_pod).await.unwrap();
        assert_eq!(found.source, of(&in_home));
        assert_eq!(found.config.default_namespace, "web");
        let error = infer(None, None, None, no_pod).await.unwrap_err().to_string();
        for place in ["--kubeconfig", "$KUBECONFIG", "Pod", "~/.kube/config"] {
            assert!(error.contains(place), "{error}");
        }
    }

    #[tokio::test]
    async fn unusable_pod_service_account_is_an_error_before_home_directory() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        std::fs::write(home.path().join(".kube/config"), WHOLE).unwrap();
        let broken = || Err(InClusterError::ReadDefaultNamespace(std::io::Error::other("no token")));
        let found = infer(None, None, Some(home.path().to_path_buf()), broken).await;
        assert!(matches!(found, Err(ConfigError::NoCluster { .. })), "{found:?}");
    }

    #[tokio::test]
    async fn kubeconfig_files_are_merged_and_missing_ones_skipped() {
        let contexts =
            WHOLE.replace("clusters: [{name: c, cluster: {server: 'https://example.com:6443'}}]", "");
        let clusters = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://merged.example.com'}}]
";
        let (first, second) = (file(&contexts), file(clusters));
        let paths = [Path::new("/nonexistent/config"), first.path(), second.path()];
        let variable = std::env::join_paths(paths).unwrap();
        let no_pod = || Err(InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent));
        let found = infer(Some(Path::new("")), Some(variable.into()), None, no_pod).await.unwrap();
        assert_eq!(found.config.cluster_url, "https://merged.example.com/");
        assert_eq!(found.source, ClusterSource::File { path: first.path().into(), context: "here".into() });
    }

    #[tokio::test]
    async fn master_overrides_the_server_and_works_without_file() {
        let config = load_config(Some(file(WHOLE).path()), Some("http://127.0.0.1:8080")).await.unwrap();
        assert_eq!(config.cluster_url, "http://127.0.0.1:8080/");
        let config = load_config(None, Some("http://127.0.0.1:8080")).await.unwrap();
        assert_eq!(config.cluster_url, "http://127.0.0.1:8080/");
        assert!(config.auth_info.token.is_none());
        for address in
            ["example.com", "example.com:6443", "ftp://example.com", "https://", "http:///x", "a b"]
        {
            let error = load_config(None, Some(address)).await.unwrap_err();
            assert_eq!(error, ConfigError::Master(address.into()));
        }
    }

    #[tokio::test]
    async fn server_address_with_password_is_rejected_and_not_quoted() {
        let file = file(&WHOLE.replace("https://", "https://admin:s3cr3t@"));
        let whole = self::file(WHOLE);
        for (path, master) in [
            (Some(file.path()), None),
            (None, Some("https://admin:s3cr3t@example.com")),
            (None, Some("ftp://admin:s3cr3t@example.com")),
            (Some(whole.path()), Some("https://admin@example.com")),
        ] {
            let error = load_config(path, master).await.unwrap_err();
            assert_eq!(error, ConfigError::Userinfo);
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn missing_kubeconfig_is_named_in_the_error() {
        let path = Path::new("/nonexistent/kubeconfig");
        let error = load_config(Some(path), None).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot read kubeconfig /nonexistent/kubeconfig: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn missing_part_of_kubeconfig_is_named_in_the_error() {
        for (take, put, reason) in [
            ("current-context: here", "", "it has no current-context"),
            ("current-context: here", "current-context: there", r#"it has no context "there""#),
            ("clusters: [{name: c,", "clusters: [{name: d,", "it has no cluster for context"),
        ] {
            let error = load_error(&WHOLE.replace(take, put)).await;
            let ConfigError::Incomplete { reason: found, .. } = &error else { panic!("{error:?}") };
            assert!(found.contains(reason), "{found}");
        }
    }

    #[tokio::test]
    async fn malformed_kubeconfig_is_not_quoted() {
        for broken in [
            WHOLE.replace("token: s3cr3t-token}}]", "token: [s3cr3t-token"),
            WHOLE.replace("{token: s3cr3t-token}", "s3cr3t-token"),
            WHOLE.replace("kind: Config", "kind: {s3cr3t-token: 1}"),
        ] {
            let error = load_error(&broken).await;
            assert!(matches!(error, ConfigError::Malformed { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[tokio::test]
    async fn error_without_pod_and_file_names_both_remedies() {
        let error = load_config(None, None).await.unwrap_err();
        assert!(matches!(error, ConfigError::NoCluster { .. }), "{error:?}");
        assert!(error.to_string().contains("--kubeconfig") && error.to_string().contains("Pod"), "{error}");
    }
}
