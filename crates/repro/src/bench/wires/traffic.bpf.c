/* Frames for a switch on wires, and what it is measured against: see mod.rs. scripts/kernel-program translates it.
 *
 * A word of `names` is a name (48 bits) and the exit that it leads to (16 bits). A frame carries its exit in a byte behind
 * the shim, so that the sink knows whether it came out at the right one.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(name) extern char name SEC(".maps")
MAP(names);                  /* array of words */
MAP(hash);                   /* exit by name */
MAP(counts);                 /* array per processor: what was sent; what came out of each exit, and where it should not have */
MAP(devices);                /* into the switch, and out of it by exit */
MAP(state);                  /* array per processor: a linear congruential generator */

const volatile struct settings {
	__u32 mask;          /* of the number of names */
	__u32 exit;          /* of a sink */
	__u32 taken;         /* bytes that the switch took away in front of the exit */
} settings = {0};

struct count {
	__u64 frames, wrong;
};

#define EXIT_AT 20           /* in the frame */
#define START(frame) \
	__u8 *at = (void *)(long)frame->data; \
	if (at + 60 > (__u8 *)(long)frame->data_end) \
		return XDP_ABORTED

static __always_inline void count(__u32 which, int is_wrong)
{
	struct count *n = bpf_map_lookup_elem(&counts, &which);
	if (n) {
		n->frames++;
		n->wrong += is_wrong;
	}
}

static __always_inline __u64 name_of(const __u8 *at)
{
	return (__u64)*(const __u32 *)at | (__u64)*(const __u16 *)(at + 4) << 32;
}

/* Live frames, one name after the other at random. */
SEC("xdp/source")
int source(struct xdp_md *frame)
{
	START(frame);
	__u32 zero = 0;
	__u64 *seed = bpf_map_lookup_elem(&state, &zero);
	if (!seed)
		return XDP_ABORTED;
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	__u32 which = *seed >> 33 & settings.mask;
	__u64 *word = bpf_map_lookup_elem(&names, &which);
	if (!word)
		return XDP_ABORTED;
	/* All of it: the memory may be that of a frame whose shim was taken off. */
	*(__u32 *)at = (__u32)*word;
	*(__u32 *)(at + 4) = (__u16)(*word >> 32) | 0x02u << 16;
	*(__u32 *)(at + 8) = 0x01000000;
	*(__u32 *)(at + 12) = 0xb588 | 64u << 16;
	*(__u16 *)(at + 16) = 0x9999;
	at[EXIT_AT] = *word >> 48;
	count(0, 0);
	return (int)bpf_redirect_map(&devices, 0, 0);
}

/* A switch without a lookup: the frame says by itself where it leaves. */
SEC("xdp/redirect")
int redirect(struct xdp_md *frame)
{
	START(frame);
	at[14]--;
	return (int)bpf_redirect_map(&devices, at[EXIT_AT], 0);
}

/* A switch whose names are in a hash map of the kernel. */
SEC("xdp/hash")
int by_hash(struct xdp_md *frame)
{
	START(frame);
	__u64 name = name_of(at);
	__u32 *exit = bpf_map_lookup_elem(&hash, &name);
	if (!exit)
		return XDP_DROP;
	at[14]--;
	return (int)bpf_redirect_map(&devices, *exit, 0);
}

/* The end of the wire before a switch that there is not: what the source and the wire cost. */
SEC("xdp/drop")
int drop(struct xdp_md *frame)
{
	START(frame);
	count(at[EXIT_AT], 0);
	return XDP_DROP;
}

/* For a switch behind the kernel's stack: a veth takes no redirected frames without a program. */
SEC("xdp/pass")
int pass(struct xdp_md *frame)
{
	return XDP_PASS;
}

SEC("xdp/sink")
int sink(struct xdp_md *frame)
{
	START(frame);
	count(settings.exit, at[EXIT_AT - (settings.taken & 7)] != settings.exit);
	return XDP_DROP;
}

char _license[] SEC("license") = "Apache-2.0";
