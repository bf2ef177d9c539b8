//! The address of the cluster without credentials.

use http::Uri;
use kube::Config;

/// Returns a configuration for the same server, CA and proxy, but without credentials.
///
/// Copies an explicit list of fields, because a field that kube adds later could be a credential. The headers of the
/// configuration are not copied, because they can contain credentials as well.
pub(crate) fn anonymous(config: &Config) -> Config {
    let mut kept = Config::new(without_userinfo(&config.cluster_url));
    kept.default_namespace.clone_from(&config.default_namespace);
    kept.root_cert.clone_from(&config.root_cert);
    kept.root_cert_file.clone_from(&config.root_cert_file);
    kept.accept_invalid_certs = config.accept_invalid_certs;
    kept.tls_server_name.clone_from(&config.tls_server_name);
    kept.proxy_url.clone_from(&config.proxy_url);
    kept.disable_compression = config.disable_compression;
    kept
}

/// Removes user name and password from the address of a server.
fn without_userinfo(server: &Uri) -> Uri {
    let Some((_, host)) = server.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return server.clone();
    };
    let mut parts = server.clone().into_parts();
    parts.authority = host.parse().ok();
    // The rest of a valid address is valid; without a host it leads to no other server.
    Uri::from_parts(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderValue, header};
    use serde_json::json;

    use super::*;

    // parity: anonymous-client-config
    #[test]
    fn anonymous_config_keeps_only_the_route_to_the_server() {
        let mut config = Config::new(Uri::from_static("https://user:s3cr3t@api.test:6443/prefix"));
        config.default_namespace = "web".into();
        config.root_cert = Some(vec![vec![1, 2, 3]]);
        config.root_cert_file = Some("/ca.crt".into());
        config.accept_invalid_certs = true;
        config.tls_server_name = Some("kubernetes".into());
        config.proxy_url = Some(Uri::from_static("http://proxy.test"));
        config.read_timeout = Some(Duration::from_secs(1));
        config.headers.push((header::AUTHORIZATION, HeaderValue::from_static("Bearer s3cr3t")));
        config.headers.push(("impersonate-user".parse().unwrap(), HeaderValue::from_static("s3cr3t")));
        config.auth_info = serde_json::from_value(json!({
            "username": "s3cr3t", "password": "s3cr3t", "token": "s3cr3t", "tokenFile": "/s3cr3t",
            "client-certificate": "/s3cr3t", "client-certificate-data": "s3cr3t",
            "client-key": "/s3cr3t", "client-key-data": "s3cr3t",
            "as": "s3cr3t", "as-uid": "s3cr3t", "as-groups": ["s3cr3t"], "as-user-extra": {"a": ["s3cr3t"]},
            "auth-provider": {"name": "s3cr3t", "config": {}},
            "exec": {"command": "s3cr3t", "apiVersion": "client.authentication.k8s.io/v1"},
        }))
        .unwrap();
        let kept = anonymous(&config);
        assert_eq!(kept.cluster_url, "https://api.test:6443/prefix");
        assert_eq!(kept.default_namespace, "web");
        assert_eq!((kept.root_cert, kept.root_cert_file), (config.root_cert, config.root_cert_file));
        assert!(kept.accept_invalid_certs && kept.headers.is_empty());
        assert_eq!(kept.tls_server_name.as_deref(), Some("kubernetes"));
        assert_eq!(kept.proxy_url, Some(Uri::from_static("http://proxy.test")));
        let no_credentials = serde_json::to_value(kube::config::AuthInfo::default()).unwrap();
        assert_eq!(serde_json::to_value(&kept.auth_info).unwrap(), no_credentials);
    }
}
