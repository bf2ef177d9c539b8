//! Runs one property of `windlass-fuzz` under libFuzzer: the one in `WINDLASS_FUZZ_TARGET`. First it writes the inputs
//! of the corpus into the folder in `WINDLASS_FUZZ_SEEDS`, if set.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::Target;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("WINDLASS_FUZZ_TARGET").unwrap_or_default();
        let target = windlass_fuzz::target(&name).unwrap_or_else(|| {
            let known: Vec<_> = windlass_fuzz::TARGETS.iter().map(|it| it.name).collect();
            panic!("WINDLASS_FUZZ_TARGET={name:?} is not a target; use one of {}", known.join(", "))
        });
        if let Some(folder) = std::env::var_os("WINDLASS_FUZZ_SEEDS") {
            windlass_fuzz::corpus::unfold(target, folder.as_ref()).expect("the folder can be written to");
        }
        TARGET.get_or_init(|| target);
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.check)(data);
        }
    }
);
