//! Times and allocations of parts of the runtime, measured in this process.

use std::time::Instant;

/// Result of one measurement of one workload.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall time per key, or per unit of the workload.
    pub nanoseconds: f64,
    /// Allocations per key.
    pub allocations: f64,
}

/// Measures a workload of this side: calls `round`, which processes `keys` keys, for about `milliseconds`, after one
/// warm-up call.
pub fn measure(milliseconds: u32, keys: u32, mut round: impl FnMut()) -> Cost {
    round();
    let (start, mut rounds) = (Instant::now(), 0u32);
    let counted = allocation_counter::measure(|| {
        while start.elapsed().as_millis() < u128::from(milliseconds) {
            round();
            rounds += 1;
        }
    });
    let handled = f64::from(rounds) * f64::from(keys);
    Cost {
        nanoseconds: start.elapsed().as_secs_f64() * 1e9 / handled,
        allocations: counted.count_total as f64 / handled,
    }
}
