//! Cases of upstream unit tests.
