//! Compact name lookup structures: control halves that know names, query halves that are words only.

pub mod alien;
pub mod arena;
pub mod bloom;
pub mod bloom_fib;
pub mod bytes;
pub mod cells;
pub mod cuckoo;
pub mod flow;
pub mod hash;
pub mod image;
pub mod line;
pub mod lpm;
pub mod othello;
pub mod papers_protocol;
mod partition;
pub mod publish;
mod shards;
pub mod static_map;
pub mod testkit;
pub mod touches;
pub mod traits;
pub mod tuple_space;
pub mod words;
