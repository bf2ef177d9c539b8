//! Limits the size of an Endpoints object.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset};

use super::subsets::{address_count, some};

/// Maximum number of addresses in an Endpoints object. A larger object would be too large to send to each node after
/// each change; EndpointSlices have no such limit.
pub(super) const MAX_ADDRESSES: usize = 1000;

/// Returns the subsets limited to [`MAX_ADDRESSES`], and whether addresses were removed.
///
/// Ready addresses have precedence: they are truncated only if they alone exceed the limit, and then all other
/// addresses are removed. Each subset keeps its share, rounded up, until the limit is reached. Empty subsets are
/// removed, because API servers reject them.
pub(super) fn truncate(subsets: Vec<EndpointSubset>) -> (Vec<EndpointSubset>, bool) {
    let total = address_count(&subsets);
    if total <= MAX_ADDRESSES {
        return (subsets, false);
    }
    let ready: usize = subsets.iter().map(|subset| len(subset.addresses.as_ref())).sum();
    let cut = if ready > MAX_ADDRESSES {
        cut(subsets, ready, MAX_ADDRESSES, Cut::Ready)
    } else {
        cut(subsets, total - ready, MAX_ADDRESSES - ready, Cut::NotReady)
    };
    (cut, true)
}

/// Addresses that are truncated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Some of the ready addresses, and all others.
    Ready,
    /// Some of the addresses that are not ready.
    NotReady,
}

/// Keeps `allowed` of `total` addresses.
fn cut(subsets: Vec<EndpointSubset>, total: usize, allowed: usize, which: Cut) -> Vec<EndpointSubset> {
    let mut left = allowed;
    let shorten = |mut subset: EndpointSubset| {
        let addresses =
            if which == Cut::Ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let kept = share(len(addresses.as_ref()), total, allowed).min(left);
        *addresses = addresses.take().and_then(|addresses| keep(addresses, kept));
        left -= len(addresses.as_ref());
        if which == Cut::Ready {
            subset.not_ready_addresses = None;
        }
        subset
    };
    let holds_any = |subset: &EndpointSubset| address_count(std::slice::from_ref(subset)) > 0;
    subsets.into_iter().map(shorten).filter(holds_any).collect()
}

/// Returns the share of a part, rounded up.
///
/// Uses floating point like other controllers: with a share that differs by one, the controllers would undo each
/// other's writes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers count the pods of one Service, and none is negative"
)]
fn share(part: usize, total: usize, allowed: usize) -> usize {
    ((part as f64 / total as f64) * allowed as f64).ceil() as usize
}

fn keep(mut addresses: Vec<EndpointAddress>, count: usize) -> Option<Vec<EndpointAddress>> {
    addresses.truncate(count);
    some(addresses)
}

fn len(addresses: Option<&Vec<EndpointAddress>>) -> usize {
    addresses.map_or(0, Vec::len)
}
