//! Keeping an Endpoints object small enough to be stored and watched.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset};

use super::subsets::{address_count, some};

/// The most addresses an Endpoints object holds. Beyond it one object would be too large to send to every node on
/// every change; EndpointSlices have no such limit.
pub(super) const MAX_ADDRESSES: usize = 1000;

/// The subsets cut down to [`MAX_ADDRESSES`], and whether that was necessary.
///
/// Ready addresses come first: only when they alone exceed the limit are some left out, and then all others are.
/// Each subset keeps its share, rounded up, until the limit is used up. A subset left without addresses goes too:
/// API servers refuse such a one.
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

/// Which addresses are cut down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Some of the ready ones, and all others.
    Ready,
    /// Some of those that are not ready.
    NotReady,
}

/// Leaves `allowed` of `total` addresses.
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

/// A part's share of what is allowed, rounded up.
///
/// In floating point, because other controllers do it so, and a share that differs by one would make us undo each
/// other's work.
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
