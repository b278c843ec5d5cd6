//! Two levels of set-associative cache in front of memory.
