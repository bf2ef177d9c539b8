//! Middleware that adds the token of a ServiceAccount. It takes the position of the process credentials in other
//! stacks: outside of the fence, so that a request that waited for a token is checked by the fence afterwards.

use http::{StatusCode, header};

use super::tokens::{TokenCache, TokenRef};
use crate::stack::{
    BoxedRequest, Middleware, Next, RequestState, ResponseResult, copy, metrics::RequestMeter,
};

#[derive(Clone)]
pub(crate) struct Bearer {
    pub(crate) tokens: TokenCache,
    pub(crate) meter: RequestMeter,
}

impl Middleware for Bearer {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let token_ref = self.tokens.get().await?;
        // A streaming body can be sent only once.
        let again = copy(&request);
        let response = next.send(carrying(&token_ref, request)).await?;
        if response.status() != StatusCode::UNAUTHORIZED || !self.tokens.invalidate(&token_ref) {
            return Ok(response);
        }
        let Some(again) = again else { return Ok(response) };
        // The server authenticates first, so a request with status 401 had no effect.
        state.mark_rejected();
        drop(response);
        self.meter.retried(&again, &state, StatusCode::UNAUTHORIZED);
        let token_ref = self.tokens.get().await?;
        next.send(carrying(&token_ref, again)).await
    }
}

fn carrying(token_ref: &TokenRef, mut request: BoxedRequest) -> BoxedRequest {
    request.headers_mut().insert(header::AUTHORIZATION, token_ref.token.header());
    request
}
