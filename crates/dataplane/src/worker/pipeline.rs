//! A pipeline: stages in a fixed order, through which bursts move.
//!
//! ```text
//!        ┌──────── stage ────────┐     ┌──────── stage ────────┐
//!  ─────►│ begin ─ waits ─ finish├────►│ begin ─ waits ─ finish├────► end
//! burst 4│          burst 3      │     │          burst 2      │    burst 1
//!        └───────────────────────┘     └───────────────────────┘
//! ```
//! A stage asks for memory in [`begin`](Stage::begin) and reads it in [`finish`](Stage::finish). A burst that may wait stays between
//! the two until the next burst has begun there, so that its memory comes meanwhile. One that may not wait, because no burst follows
//! at once, is finished right away, after the one that waited. So bursts leave in the order in which they came.
//!
//! The stages and their order are a type, a [`Step`] before a [`Step`], and every call is direct. A stage that is not configured is
//! `None`: it does nothing, and no burst waits there.

/// A step on the way of bursts `B`. All steps work with `C`.
pub(super) trait Stage<C, B> {
    /// Starts what takes time. `before` is the burst that waits here, if there is one, to go on with meanwhile. Returns whether there
    /// is anything to wait for.
    fn begin(&mut self, context: &mut C, burst: &mut B, before: Option<&mut B>) -> bool;

    /// Does the rest. Bursts are finished in the order in which they were begun.
    fn finish(&mut self, context: &mut C, burst: &mut B);
}

impl<C, B, S: Stage<C, B>> Stage<C, B> for Option<S> {
    #[inline]
    fn begin(&mut self, context: &mut C, burst: &mut B, before: Option<&mut B>) -> bool {
        self.as_mut().is_some_and(|stage| stage.begin(context, burst, before))
    }

    #[inline]
    fn finish(&mut self, context: &mut C, burst: &mut B) {
        if let Some(stage) = self {
            stage.finish(context, burst);
        }
    }
}

/// What bursts pass through from some place of the pipeline to its end.
pub(super) trait Rest<C, B> {
    /// Takes a burst through the stages that can finish it now: to the end, or if it `may_wait`, to the first stage with something to wait for.
    fn pass(&mut self, context: &mut C, burst: B, may_wait: bool);

    /// Takes all bursts that wait to the end.
    fn drain(&mut self, context: &mut C);
}

/// A stage, the burst that waits in it, and what follows.
pub(super) struct Step<S, B, R> {
    pub(super) stage: S,
    waiting: Option<B>,
    pub(super) rest: R,
}

impl<S, B, R> Step<S, B, R> {
    pub(super) fn new(stage: S, rest: R) -> Self {
        Self { stage, waiting: None, rest }
    }

    /// Finishes the burst that waits here, and passes it on.
    fn release<C>(&mut self, context: &mut C)
    where
        S: Stage<C, B>,
        R: Rest<C, B>,
    {
        if let Some(mut burst) = self.waiting.take() {
            self.stage.finish(context, &mut burst);
            self.rest.pass(context, burst, true);
        }
    }
}

impl<C, B, S: Stage<C, B>, R: Rest<C, B>> Rest<C, B> for Step<S, B, R> {
    fn pass(&mut self, context: &mut C, mut burst: B, may_wait: bool) {
        let waits = self.stage.begin(context, &mut burst, self.waiting.as_mut()) && may_wait;
        self.release(context);
        if waits {
            self.waiting = Some(burst);
        } else {
            self.stage.finish(context, &mut burst);
            self.rest.pass(context, burst, may_wait);
        }
    }

    fn drain(&mut self, context: &mut C) {
        self.release(context);
        self.rest.drain(context);
    }
}

#[cfg(test)]
mod tests;
