//! The responses of webhooks that a write has received.
//!
//! A write holds the lock of the registry and cannot wait. If it needs the response of a webhook, it stops before it
//! has changed anything, the server calls the webhook without the lock, and the write starts again.
//!
//! Guarantees:
//! - A write that starts again has the time and the random values of its first start, so it sends equal reviews.
//! - A response is used only for an equal review. If the object has changed meanwhile, the webhook is called again, as
//!   by upstream.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::status::Status;
use crate::webhooks::WebhookAddress;

/// The response of a webhook, or the reason why there is none.
pub(crate) type Answer = Result<Value, String>;

/// A call of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) address: WebhookAddress,
    pub(crate) limit: Duration,
    /// Review without the UID of the request.
    pub(crate) review: Value,
}

/// The state of a write between its starts.
#[derive(Debug)]
pub(crate) struct Replay {
    begun: Timestamp,
    drawn: Vec<String>,
    next_drawn: usize,
    answers: Vec<(Call, Answer)>,
    next_answer: usize,
    missing: Vec<Call>,
}

impl Replay {
    /// Returns the state of a write that begins at this time.
    pub(crate) fn new(begun: Timestamp) -> Replay {
        let (drawn, answers, missing) = (Vec::new(), Vec::new(), Vec::new());
        Replay { begun, drawn, next_drawn: 0, answers, next_answer: 0, missing }
    }

    /// Returns the time of the write.
    pub(crate) fn begun(&self) -> Timestamp {
        self.begun
    }

    /// Returns the next random value of the write.
    pub(crate) fn draw(&mut self, draw: impl FnOnce() -> String) -> String {
        if self.next_drawn == self.drawn.len() {
            self.drawn.push(draw());
        }
        self.next_drawn += 1;
        self.drawn[self.next_drawn - 1].clone()
    }

    /// Returns the response to this call. If there is none yet, the write must end with an error, and starts again.
    pub(crate) fn answer(&mut self, call: Call) -> Option<Answer> {
        match self.answers.get(self.next_answer) {
            Some((known, answer)) if *known == call => {
                self.next_answer += 1;
                Some(answer.clone())
            }
            _ => {
                self.answers.truncate(self.next_answer);
                self.missing.push(call);
                None
            }
        }
    }

    /// Returns the calls whose responses are missing, and prepares the next start.
    pub(crate) fn rewind(&mut self) -> Vec<Call> {
        (self.next_drawn, self.next_answer) = (0, 0);
        std::mem::take(&mut self.missing)
    }

    /// Adds responses to the calls of [`rewind`](Self::rewind).
    pub(crate) fn add(&mut self, answers: Vec<(Call, Answer)>) {
        self.answers.extend(answers);
    }
}

/// Returns the error of a write that starts again when the responses of webhooks are present. No client receives it.
pub(crate) fn waiting() -> Status {
    Status::internal("the write waits for a webhook")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(review: Value) -> Call {
        let address = WebhookAddress::of(&json!({"url": "https://127.0.0.1/a"}));
        Call { address, limit: Duration::from_secs(1), review }
    }

    #[test]
    fn response_is_used_for_an_equal_review_only() {
        let mut replay = Replay::new(Timestamp::UNIX_EPOCH);
        let review = |number: i32| call(json!({ "object": number }));
        assert_eq!((replay.answer(review(1)), replay.answer(review(2))), (None, None));
        let missing = replay.rewind();
        replay.add(missing.into_iter().map(|it| (it, Ok(json!("yes")))).collect());
        assert_eq!(replay.answer(review(1)), Some(Ok(json!("yes"))));
        assert_eq!(replay.answer(review(3)), None);
        assert_eq!(replay.rewind(), [review(3)]);
        replay.add(vec![(review(3), Err("no".to_owned()))]);
        assert_eq!(replay.answer(review(1)), Some(Ok(json!("yes"))));
        assert_eq!(replay.answer(review(3)), Some(Err("no".to_owned())));
    }

    #[test]
    fn random_values_are_repeated_at_each_start() {
        let mut replay = Replay::new(Timestamp::UNIX_EPOCH);
        assert_eq!(replay.draw(|| "a".to_owned()), "a");
        replay.rewind();
        assert_eq!(replay.draw(|| "b".to_owned()), "a");
        assert_eq!(replay.draw(|| "b".to_owned()), "b");
    }
}
