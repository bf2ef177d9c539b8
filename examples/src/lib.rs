//! One controller twice, each time with the test that belongs to it.
//!
//! It gives a disk to every Service that asks for one. [`leaky_disks`] does so in two writes, as one would at first, and
//! its test finds what happens when the process dies between them. [`kept_disks`] is the same controller, repaired, and
//! its test shows that it is. `docs/testing.md` goes through both.

pub mod kept_disks;
pub mod leaky_disks;
