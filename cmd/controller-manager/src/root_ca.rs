//! The certificates that the ConfigMap `kube-root-ca.crt` of each namespace contains.
//!
//! Guarantees: the text is that of `--root-ca-file`, byte for byte, and the file contains a certificate; without the
//! flag it is the CA of the process's connection, which can be empty.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use windlass::client::server_authority;

/// Reads the certificates once; a later change of the file has no effect, as upstream.
///
/// # Errors
/// A file is not readable, or that of the flag contains no certificate.
pub(crate) fn load(
    file: Option<&Path>,
    cluster: &kube::Config,
    kubeconfig: Option<&Path>,
) -> Result<Arc<str>> {
    let pem = match file {
        Some(file) => {
            checked(file).map_err(|problem| anyhow!("--root-ca-file={}: {problem}", file.display()))?
        }
        None => server_authority(cluster, kubeconfig)?,
    };
    Ok(String::from_utf8_lossy(&pem).into())
}

/// Returns the content of a file with at least one certificate.
fn checked(file: &Path) -> Result<Vec<u8>> {
    let pem = std::fs::read(file).map_err(|error| anyhow!("cannot read the file: {error}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| anyhow!("the file is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| anyhow!("the file contains a broken certificate: {error}"))?;
    }
    ensure!(!roots.is_empty(), "the file contains no certificate; name the PEM file of the API server's CA");
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A self-signed certificate.
    const CERTIFICATE: &str = include_str!("root_ca/ca.pem");

    fn loaded(content: &str) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(content.as_bytes()).expect("written");
        let cluster = kube::Config::new(http::Uri::from_static("https://example.com"));
        load(Some(file.path()), &cluster, None).map(|ca| ca.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn root_ca_file_is_published_byte_for_byte() {
        let text = format!("a comment\n{CERTIFICATE}{CERTIFICATE}\n");
        assert_eq!(loaded(&text), Ok(text));
    }

    #[test]
    fn root_ca_file_without_certificate_is_an_error() {
        for (content, problem) in [
            ("", "contains no certificate"),
            ("text", "contains no certificate"),
            ("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", "broken certificate"),
            ("-----BEGIN CERTIFICATE-----\nMA==\n", "not PEM"),
        ] {
            let error = loaded(content).expect_err("refused");
            assert!(error.starts_with("--root-ca-file=") && error.contains(problem), "{content:?}: {error}");
        }
        let cluster = kube::Config::new(http::Uri::from_static("https://example.com"));
        let error = load(Some(Path::new("/nowhere")), &cluster, None).expect_err("refused").to_string();
        assert!(error.starts_with("--root-ca-file=/nowhere: cannot read the file: "), "{error}");
    }

    #[test]
    fn root_ca_without_file_is_that_of_the_connection() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(CERTIFICATE.as_bytes()).expect("written");
        let mut cluster = kube::Config::new(http::Uri::from_static("https://example.com"));
        assert_eq!(load(None, &cluster, None).expect("loaded"), "".into());
        cluster.root_cert_file = Some(file.path().to_path_buf());
        assert_eq!(load(None, &cluster, None).expect("loaded"), CERTIFICATE.into());
    }
}
