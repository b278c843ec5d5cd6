//! A worker's decisions where tables leave a choice, one function each.
//!
//! The product has one set of rules, [`Correct`]. A simulation runs workers with rules that break one of these, and must notice that.
//! So none of that is in the code of the product: `R` is a type, and what a worker of `Correct` calls is inlined.

use crate::shim;

/// See the module.
pub trait Rules: Send + 'static {
    /// Whether a frame may leave by the trunk that it came from, as it came. If not, it turns or is dropped.
    #[inline(always)]
    fn may_go_back() -> bool {
        false
    }

    /// Counts a hop of a frame that goes from trunk to trunk. Returns whether it may go on.
    #[inline(always)]
    fn count_hop(frame: &mut [u8]) -> bool {
        shim::count_down(frame)
    }

    /// Whether a frame with these [`shim::flags`] turns that came by the way by which it is to go on: if the switch before has sent it on
    /// a detour, and none has turned it.
    #[inline(always)]
    fn turns(flags: u8) -> bool {
        flags & (shim::DETOUR | shim::TURNED) == shim::DETOUR
    }

    /// Whether frames take the alternate in place of their own way.
    #[inline(always)]
    fn takes_alternate(own_is_up: bool, alternate_is_up: bool) -> bool {
        !own_is_up && alternate_is_up
    }

    /// Whether a way is among those that flows are spread over, if any is.
    #[inline(always)]
    fn spreads_over(is_up: bool) -> bool {
        is_up
    }
}

/// The intended rules.
pub struct Correct;

impl Rules for Correct {}
