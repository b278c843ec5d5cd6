//! Lookups, one burst at a time: all nodes of a level are fetched, then all leaves, then those that continue. The nodes
//! of the top are fetched ahead, by [`prefetch_top`].
//!
//! The only data-dependent branches are those on how many of a burst continue on the next level.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the loop compiled for newer processors"))]

use super::leaf::Leaf;
use super::tables::{Tables, chunk};
use super::{TOP_BITS, bits_before, levels};
use crate::base::prefetch::BURST;
#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use crate::lpm::prefix::Address;

/// The next hop of an address.
#[inline]
pub(super) fn lookup<A: Address, L: Leaf>(tables: &Tables<L>, address: A) -> L {
    let (mut at, mut bit) = (address.bits_at(0, TOP_BITS) as usize, TOP_BITS);
    for _ in 0..levels::<A>() {
        let words = tables.load(at);
        let leaf = tables.load_leaf(words.leaf_of(address.bits_at(bit, 6)));
        if leaf < L::DEEP {
            return leaf;
        }
        bit += 6;
        if bit == A::BITS {
            break;
        }
        at = chunk(words.children.wrapping_add(leaf.bits() - L::DEEP.bits())) + address.bits_at(bit, 2) as usize;
        bit += 2;
    }
    L::default()
}

/// Starts fetching what a burst reads first: nodes of the top.
#[inline]
pub(super) fn prefetch_top<A: Address, L: Leaf>(tables: &Tables<L>, addresses: &[A]) {
    addresses.iter().for_each(|address| tables.prefetch_node(address.bits_at(0, TOP_BITS) as usize));
}

/// The next hops of up to a burst of addresses, after [`prefetch_top`].
pub(super) fn lookup_burst<A: Address, L: Leaf>(tables: &Tables<L>, addresses: &[A], values: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if Kernel::get().vectors() >= Vectors::Avx2 {
        // SAFETY: the processor has the instructions.
        return unsafe { burst_bmi2(tables, addresses, values) };
    }
    burst(tables, addresses, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn burst_bmi2<A: Address, L: Leaf>(tables: &Tables<L>, addresses: &[A], values: &mut [u64]) {
    burst(tables, addresses, values);
}

#[inline(always)]
fn burst<A: Address, L: Leaf>(tables: &Tables<L>, addresses: &[A], values: &mut [u64]) {
    let (mut leaves, mut children) = ([0usize; BURST], [0u32; BURST]);
    for ((address, leaf), children) in addresses.iter().zip(&mut leaves).zip(&mut children) {
        let words = tables.load(address.bits_at(0, TOP_BITS) as usize);
        *leaf = words.leaf_of(address.bits_at(TOP_BITS, 6));
        *children = words.children;
        tables.prefetch_leaf(*leaf);
    }
    let mut any = L::default();
    for (value, &leaf) in values.iter_mut().zip(&leaves[..addresses.len()]) {
        let leaf = tables.load_leaf(leaf);
        *value = leaf.bits().into();
        any = any | leaf;
    }
    if any >= L::DEEP {
        go_on(tables, addresses, values, &children);
    }
}

/// The levels below the top, for the addresses whose value is not a next hop.
#[inline(always)]
fn go_on<A: Address, L: Leaf>(tables: &Tables<L>, addresses: &[A], values: &mut [u64], children: &[u32; BURST]) {
    let mut open = [(0u8, 0usize); BURST];
    let mut n_open = 0;
    for (index, &value) in values.iter().enumerate().take(addresses.len()) {
        open[n_open] = (index as u8, chunk(children[index].wrapping_add(value as u32 & (L::DEEP.bits() - 1))));
        n_open += usize::from(value >= L::DEEP.bits().into());
    }
    let mut leaves = [(0usize, 0u32); BURST];
    for level in 1..levels::<A>() {
        let bit = bits_before(level);
        for (index, at) in &mut open[..n_open] {
            *at += addresses[usize::from(*index)].bits_at(bit, 2) as usize;
            tables.prefetch_node(*at);
        }
        for (&(index, at), leaf) in open[..n_open].iter().zip(&mut leaves) {
            let words = tables.load(at);
            *leaf = (words.leaf_of(addresses[usize::from(index)].bits_at(bit + 2, 6)), words.children);
            tables.prefetch_leaf(leaf.0);
        }
        let mut n_left = 0;
        for at in 0..n_open {
            let (index, (leaf, children)) = (open[at].0, leaves[at]);
            let leaf = tables.load_leaf(leaf);
            values[usize::from(index)] = leaf.bits().into();
            open[n_left] = (index, chunk(children.wrapping_add(leaf.bits() & (L::DEEP.bits() - 1))));
            n_left += usize::from(leaf >= L::DEEP);
        }
        n_open = n_left;
        if n_open == 0 {
            return;
        }
    }
    // Only a read that overlaps a write continues after the last bit: it is repeated.
    open[..n_open].iter().for_each(|&(index, _)| values[usize::from(index)] = 0);
}
