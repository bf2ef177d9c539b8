//! The defects that a test has planted. Without the feature `planted`: an empty type that says no.

/// Names of defects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted")]
    defects: std::collections::BTreeSet<&'static str>,
}

#[cfg(feature = "planted")]
impl Planted {
    pub(crate) fn with(mut self, defect: &'static str) -> Self {
        self.defects.insert(defect);
        self
    }

    pub(crate) fn has(&self, defect: &'static str) -> bool {
        self.defects.contains(defect)
    }
}

#[cfg(not(feature = "planted"))]
impl Planted {
    pub(crate) const fn has(&self, _defect: &'static str) -> bool {
        false
    }
}
