//! A bell that workers ring and one task hears, in any runtime.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// See the module. A ring without a listener is kept for the next listener, once.
#[derive(Debug, Default)]
pub struct Bell(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rang: bool,
    listener: Option<Waker>,
}

impl Bell {
    /// Wakes the listener.
    pub fn ring(&self) {
        let listener = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.rang = true;
            state.listener.take()
        };
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Waits until it rings. May be dropped before without losing a ring. If several tasks wait, the last one hears it.
    pub async fn rung(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut state.rang) {
                return Poll::Ready(());
            }
            match &mut state.listener {
                Some(listener) => listener.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_is_heard_once_also_by_one_who_came_late_or_went() {
        let (bell, woken) = (Bell::default(), Arc::<Woken>::default());
        let waker = woken.clone().into();
        let mut context = Context::from_waker(&waker);
        let hears = |context: &mut Context<'_>| pin!(bell.rung()).poll(context).is_ready();
        assert!(!hears(&mut context), "nothing rang");
        bell.ring();
        bell.ring();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "who waits is woken once");
        assert!(hears(&mut context) && !hears(&mut context), "another who waits hears both as one");
        bell.ring();
        let mut waiting = pin!(bell.rung());
        assert!(waiting.as_mut().poll(&mut context).is_ready(), "one that rang before");
    }
}
