//! The fields of a PersistentVolumeClaim that the controllers read.

use windlass_macros::View;
use windlass_object::Metadata;

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/PersistentVolumeClaim", crate = windlass_object)]
pub(crate) struct VolumeClaimView {
    pub(crate) metadata: Metadata,
}
