//! Every property, with every input that is written down.

use windlass_fuzz::{TARGETS, corpus};

#[test]
fn every_property_holds_for_every_input_that_is_written_down() {
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
