//! The server for health, metrics and pages: its address, its certificate and its clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use windlass::admin::{Access, AdminConfig, AdminConfigError, Tls};

use crate::settings::{InvalidInput, ServingSettings, SettingValue, Source};

/// The base name of the files in `--cert-dir`, as in kube-controller-manager, so that its pair can be reused.
const PAIR: &str = "kube-controller-manager";

/// Returns the configuration of the server; none with `--secure-port=0`.
pub(super) fn admin(settings: ServingSettings) -> Result<Option<AdminConfig>, InvalidInput> {
    let ServingSettings {
        bind_address,
        secure_port,
        cert_dir,
        tls_cert_file,
        tls_private_key_file,
        plain_http,
        disable_http2_serving,
        authorization_always_allow_paths: always_allow,
        authentication_token_webhook_cache_ttl: authentication_ttl,
        authorization_webhook_cache_authorized_ttl: allow_ttl,
        authorization_webhook_cache_unauthorized_ttl: deny_ttl,
    } = settings;
    let files = files(&tls_cert_file, &tls_private_key_file)?;
    let Some(port) = u16::try_from(secure_port.value.0).ok().filter(|port| *port != 0) else {
        if plain_http.value {
            let problem = format!("{}=0 disables the server", secure_port.name());
            return Err(plain_http.invalid(problem, "leave one of them out"));
        }
        return Ok(None);
    };
    if !disable_http2_serving.value {
        return Err(disable_http2_serving.invalid("HTTP/2 is not served", "leave it out"));
    }
    let address = SocketAddr::new(bind_address.value, port);
    if plain_http.value {
        let config = AdminConfig::local(address);
        if config.validate().is_err() {
            let problem = format!(
                "plain HTTP requires a loopback address, and {} is {}",
                bind_address.name(),
                address.ip()
            );
            return Err(plain_http.invalid(problem, "write --bind-address=127.0.0.1, or leave it out"));
        }
        let secure: [&Source; 6] =
            [&tls_cert_file, &cert_dir, &always_allow, &authentication_ttl, &allow_ttl, &deny_ttl];
        return match secure.into_iter().find(|other| !other.is_default()) {
            Some(other) => {
                let problem = format!("{} disables TLS and reviews", plain_http.name());
                Err(other.invalid(problem, "leave one of them out"))
            }
            None => Ok(Some(config)),
        };
    }
    let access = Access::Delegated {
        always_allow: always_allow.value.0.clone(),
        authentication_ttl: authentication_ttl.value.0,
        allow_ttl: allow_ttl.value.0,
        deny_ttl: deny_ttl.value.0,
    };
    let kept = |folder| Tls::Persisted { folder, name: PAIR.to_owned() };
    // As upstream, files take precedence over the directory.
    let tls = files.unwrap_or_else(|| cert_dir.value.map_or(Tls::SelfSigned, kept));
    let config = AdminConfig { address, tls, access };
    if let Err(AdminConfigError::AllAllowed { .. }) = config.validate() {
        let problem = "\"/*\" exposes all endpoints without authentication";
        return Err(always_allow.invalid(problem, "list the paths, or write --bind-address=127.0.0.1"));
    }
    Ok(Some(config))
}

/// Returns the pair of files, if both are given.
fn files(
    certificate: &SettingValue<Option<PathBuf>>,
    key: &SettingValue<Option<PathBuf>>,
) -> Result<Option<Tls>, InvalidInput> {
    match (&certificate.value, &key.value) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(Tls::Files { certificate: certificate.clone(), key: key.clone() }))
        }
        (Some(_), None) => {
            Err(certificate.invalid("a certificate without a key", format!("write {} too", key.name())))
        }
        (None, Some(_)) => {
            Err(key.invalid("a key without a certificate", format!("write {} too", certificate.name())))
        }
    }
}
