//! The atomics of this module: those of std, or loom's under `--cfg loom`; and macros that mark what must not be
//! weaker.

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, fence},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, fence},
};

pub(super) use std::sync::atomic::Ordering;

/// `required!(Mutant, Ordering)`: an ordering that the proof needs. A model told to break `Mutant` weakens it.
macro_rules! required {
    ($mutant:ident, $ordering:ident) => {{
        #[cfg(loom)]
        let ordering =
            if super::mutants::Mutant::$mutant.is_active() { Ordering::Relaxed } else { Ordering::$ordering };
        #[cfg(not(loom))]
        let ordering = Ordering::$ordering;
        ordering
    }};
}

/// `step!(Mutant, expression)`: a step that the proof needs. A model told to break `Mutant` leaves it out.
macro_rules! step {
    ($mutant:ident, $step:expr) => {{
        #[cfg(loom)]
        if !super::mutants::Mutant::$mutant.is_active() {
            $step;
        }
        #[cfg(not(loom))]
        $step;
    }};
}

pub(super) use {required, step};
