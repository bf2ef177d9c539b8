//! The number of nodes, and the number of seconds for which kubelets can cache objects.
//!
//! Pure. The bands of sizes overlap, so that a cluster at the edge of a band does not alternate between two values.

/// A band of cluster sizes.
#[derive(Debug)]
struct Band {
    /// Below this size the previous band applies.
    min: usize,
    /// Above this size the next band applies.
    max: usize,
    seconds: u32,
}

const fn band(min: usize, max: usize, seconds: u32) -> Band {
    Band { min, max, seconds }
}

/// The bands by size, with upstream's numbers.
const BANDS: [Band; 5] = [
    band(0, 100, 0),
    band(90, 500, 15),
    band(450, 1_000, 30),
    band(900, 2_000, 60),
    band(1_800, usize::MAX, 300),
];

/// The band of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterSize {
    /// Index into [`BANDS`].
    band: usize,
}

impl ClusterSize {
    /// Moves to the band of this number of nodes; returns whether the number of seconds changes.
    pub(super) fn observe(&mut self, nodes: usize) -> bool {
        let before = self.seconds();
        while nodes > BANDS[self.band].max {
            self.band += 1;
        }
        while nodes < BANDS[self.band].min {
            self.band -= 1;
        }
        self.seconds() != before
    }

    /// Returns the number of seconds.
    pub(super) fn seconds(self) -> u32 {
        BANDS[self.band].seconds
    }

    /// Returns a cluster with this number of seconds.
    #[cfg(test)]
    pub(super) fn with_seconds(seconds: u32) -> Self {
        let band = BANDS.iter().position(|band| band.seconds == seconds).expect("a band");
        Self { band }
    }
}
