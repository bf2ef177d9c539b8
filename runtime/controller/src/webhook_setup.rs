//! The declarations of the webhook server in a setup, for `windlass-webhook`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::setup::Setup;
use crate::webhook::{AdmissionDeclaration, DeclarationCount, NamedRule, WebhookConfig};

/// Declarations of the webhook server.
#[doc(hidden)]
impl Setup {
    /// Returns the configuration of the webhook server of this process.
    pub fn webhook_config(&self) -> &WebhookConfig {
        self.webhooks()
    }

    /// Declares an admission webhook.
    pub fn declare_admission(&mut self, declaration: AdmissionDeclaration) {
        self.declared().admissions.push(declaration);
    }

    /// Declares that this binary ships a CustomResourceDefinition.
    pub fn declare_definition(&mut self, definition: CustomResourceDefinition) {
        self.declared().ships(definition);
    }

    /// Declares requests for objects with known names.
    pub fn uses_named(&mut self, rule: NamedRule) {
        self.declared().names(rule);
    }

    /// Returns the numbers of declarations so far.
    pub fn declaration_count(&mut self) -> DeclarationCount {
        let caches = self.needed_count();
        DeclarationCount { caches, writes: self.declared().write_count }
    }
}
