/* The kernel half of a switch: sends frames from trunks to other trunks and to hosts, and hands all others to the workers.
 *
 *     frame from a trunk ─► shim? unicast? hops left? ─► name ─► table ─► lead of the value ─┬► another trunk ──────► redirect
 *                               │ no                                │ none, or the writer    └► local: exact map ─► host: shim off,
 *                               │                                   │ was met four times               │ no             redirect
 *                               └───────────────► AF_XDP socket of the receive queue ◄────────────────┘
 *
 * Whatever is dropped, answered, counted by a reason, or comes from a host is decided in user space, in one place.
 * scripts/kernel-program translates this into forward-arena.bpf and forward-array.bpf, which the switch loads: machines
 * that build or run it need no compiler for BPF. The maps are made by the switch (mod.rs); here they are names only.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The table: the map itself, if it is an array; an address that the switch and this program share, if it is an arena. */
#ifdef FIBULA_BPF_ARENA
#define FIBULA_BPF_WORD(form, words, at) \
	(*(volatile const unsigned long long __attribute__((address_space(1))) *)((form)->where + 8 * (at)))
#else
#define FIBULA_BPF_WORD(form, words, at) (*(volatile const unsigned long long *)((words) + ((at) & (form)->where)))
#endif

#include "fibula_bpf.h"

#define SHIM_TYPE 0xb588     /* 0x88b5, as this machine reads it */
#define SHIM_BYTES 4
#define IPV4_TYPE 0x0008
enum { MAC = 1, IPV4 = 2 };  /* names */

/* What the switch writes before it loads the program; the verifier takes it for constants. settings.rs. */
const volatile struct settings {
	struct fibula_bpf_form form;
	__u32 kind;
	__u32 slot;          /* of the trunk that the program is attached to */
} settings = {0};

#define MAP(name) extern char name SEC(".maps")
MAP(table);
MAP(leads);                  /* array: for each value a way, see below; 0: for the workers */
MAP(local);                  /* hash: for each local name this name (48 bits), and the slot of its port and 1 (16 bits) */
MAP(longest);                /* array: the longest frame of a port, by slot: its interface would lose a longer one */
MAP(counts);                 /* array per processor: by slot */
MAP(devices);                /* the interfaces of trunks and hosts, by slot */
MAP(sockets);                /* of this trunk, by receive queue */

/* A way: a slot and 1. To a host it has this bit, and no slot if it is any local port: the exact map says which, and must
 * agree. */
#define TO_HOST 0x80000000u

struct count {
	__u64 rx_frames, rx_bytes, tx_frames, tx_bytes;
};

static __always_inline int up(struct xdp_md *frame)
{
	return (int)bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

SEC("xdp")
int forward(struct xdp_md *frame)
{
	__u8 *at = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
	if (at + 18 > end || (at[0] & 1) || *(__u16 *)(at + 12) != SHIM_TYPE || at[14] < 2)
		return up(frame);
	__u64 name;
	if (settings.kind == IPV4) {
		/* Tagged packets, and those with a wrong header, are for the workers. */
		if (at + 38 > end || *(__u16 *)(at + 16) != IPV4_TYPE || at[18] >> 4 != 4)
			return up(frame);
		__u32 header = (at[18] & 15) * 4, total = (__u32)at[20] << 8 | at[21];
		if (header < 20 || total < header || total + 18 > (__u64)(end - at))
			return up(frame);
		name = *(__u32 *)(at + 34);
	} else {
		name = (__u64)*(__u32 *)at | (__u64)*(__u16 *)(at + 4) << 32;
	}
#ifdef FIBULA_BPF_ARENA
	fibula_bpf_words *words = 0;
	asm volatile("" : : "r"(&table));    /* by this the kernel knows the arena */
#else
	__u32 zero = 0;
	fibula_bpf_words *words = bpf_map_lookup_elem(&table, &zero);
	if (!words)
		return up(frame);
#endif
	__u32 value = fibula_bpf_lookup_in(&settings.form, words, fibula_bpf_digest(&settings.form, name));
	__u64 *lead = value == FIBULA_BPF_BUSY ? 0 : bpf_map_lookup_elem(&leads, &value);
	if (!lead)
		return up(frame);
	/* One load, and the lead may change beside it. */
	__u32 way = *(volatile __u64 *)lead, is_to_host = way & TO_HOST;
	__u64 bytes = end - at, out_bytes = bytes;
	if (is_to_host) {
		/* One load, too. The memory of a name that is removed is used for another at once: so the value says whose it is. */
		__u64 *host = bpf_map_lookup_elem(&local, &name), entry = host ? *(volatile __u64 *)host : 0;
		__u32 led = way & ~TO_HOST;
		way = entry & 0xffff;
#ifndef FIBULA_KERNEL_TRUSTS_ENTRIES
		if (entry >> 16 != name)
			return up(frame);
#endif
		if (!way || (led && led != way))
			return up(frame);
		out_bytes -= SHIM_BYTES;
	}
	__u32 slot = settings.slot, to = way - 1;
	__u64 *most = bpf_map_lookup_elem(&longest, &to);
	if (!most || out_bytes > *(volatile __u64 *)most)
		return up(frame);
	struct count *in = bpf_map_lookup_elem(&counts, &slot), *out = bpf_map_lookup_elem(&counts, &to);
	/* A frame never leaves by the port of entry; the workers count it. */
	if (to == slot || !in || !out)
		return up(frame);
	long sent = bpf_redirect_map(&devices, to, 0);
	/* The interface is down, missing, or takes no frames from here; the workers count it. */
	if (sent != XDP_REDIRECT)
		return up(frame);
	if (is_to_host) {
		/* The addresses move over the shim. The frame has 18 bytes, so it is never too short for that. */
		__u64 first = *(__u64 *)at;
		__u32 last = *(__u32 *)(at + 8);
		if (bpf_xdp_adjust_head(frame, SHIM_BYTES))
			return XDP_ABORTED;
		at = (void *)(long)frame->data, end = (void *)(long)frame->data_end;
		if (at + 14 > end)
			return XDP_ABORTED;
		*(__u64 *)at = first;
		*(__u32 *)(at + 8) = last;
	} else {
		at[14]--;
	}
	in->rx_frames++;
	in->rx_bytes += bytes;
	out->tx_frames++;
	out->tx_bytes += out_bytes;
	return (int)sent;
}

char _license[] SEC("license") = "Apache-2.0";
