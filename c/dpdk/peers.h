/* The peers of DPDK behind plain calls, one a burst: rte_hash with keys of 8 or 16 bytes and 8-byte data, rte_efd,
 * rte_lpm, rte_fib, rte_acl.
 *
 * Why a shim: rte_* inline functions and macros cannot be called from another language, and a call a burst keeps the
 * border out of the measurement. Keys are words in host order. Not thread-safe but for the lookups.
 */
#ifndef FIBULA_PEERS_H
#define FIBULA_PEERS_H

#include <stddef.h>
#include <stdint.h>

/* Starts DPDK's environment with no device. With `huge` on reserved huge pages, else with `mem_mb` MiB of small
 * ones. To be called once; the calling thread's CPU affinity is kept. 0, or a negative errno. */
int fibula_eal_start(int huge, unsigned mem_mb);

/* Bytes allocated at present from DPDK's heap. */
uint64_t fibula_heap_bytes(void);

/* A table of at most `n_max` keys of `key_len` bytes; `lock_free` asks for lock-free readers beside a writer
 * (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF). NULL: no memory. */
struct rte_hash *fibula_hash_new(const char *name, uint32_t n_max, uint32_t key_len, int lock_free);
void fibula_hash_free(struct rte_hash *table);
/* Adds or overwrites n keys; 0, or the negative errno of the first that failed. */
int fibula_hash_add(struct rte_hash *table, const uint64_t *keys, const uint64_t *values, size_t n);
/* Removes n keys; 0, or a negative errno. */
int fibula_hash_remove(struct rte_hash *table, const uint64_t *keys, size_t n);
/* Looks up n keys in bursts of at most 64; a key that is not there gets 0. */
void fibula_hash_lookup(const struct rte_hash *table, const uint64_t *keys, uint64_t *values, size_t n);

/* The same for keys of two words each. Data are values, or pointers to them. */
int fibula_flow_add(struct rte_hash *table, const uint64_t *keys, void *const *data, size_t n);
/* Looks up n <= 64 keys of two words; returns the mask of those that are there, whose data are written. */
uint64_t fibula_flow_lookup(const struct rte_hash *table, const uint64_t *keys, void **data, size_t n);

/* A table sized for n_max keys and values of 8 bits. NULL: no memory. */
struct rte_efd_table *fibula_efd_new(const char *name, uint32_t n_max);
void fibula_efd_free(struct rte_efd_table *table);
/* Adds or overwrites n keys; 0, or -ENOSPC where a group is full: the table is not to be used any more. */
int fibula_efd_add(struct rte_efd_table *table, const uint64_t *keys, const uint64_t *values, size_t n);
/* Looks up n keys in bursts of at most 32; an alien gets an arbitrary value. */
void fibula_efd_lookup(const struct rte_efd_table *table, const uint64_t *keys, uint64_t *values, size_t n);

/* A table of at most `max_rules` IPv4 routes, with `n_tbl8` groups for those of more than 24 bits. NULL: no memory. */
struct rte_lpm *fibula_lpm_new(const char *name, uint32_t max_rules, uint32_t n_tbl8);
void fibula_lpm_free(struct rte_lpm *table);
/* Adds n routes, addresses in host order; 0, or the negative errno of the first that failed. */
int fibula_lpm_add(struct rte_lpm *table, const uint32_t *ips, const uint8_t *lens, const uint32_t *hops, size_t n);
/* Looks up n addresses; bit 24 of what is written says that there is a route, the bits below are its next hop. */
void fibula_lpm_lookup(const struct rte_lpm *table, const uint32_t *ips, uint32_t *hops, size_t n);

/* The same with next hops of 2 bytes; `max_routes` nodes of its RIB. An address without a route gets 0. */
struct rte_fib *fibula_fib_new(const char *name, uint32_t max_routes, uint32_t n_tbl8);
void fibula_fib_free(struct rte_fib *table);
int fibula_fib_add(struct rte_fib *table, const uint32_t *ips, const uint8_t *lens, const uint32_t *hops, size_t n);
void fibula_fib_lookup(struct rte_fib *table, const uint32_t *ips, uint64_t *hops, size_t n);

/* A rule over IPv4 flows, in host order: addresses and lengths of their prefixes, first and last port, protocol and its
 * mask; each of the source first. `value` is not 0. */
struct fibula_acl_rule {
	uint32_t addresses[2];
	uint16_t ports[4];
	uint8_t lens[2];
	uint8_t protocol[2];
	uint32_t priority;
	uint32_t value;
};

/* A flow in network order. */
struct fibula_acl_flow {
	uint8_t protocol[4];
	uint32_t addresses[2];
	uint16_t ports[2];
};

struct rte_acl_ctx;

/* A table of these rules, built, with the best code for lookups that this processor has. 0, or a negative errno. */
int fibula_acl_new(const char *name, const struct fibula_acl_rule *rules, uint32_t n, struct rte_acl_ctx **table);
void fibula_acl_free(struct rte_acl_ctx *table);
/* The name of that code. */
const char *fibula_acl_code(struct rte_acl_ctx *table);
/* The value of the matching rule with the highest priority of each of n flows, 0 if there is none. */
void fibula_acl_lookup(const struct rte_acl_ctx *table, const struct fibula_acl_flow *flows, uint32_t *values, size_t n);

#endif
