//! IPs of pods, listed pods, and target ports.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    V4, V4_V6, V6, V6_V4, pod, pod_address, port_view, service, service_port, service_with,
    with_container_ports,
};
use crate::endpoints::addresses::{address, is_listed};
use crate::endpoints::ports::find_port;
use crate::shared::fixtures::{being_deleted, in_namespace, with_phase};
use crate::shared::pod_view::{ContainerPortView, InitContainerView, PodIpView, PodView};

/// Returns the IP of a pod for a Service with this cluster IP and these families.
fn ip(cluster_ip: &str, families: &[&str], pod: &PodView) -> Option<String> {
    let service = service_with(|spec| {
        spec.cluster_ip = Some(cluster_ip.into());
        spec.ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
    });
    address(&service, pod).map(|address| address.ip)
}

#[test]
fn first_family_of_service_selects_the_ip() {
    let (first_v4, first_v6) = (Some("1.2.3.4".to_owned()), Some("2000::4".to_owned()));
    assert_eq!(ip("10.0.0.1", V4, &pod(0, true, V4)), first_v4);
    assert_eq!(ip("10.0.0.1", V4, &pod(0, true, V4_V6)), first_v4);
    assert_eq!(ip("10.0.0.1", V4, &pod(0, true, V6_V4)), first_v4);
    assert_eq!(ip("None", V4, &pod(0, true, V4)), first_v4);
    assert_eq!(ip("None", V4, &pod(0, true, V4_V6)), first_v4);
    assert_eq!(ip("3000::1", V6, &pod(0, true, V4_V6)), first_v6);
    assert_eq!(ip("None", V6, &pod(0, true, V6)), first_v6);
    assert_eq!(ip("None", V6, &pod(0, true, V4_V6)), first_v6);
    assert_eq!(ip("3000::1", V6_V4, &pod(0, true, V4_V6)), first_v6);
    assert_eq!(ip("3000::1", V6, &pod(0, true, V4)), None);
}

#[test]
fn family_defaults_to_cluster_ip_and_then_to_pod_ip() {
    let v6_pod = pod(0, true, V6);
    assert_eq!(ip("10.0.0.1", &[], &pod(0, true, V4)).as_deref(), Some("1.2.3.4"));
    assert_eq!(ip("fd00::1", &[], &v6_pod).as_deref(), Some("2000::4"));
    assert_eq!(ip("10.0.0.1", &[], &v6_pod), None);
    assert_eq!(ip("None", &[], &pod(0, true, V4)).as_deref(), Some("1.2.3.4"));
    assert_eq!(ip("None", &[], &v6_pod).as_deref(), Some("2000::4"));
}

#[test]
fn ips_are_canonicalized_and_invalid_ones_are_skipped() {
    let with_ip = |ip: &str| {
        let mut pod = pod(0, true, V4);
        pod.pod_ips = [PodIpView { ip: ip.into() }].into();
        pod
    };
    assert_eq!(ip("None", V4, &with_ip("01.02.003.4")).as_deref(), Some("1.2.3.4"));
    assert_eq!(ip("None", V4, &with_ip("::ffff:1.2.3.4")).as_deref(), Some("1.2.3.4"));
    assert_eq!(ip("None", V6, &with_ip("02000:0000::0004")), None);
    assert_eq!(ip("None", V6, &with_ip("2000:0000::0004")).as_deref(), Some("2000::4"));
    for broken in ["", "1.2.3", "1.2.3.256", "1.2.3.+4", "<nil>"] {
        assert_eq!(ip("None", V4, &with_ip(broken)), None, "{broken:?}");
    }
}

#[test]
fn address_contains_node_and_pod_reference() {
    assert_eq!(address(&service(), &pod(0, true, V4)), Some(pod_address(0)));
    let mut placed = pod(0, true, V4);
    placed.node = "node-1".into();
    assert_eq!(address(&service(), &placed).and_then(|address| address.node_name).as_deref(), Some("node-1"));
}

#[test]
fn hostname_is_listed_only_in_subdomain_service() {
    let hostname = |namespace: &str, hostname: &str, subdomain: &str| {
        let mut pod = in_namespace(pod(0, true, V4), namespace);
        (pod.hostname, pod.subdomain) = (Some(hostname.into()), Some(subdomain.into()));
        address(&service(), &pod).and_then(|address| address.hostname)
    };
    assert_eq!(hostname("default", "me", "foo").as_deref(), Some("me"));
    assert_eq!(hostname("default", "", "foo"), None);
    assert_eq!(hostname("default", "me", "bar"), None);
    assert_eq!(hostname("elsewhere", "me", "foo"), None);
}

#[test]
fn terminated_pods_and_pods_without_ip_are_not_listed() {
    let check = |pod: &PodView, expected: bool, leaving_too: bool| {
        assert_eq!(is_listed(pod, leaving_too), expected, "{pod:?}");
    };
    let alive = pod(0, true, V4);
    for phase in ["Failed", "Succeeded"] {
        check(&with_phase(alive.clone(), phase), false, false);
        check(&with_phase(alive.clone(), phase), false, true);
    }
    for phase in ["Pending", "Unknown", "Running"] {
        check(&with_phase(alive.clone(), phase), true, false);
    }
    check(&being_deleted(alive.clone()), false, false);
    check(&being_deleted(alive.clone()), true, true);

    let mut one_ip = alive.clone();
    one_ip.pod_ips = [].into();
    check(&one_ip, true, false);
    one_ip.pod_ip = "".into();
    check(&one_ip, false, false);
    let mut several_ips = alive;
    several_ips.pod_ip = "".into();
    check(&several_ips, true, false);
}

#[test]
fn named_port_is_found_by_name_and_protocol_in_containers_then_sidecars() {
    let named =
        |name: &str, protocol: &str| port_view(service_port(protocol, IntOrString::String(name.into())));
    let mut pod = with_container_ports(
        pod(0, true, V4),
        &[("dns", 53, "UDP"), ("dns", 54, "TCP"), ("http", 80, "TCP")],
    );
    let init = |restart: Option<&str>, name: &str, number| InitContainerView {
        name: "".into(),
        restart_policy: restart.map(Into::into),
        ports: [ContainerPortView { name: Some(name.into()), container_port: number, protocol: None }].into(),
    };
    pod.init_containers =
        [init(None, "setup", 1), init(Some("Always"), "mesh", 15_000), init(Some("Always"), "http", 81)]
            .into();

    assert_eq!(find_port(&pod, &named("dns", "UDP")), Some(53));
    assert_eq!(find_port(&pod, &named("dns", "TCP")), Some(54));
    assert_eq!(find_port(&pod, &named("dns", "SCTP")), None);
    assert_eq!(find_port(&pod, &named("http", "TCP")), Some(80), "containers come before sidecars");
    assert_eq!(find_port(&pod, &named("mesh", "TCP")), Some(15_000));
    assert_eq!(find_port(&pod, &named("setup", "TCP")), None, "an ordinary init container does not serve");
    assert_eq!(
        find_port(&pod, &port_view(service_port("TCP", IntOrString::Int(7)))),
        Some(7),
        "numbers are not looked up"
    );
}
