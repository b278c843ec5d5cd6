//! When packets come, and for which names.
