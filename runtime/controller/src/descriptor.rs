//! The names a controller goes by.

/// What one controller is called, by whom.
///
/// Built in a constant, so every name is known before anything runs:
///
/// ```
/// # use windlass_controller::Descriptor;
/// const ENDPOINTS: Descriptor = Descriptor::new("endpoints-controller")
///     .with_aliases(&["endpoint"])
///     .with_client_name("endpoint-controller")
///     .with_queue_name("endpoint");
/// # assert_eq!(ENDPOINTS.client_name, "endpoint-controller");
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The canonical name: in `--controllers`, in logs and in metrics.
    pub name: &'static str,
    /// Older names that `--controllers` still accepts.
    pub aliases: &'static [&'static str],
    /// User agent, service account and event source. Roles are bound to it, so it outlives renames.
    pub client_name: &'static str,
    /// The `name` label of the queue's metrics.
    pub queue_name: &'static str,
    /// Whether `*` in `--controllers` switches it on.
    pub enabled_by_default: bool,
}

impl Descriptor {
    /// A controller that uses `name` everywhere, has no aliases and is on by default.
    pub const fn new(name: &'static str) -> Self {
        Self { name, aliases: &[], client_name: name, queue_name: name, enabled_by_default: true }
    }

    /// Also answers to `aliases` in `--controllers`.
    pub const fn with_aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Speaks to the API server as `client_name`.
    pub const fn with_client_name(self, client_name: &'static str) -> Self {
        Self { client_name, ..self }
    }

    /// Labels its queue's metrics `queue_name`.
    pub const fn with_queue_name(self, queue_name: &'static str) -> Self {
        Self { queue_name, ..self }
    }

    /// Runs only when named explicitly (`enabled = false`), or also through `*` (`true`, the default).
    pub const fn with_enabled_by_default(self, enabled: bool) -> Self {
        Self { enabled_by_default: enabled, ..self }
    }

    /// Runs only when named explicitly.
    pub const fn disabled_by_default(self) -> Self {
        self.with_enabled_by_default(false)
    }
}
