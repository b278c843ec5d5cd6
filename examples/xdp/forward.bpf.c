/* Forwards frames by their destination address, in the kernel: see forward.c beside it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "fibula_bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fibula_bpf_table);
} table SEC(".maps");

/* The port that a value leads to; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} ports_of_values SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* Frames sent on, and those left to the stack because the table did not know a port or changed too fast. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);
	if (n)
		*n += 1;
}

SEC("xdp")
int forward(struct xdp_md *frame)
{
	__u32 zero = 0;
	struct fibula_bpf_table *t = bpf_map_lookup_elem(&table, &zero);
	__u8 *to = (void *)(long)frame->data;
	if (!t || to + 14 > (__u8 *)(long)frame->data_end)
		return XDP_PASS;
	__u64 name = (__u64)to[0] | (__u64)to[1] << 8 | (__u64)to[2] << 16 | (__u64)to[3] << 24 | (__u64)to[4] << 32 |
		(__u64)to[5] << 40;
	__u32 value = fibula_bpf_lookup(t, name);
	__u64 *port = value == FIBULA_BPF_BUSY ? 0 : bpf_map_lookup_elem(&ports_of_values, &value);
	if (!port || !*port) {
		count(1);
		return XDP_PASS;
	}
	count(0);
	return bpf_redirect_map(&ports, *port, XDP_PASS);
}

/* For tests: a packet begins with a digest, and comes back with its value in the next word. */
SEC("xdp")
int answer(struct xdp_md *frame)
{
	__u32 zero = 0;
	struct fibula_bpf_table *t = bpf_map_lookup_elem(&table, &zero);
	__u64 *words = (void *)(long)frame->data;
	if (!t || words + 2 > (__u64 *)(long)frame->data_end)
		return XDP_ABORTED;
	words[1] = fibula_bpf_lookup_digest(t, words[0]);
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
