//! The formats in which objects are requested.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_object::{Projection, ResourceKind, wire::protobuf};

/// The format of lists and watches.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum WireFormat {
    /// Protobuf for all kinds that support it, JSON for other kinds. Protobuf has about two thirds of the size, and a
    /// server encodes it several times faster.
    #[default]
    Protobuf,
    /// JSON for all kinds.
    Json,
}

/// The formats of one client and its clones, by kind.
#[derive(Clone, Debug)]
pub(crate) struct Formats {
    preferred: WireFormat,
    /// Kinds that the server did not return in a readable protobuf message.
    only_json: Arc<Mutex<BTreeSet<ResourceKind>>>,
}

impl Formats {
    pub(crate) fn new(preferred: WireFormat) -> Self {
        Self { preferred, only_json: Arc::default() }
    }

    /// Returns the format in which to request objects of a kind. Metadata has one encoding for all kinds.
    pub(crate) fn of(&self, kind: &ResourceKind, projection: Projection) -> WireFormat {
        let supported = || projection == Projection::Metadata || protobuf::supports(kind);
        let rejected = || self.only_json.lock().unwrap_or_else(PoisonError::into_inner).contains(kind);
        match self.preferred {
            WireFormat::Protobuf if supported() && !rejected() => WireFormat::Protobuf,
            WireFormat::Protobuf | WireFormat::Json => WireFormat::Json,
        }
    }

    /// Requests the kind in JSON from now on.
    pub(crate) fn fall_back(&self, kind: &ResourceKind, reason: &dyn std::fmt::Display) {
        let mut only_json = self.only_json.lock().unwrap_or_else(PoisonError::into_inner);
        if only_json.insert(kind.clone()) {
            tracing::info!(kind = %kind.kind, %reason, "protobuf not usable for kind; requesting JSON");
        }
    }
}

/// Returns the accepted formats of a list, in order of preference. Some servers send only full objects, and custom
/// resources have only JSON.
pub(crate) const fn accept_list(format: WireFormat, projection: Projection) -> &'static str {
    match (format, projection) {
        (WireFormat::Json, Projection::Full) => "application/json",
        (WireFormat::Json, Projection::Metadata) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
        (WireFormat::Protobuf, Projection::Full) => "application/vnd.kubernetes.protobuf,application/json",
        (WireFormat::Protobuf, Projection::Metadata) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
    }
}

/// Returns the accepted formats of a watch, in order of preference.
pub(crate) const fn accept_watch(format: WireFormat, projection: Projection) -> &'static str {
    match (format, projection) {
        (_, Projection::Full) => accept_list(format, projection),
        (WireFormat::Json, Projection::Metadata) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        }
        (WireFormat::Protobuf, Projection::Metadata) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        }
    }
}
