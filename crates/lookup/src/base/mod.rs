//! What structures are built from. Nothing here imports a structure.
//!
//! | module | content |
//! |---|---|
//! | [`part`] | parts and their ids, changes, prefixes of digests |
//! | [`crowd`] | parts with far more names than random digests put into one |
//! | `directory` | parts behind a directory of prefixes: split, merge, replace; what a view has sent for each |
//! | `rows` | which parts changed since rows were last taken; the row of a version |
//! | `single` | the control half of one table, for any skeleton |
//! | `undivided` | query structures of one part |
//! | `partition`, `served` | how a control half of parts is built from all names; how readers find the parts of a query half |
//! | [`error`] | why an update or a name is refused |
//! | [`bytes`] | reading the fields of messages, and why that fails |
//! | [`root`], `shown` | the first page of a table's arena, where readers begin, those of other programs, too; the file in which they find it |
//! | [`arena`], [`words`], [`atomic_words`], [`cells`] | memory on huge pages, and values of a few bits in it |
//! | [`prefetch`] | bursts, and prefetching lines |
//! | `vectors` | eight words in a vector: mixes, and loads of scattered words |
//! | [`processor`] | the vector instructions that lookup loops use |
//! | [`bits`] | sets of the names of a burst |
//! | [`marked`] | tables of keys with marks, in lines that are compared at once; the exact check of a gateway |
//! | [`touched`] | the parts of a skeleton that a store must be told of |
//! | [`visible`] | texts from elsewhere, as they may be shown |
//! | [`touches`] | which bytes a lookup reads, for models of caches |

pub mod arena;
pub mod atomic_words;
pub mod bits;
pub mod bytes;
pub mod cells;
pub mod crowd;
pub(crate) mod directory;
pub mod error;
pub mod marked;
pub mod part;
pub(crate) mod partition;
pub mod prefetch;
pub mod processor;
pub mod root;
pub(crate) mod rows;
pub(crate) mod served;
#[cfg(unix)]
pub mod shown;
pub(crate) mod single;
pub mod touched;
pub mod touches;
pub(crate) mod undivided;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vectors;
pub mod visible;
pub mod words;
