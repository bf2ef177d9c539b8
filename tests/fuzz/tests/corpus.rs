//! Runs every property with every input in the corpus.

use windlass_fuzz::{TARGETS, corpus};

#[test]
fn every_property_holds_for_its_corpus() {
    for target in TARGETS {
        let mut tried = 0;
        for input in corpus::inputs(target) {
            let held = std::panic::catch_unwind(|| (target.check)(&input));
            assert!(held.is_ok(), "{}: {}", target.name, input.escape_ascii());
            tried += 1;
        }
        assert!(tried > 0, "{} has no inputs", target.name);
    }
}
