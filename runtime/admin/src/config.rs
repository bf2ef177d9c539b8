//! Where the admin server listens, behind which certificate, and who may read it.
//!
//! What would show pages or tokens to a network without protection is refused here, before anything is opened.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How the admin server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Behind which certificate.
    pub tls: Tls,
    /// Who may read.
    pub access: Access,
}

/// Behind which certificate the admin server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// None: plain HTTP, on loopback only.
    Plain,
    /// One that is made at start and kept in memory, for the host's name, `localhost` and the address.
    SelfSigned,
    /// One that is kept in a folder as `<name>.crt` and `<name>.key`, in PEM. What is there is served with, and followed as
    /// with [`Tls::Files`]; where neither is, a self-signed pair is made and written, and served with from then on.
    Persisted {
        /// The folder, which is made if it is missing.
        folder: PathBuf,
        /// What the two files are called, without their endings.
        name: String,
    },
    /// One in files, in PEM. They are looked at every 10 s, and what replaces them is used without a restart.
    Files {
        /// The chain of certificates, the server's own first.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

/// Who may read the admin server's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches it, on loopback only.
    Anonymous,
    /// Whoever has a bearer token that the API server knows, and the right to `get` the path: a TokenReview and a
    /// SubjectAccessReview decide. Client certificates are not looked at.
    Delegated {
        /// Paths that everybody may read: probes have no tokens. One that ends with `*` stands for all that begin so;
        /// `/*`, which is every page, only on loopback.
        /// Default `/healthz`, `/readyz` and `/livez`, as kube-controller-manager; their sub-paths are not among them.
        always_allow: Vec<String>,
        /// For how long it is remembered whose a token is. Zero: not at all. Default 1 min, as controller-runtime.
        authentication_ttl: Duration,
        /// For how long it is remembered that somebody may read a path. Zero: not at all. Default 5 min, as
        /// controller-runtime.
        allow_ttl: Duration,
        /// For how long it is remembered that somebody may not, or that a token is nobody's. Zero: not at all. Default
        /// 30 s, as controller-runtime.
        deny_ttl: Duration,
    },
}

impl AdminConfig {
    /// A server that may be exposed: behind a self-signed certificate, for whoever has the right.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: Tls::SelfSigned, access: Access::reviewed() }
    }

    /// A server for this machine alone: plain HTTP, open. The address must be on loopback.
    pub fn local(address: SocketAddr) -> Self {
        Self { address, tls: Tls::Plain, access: Access::Anonymous }
    }

    /// Checks what can be checked without opening anything.
    ///
    /// # Errors
    /// The first rule broken.
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
        // With it nothing is reviewed at all.
        if !on_loopback && always_allow.iter().any(|path| path == "/*") {
            return Err(AdminConfigError::AllAllowed { address });
        }
        Ok(())
    }
}

impl Access {
    /// [`Access::Delegated`] with its defaults.
    pub fn reviewed() -> Self {
        Access::Delegated {
            always_allow: ["/healthz", "/readyz", "/livez"].map(String::from).to_vec(),
            authentication_ttl: Duration::from_secs(60),
            allow_ttl: Duration::from_secs(5 * 60),
            deny_ttl: Duration::from_secs(30),
        }
    }
}

/// Whether `path` can be a path that is always allowed.
fn is_pattern(path: &str) -> bool {
    path.starts_with('/') && !path.strip_suffix('*').unwrap_or(path).contains('*')
}

/// Why an [`AdminConfig`] cannot be run with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminConfigError {
    /// Tokens would cross a network in the clear.
    #[error(
        "admin.tls is plain, and {address} is not on loopback: give a certificate, let one be made (self-signed), \
         or listen on 127.0.0.1 or ::1"
    )]
    PlainExposed {
        /// The address.
        address: SocketAddr,
    },
    /// Everybody on a network could read every page.
    #[error(
        "admin.access is open, and {address} is not on loopback: have it reviewed by the API server, or listen on \
         127.0.0.1 or ::1"
    )]
    OpenExposed {
        /// The address.
        address: SocketAddr,
    },
    /// Everybody on a network could read every page, although access is to be reviewed.
    #[error(
        "admin.access.always_allow has \"/*\", which lets everybody read every page, and {address} is not on loopback: \
         name the paths that need no review, or listen on 127.0.0.1 or ::1"
    )]
    AllAllowed {
        /// The address.
        address: SocketAddr,
    },
    /// A file of the certificate is not named.
    #[error("admin.tls names no {what} file: name the certificate and its key, or neither")]
    NoFile {
        /// Which one.
        what: &'static str,
    },
    /// A certificate is to be kept nowhere.
    #[error(
        "admin.tls keeps its certificate in the folder {:?} under the name {name:?}: name a folder, and a name without \
         slashes", folder.display().to_string()
    )]
    NoPlace {
        /// The folder.
        folder: PathBuf,
        /// The name.
        name: String,
    },
    /// A path that is always allowed is not one.
    #[error(
        "admin.access.always_allow has {path:?}: write a path that begins with /, with a * at most at its end"
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
            Tls::Persisted { .. } => "kept",
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
    fn plain_http_and_open_access_stay_on_loopback_and_the_error_names_field_and_remedy() {
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
    fn certificate_is_kept_under_a_name_in_a_folder() {
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
    fn path_that_is_always_allowed_begins_with_a_slash_and_has_its_star_at_the_end() {
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
