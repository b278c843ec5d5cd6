//! What follows from a change that is refused.

use crate::change::Refusal;
use fib::network::NetworkError;
use fib::rib::RibError;

/// Whether two names have one digest: another key is the remedy.
pub(super) fn is_collision(refusal: &Refusal) -> bool {
    fn is_collision(error: &NetworkError) -> bool {
        match error {
            NetworkError::Rib(RibError::DigestCollision { .. }) => true,
            NetworkError::Batch { source, .. } => is_collision(source),
            _ => false,
        }
    }
    matches!(refusal, Refusal::Network { source, .. } if is_collision(source))
}

/// Whether a change that was refused may have changed how names are arranged.
pub(super) fn may_leave_traces(refusal: &Refusal) -> bool {
    fn may(error: &NetworkError) -> bool {
        match error {
            NetworkError::Graph(_) | NetworkError::Crowded { .. } | NetworkError::TenantCrowds { .. } => true,
            NetworkError::Batch { source, .. } => may(source),
            _ => false,
        }
    }
    matches!(refusal, Refusal::Network { source, .. } if may(source))
}
