//! Configuration of the admin server: its address, its certificate and its access policy.
//!
//! Validation rejects a configuration that would expose endpoints or tokens to a network without protection, before a
//! socket is opened.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of the admin server.
///
/// ```
/// use windlass_admin::{Access, AdminConfig, Tls};
///
/// let address = "127.0.0.1:10257".parse().expect("an address");
/// let local = AdminConfig { address, tls: Tls::Plain, access: Access::Anonymous };
/// assert!(local.validate().is_ok());
/// // Anyone in the network could read the endpoints.
/// let open = AdminConfig { address: "0.0.0.0:10257".parse().expect("an address"), ..local };
/// assert!(open.validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The listen address. Port 0 selects a free port.
    pub address: SocketAddr,
    /// The serving certificate.
    pub tls: Tls,
    /// The access policy.
    pub access: Access,
}

/// The serving certificate of the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No certificate: plain HTTP, on loopback only.
    Plain,
    /// A self-signed certificate for the host name, `localhost` and the address. It is generated at start and kept in
    /// memory.
    SelfSigned,
    /// A certificate in a directory, as `<name>.crt` and `<name>.key` in PEM. Existing files are used and reloaded as
    /// with [`Tls::Files`]. If both files are missing, the server writes a self-signed pair and uses it.
    Persisted {
        /// The directory, which is created if it is missing.
        folder: PathBuf,
        /// The name of the two files without extension.
        name: String,
    },
    /// A certificate in PEM files. The server checks them every 10 s and reloads them without a restart.
    Files {
        /// The certificate chain, starting with the server's certificate.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

/// The access policy of the admin server's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Access without authentication, on loopback only.
    Anonymous,
    /// Access with a bearer token of a user who is allowed to `get` the path, according to a TokenReview and a
    /// SubjectAccessReview of the API server. Client certificates are ignored.
    Delegated {
        /// Paths without authentication, because probes have no tokens. A trailing `*` matches all paths with the
        /// prefix; `/*`, which matches every path, is accepted on loopback only. Default `/healthz`, `/readyz` and
        /// `/livez`, as in kube-controller-manager, without their sub-paths.
        always_allow: Vec<String>,
        /// TTL of cached TokenReview results. Zero disables caching. Default 1 min, as in controller-runtime.
        authentication_ttl: Duration,
        /// TTL of cached "allowed" SubjectAccessReview results. Zero disables caching. Default 5 min, as in
        /// controller-runtime.
        allow_ttl: Duration,
        /// TTL of cached "denied" SubjectAccessReview results and of unknown tokens. Zero disables caching. Default 30
        /// s, as in controller-runtime.
        deny_ttl: Duration,
    },
}

impl AdminConfig {
    /// Returns a configuration that is safe to expose: a self-signed certificate and delegated access.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: Tls::SelfSigned, access: Access::reviewed() }
    }

    /// Returns a configuration for local clients: plain HTTP without authentication. The address must be on loopback.
    pub fn local(address: SocketAddr) -> Self {
        Self { address, tls: Tls::Plain, access: Access::Anonymous }
    }

    /// Validates the configuration without opening files or sockets.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub fn validate(&self) -> Result<(), AdminConfigError> {
        let Self { address, tls, access } = self;
        let address = *address;
        let on_loopback = address.ip().to_canonical().is_loopback();
        if !on_loopback {
            if *tls == Tls::Plain {
                return Err(AdminConfigError::PlainExposed { address });
            }
            if *access == Access::Anonymous {
                return Err(AdminConfigError::OpenExposed { address });
            }
        }
        if let Tls::Files { certificate, key } = tls {
            for (what, path) in [("certificate", certificate), ("key", key)] {
                if path.as_os_str().is_empty() {
                    return Err(AdminConfigError::NoFile { what });
                }
            }
        }
        if let Tls::Persisted { folder, name } = tls
            && (folder.as_os_str().is_empty() || name.is_empty() || name.contains('/'))
        {
            return Err(AdminConfigError::NoPlace { folder: folder.clone(), name: name.clone() });
        }
        let Access::Delegated { always_allow, .. } = access else { return Ok(()) };
        if let Some(path) = always_allow.iter().find(|path| !is_pattern(path)) {
            return Err(AdminConfigError::BadPath { path: path.clone() });
        }
        // With `/*` no request would be reviewed.
        if !on_loopback && always_allow.iter().any(|path| path == "/*") {
            return Err(AdminConfigError::AllAllowed { address });
        }
        Ok(())
    }
}

impl Access {
    /// Returns [`Access::Delegated`] with its defaults.
    pub fn reviewed() -> Self {
        Access::Delegated {
            always_allow: ["/healthz", "/readyz", "/livez"].map(String::from).to_vec(),
            authentication_ttl: Duration::from_secs(60),
            allow_ttl: Duration::from_secs(5 * 60),
            deny_ttl: Duration::from_secs(30),
        }
    }
}

/// Returns whether `path` is valid in `always_allow`.
fn is_pattern(path: &str) -> bool {
    path.starts_with('/') && !path.strip_suffix('*').unwrap_or(path).contains('*')
}

/// A rule that an [`AdminConfig`] violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminConfigError {
    /// Tokens would cross a network unencrypted.
    #[error(
        "admin.tls is plain, and {address} is not on loopback; configure a certificate, use a self-signed one, \
         or listen on 127.0.0.1 or ::1"
    )]
    PlainExposed {
        /// The address.
        address: SocketAddr,
    },
    /// Every client on the network could read all endpoints.
    #[error(
        "admin.access is open, and {address} is not on loopback; delegate authorization to the API server, or \
         listen on 127.0.0.1 or ::1"
    )]
    OpenExposed {
        /// The address.
        address: SocketAddr,
    },
    /// Every client on the network could read all endpoints, although access is delegated.
    #[error(
        "admin.access.always_allow contains \"/*\", which exposes all endpoints without authentication, and {address} \
         is not on loopback; list the paths that need no review, or listen on 127.0.0.1 or ::1"
    )]
    AllAllowed {
        /// The address.
        address: SocketAddr,
    },
    /// A certificate file is not configured.
    #[error("admin.tls has no {what} file; configure both the certificate and its key, or neither")]
    NoFile {
        /// The missing file.
        what: &'static str,
    },
    /// The directory or name of a persisted certificate is invalid.
    #[error(
        "admin.tls cannot persist the certificate in directory {:?} with the name {name:?}; configure a directory, \
         and a name without slashes", folder.display().to_string()
    )]
    NoPlace {
        /// The directory.
        folder: PathBuf,
        /// The name.
        name: String,
    },
    /// A path in `always_allow` is invalid.
    #[error(
        "admin.access.always_allow contains invalid path {path:?}; use a path that starts with / and has no * \
         except at its end"
    )]
    BadPath {
        /// The path.
        path: String,
    },
}

impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tls::Plain => "plain",
            Tls::SelfSigned => "self-signed",
            Tls::Persisted { .. } => "persisted",
            Tls::Files { .. } => "files",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    // parity: plain-http-default-every
    #[test]
    fn plain_http_and_open_access_are_rejected_outside_loopback() {
        for address in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(AdminConfig::local(at(address)).validate(), Ok(()), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let address = at(address);
            assert_eq!(AdminConfig::new(address).validate(), Ok(()));
            let plain = AdminConfig { tls: Tls::Plain, ..AdminConfig::new(address) }.validate();
            assert_eq!(plain, Err(AdminConfigError::PlainExposed { address }));
            let open = AdminConfig { access: Access::Anonymous, ..AdminConfig::new(address) }.validate();
            assert_eq!(open, Err(AdminConfigError::OpenExposed { address }));
            for (error, field) in [(plain, "admin.tls"), (open, "admin.access")] {
                let message = error.unwrap_err().to_string();
                assert!(
                    message.starts_with(field) && message.contains("127.0.0.1") && !message.contains('\n')
                );
            }
        }
    }

    #[test]
    fn persisted_certificate_needs_folder_and_name_without_slash() {
        let kept = |folder: &str, name: &str| {
            let tls = Tls::Persisted { folder: folder.into(), name: name.to_owned() };
            AdminConfig { tls, ..AdminConfig::new(at("0.0.0.0:1")) }.validate()
        };
        assert_eq!(kept("certificates", "windlass"), Ok(()));
        for (folder, name) in [("", "windlass"), ("certificates", ""), ("certificates", "a/b")] {
            let refused = AdminConfigError::NoPlace { folder: folder.into(), name: name.to_owned() };
            assert_eq!(kept(folder, name), Err(refused));
        }
    }

    #[test]
    fn always_allowed_path_starts_with_slash_and_may_end_with_star() {
        let with = |path: &str| {
            let Access::Delegated { authentication_ttl, allow_ttl, deny_ttl, .. } = Access::reviewed() else {
                unreachable!("reviewed")
            };
            let always_allow = vec![path.to_owned()];
            let access = Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl };
            AdminConfig { access, ..AdminConfig::new(at("0.0.0.0:1")) }.validate()
        };
        for path in ["/", "/healthz/*", "/metrics"] {
            assert_eq!(with(path), Ok(()), "{path}");
        }
        for path in ["", "healthz", "/a*b", "/**"] {
            assert_eq!(with(path), Err(AdminConfigError::BadPath { path: path.to_owned() }));
        }
        let address = at("0.0.0.0:1");
        assert_eq!(with("/*"), Err(AdminConfigError::AllAllowed { address }), "that is open access");
        let Access::Delegated { authentication_ttl, allow_ttl, deny_ttl, .. } = Access::reviewed() else {
            unreachable!("reviewed")
        };
        let always_allow = vec!["/*".to_owned()];
        let access = Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl };
        assert_eq!(AdminConfig { access, ..AdminConfig::local(at("[::1]:1")) }.validate(), Ok(()));
    }
}
