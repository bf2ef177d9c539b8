//! Where health, metrics and pages are served, behind which certificate, and to whom.

use std::fmt::Debug;
use std::net::SocketAddr;

use windlass::admin::{Access, AdminConfig, Tls};

use crate::settings::{FilePath, Given, InvalidSetting, ServingSettings};

/// What the files in `--cert-dir` are called: as kube-controller-manager calls them, so that whoever comes from there finds
/// its own.
const PAIR: &str = "kube-controller-manager";

pub(super) fn of(settings: ServingSettings) -> Result<Option<AdminConfig>, InvalidSetting> {
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
    // Whoever serves nothing may leave the rest as it is: command lines of kube-controller-manager do. One of ours is to
    // say what it means.
    let Some(port) = u16::try_from(secure_port.value.0).ok().filter(|port| *port != 0) else {
        if plain_http.value {
            let problem = format!("nothing is served with {}=0", secure_port.called());
            return Err(plain_http.refuse(problem, "leave one of them out"));
        }
        return Ok(None);
    };
    let address = SocketAddr::new(bind_address.value.0, port);
    if !plain_http.value {
        let access = Access::Reviewed {
            always_allow: always_allow.value.0,
            authentication_ttl: authentication_ttl.value.0,
            allow_ttl: allow_ttl.value.0,
            deny_ttl: deny_ttl.value.0,
        };
        let kept = |folder| Tls::Kept { folder, name: PAIR.to_owned() };
        // With files that are given the directory is not looked at, as upstream says.
        let tls = files.unwrap_or_else(|| cert_dir.value.0.map_or(Tls::SelfSigned, kept));
        let http2 = !disable_http2_serving.value;
        return Ok(Some(AdminConfig { address, tls, access, http2 }));
    }
    let config = AdminConfig::local(address);
    if config.validate().is_err() {
        let problem =
            format!("plain HTTP stays on loopback, and {} is {}", bind_address.called(), address.ip());
        return Err(
            plain_http.refuse(problem, "write --bind-address=127.0.0.1 or ::1 as well, or leave it out")
        );
    }
    unused_with(&plain_http, &tls_cert_file, files.is_some())?;
    unused_with(&plain_http, &cert_dir, cert_dir.value.0.is_some())?;
    unused_with(&plain_http, &disable_http2_serving, !disable_http2_serving.value)?;
    unused_with(&plain_http, &always_allow, !always_allow.is_default())?;
    for ttl in [&authentication_ttl, &allow_ttl, &deny_ttl] {
        unused_with(&plain_http, ttl, !ttl.is_default())?;
    }
    Ok(Some(config))
}

/// Both files or neither.
fn files(certificate: &Given<FilePath>, key: &Given<FilePath>) -> Result<Option<Tls>, InvalidSetting> {
    match (&certificate.value.0, &key.value.0) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(Tls::Files { certificate: certificate.clone(), key: key.clone() }))
        }
        (Some(_), None) => {
            Err(certificate.refuse("a certificate without its key", format!("give {} too", key.called())))
        }
        (None, Some(_)) => {
            Err(key.refuse("a key without its certificate", format!("give {} too", certificate.called())))
        }
    }
}

/// Refuses what plain HTTP would not look at. What is as by default may have been written down with all the rest.
fn unused_with<T: crate::settings::Kind + Debug>(
    plain_http: &Given<bool>,
    other: &Given<T>,
    is_set: bool,
) -> Result<(), InvalidSetting> {
    if !is_set {
        return Ok(());
    }
    let problem = format!("{} serves everybody, without TLS", plain_http.called());
    Err(other.refuse(problem, "leave one of them out"))
}
