//! Compact name lookup structures: control halves that know names, query halves that are words only.

pub mod hash;
