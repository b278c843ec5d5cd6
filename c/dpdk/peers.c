/* See peers.h. Written against DPDK 22.11; compiled with _GNU_SOURCE and ALLOW_EXPERIMENTAL_API (the setting of the
 * SIMD width). */
#include "peers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_efd.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_vect.h>

int fibula_eal_start(int huge, unsigned mem_mb)
{
	char mem[16];
	char *argv[16];
	int argc = 0;
	cpu_set_t cpus;
	int rc;

	snprintf(mem, sizeof(mem), "%u", mem_mb);
	argv[argc++] = "fibula";
	argv[argc++] = "--no-pci";
	argv[argc++] = "--no-shconf";
	argv[argc++] = "--no-telemetry";
	argv[argc++] = "--log-level=error";
	argv[argc++] = "--lcores=0@0";
	/* Memory is taken at once: other contestants take reserved pages, too. */
	argv[argc++] = huge ? "--in-memory" : "--no-huge";
	argv[argc++] = "-m";
	argv[argc++] = mem;
	argv[argc] = NULL;

	/* rte_eal_init binds the calling thread to one CPU, which every thread started later would inherit. */
	if (pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus) != 0)
		return -EINVAL;
	rc = rte_eal_init(argc, argv);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	if (rc < 0)
		return rte_errno > 0 ? -rte_errno : -EINVAL;
	return 0;
}

uint64_t fibula_heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	uint64_t bytes = 0;
	unsigned socket;

	for (socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (rte_malloc_get_socket_stats((int)socket, &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	return bytes;
}

struct rte_hash *fibula_hash_new(const char *name, uint32_t n_max, uint32_t key_len, int lock_free)
{
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = n_max,
		.key_len = key_len,
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
		.extra_flag = lock_free ? RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF : 0,
	};

	return rte_hash_create(&parameters);
}

void fibula_hash_free(struct rte_hash *table)
{
	rte_hash_free(table);
}

int fibula_hash_add(struct rte_hash *table, const uint64_t *keys, const uint64_t *values, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int rc = rte_hash_add_key_data(table, &keys[i], (void *)(uintptr_t)values[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int fibula_hash_remove(struct rte_hash *table, const uint64_t *keys, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int rc = rte_hash_del_key(table, &keys[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void fibula_hash_lookup(const struct rte_hash *table, const uint64_t *keys, uint64_t *values, size_t n)
{
	const void *key_list[RTE_HASH_LOOKUP_BULK_MAX];
	size_t done = 0;

	while (done < n) {
		size_t burst = RTE_MIN(n - done, (size_t)RTE_HASH_LOOKUP_BULK_MAX);
		uint64_t hits = 0;
		size_t i;

		for (i = 0; i < burst; i++)
			key_list[i] = &keys[done + i];
		/* The data of a hit is written to its place in `values`; that of a miss is left alone. */
		rte_hash_lookup_bulk_data(table, key_list, (uint32_t)burst, &hits, (void **)&values[done]);
		if (hits != UINT64_MAX >> (64 - burst))
			for (i = 0; i < burst; i++)
				if (!(hits >> i & 1))
					values[done + i] = 0;
		done += burst;
	}
}

int fibula_flow_add(struct rte_hash *table, const uint64_t *keys, void *const *data, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int rc = rte_hash_add_key_data(table, &keys[2 * i], data[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

uint64_t fibula_flow_lookup(const struct rte_hash *table, const uint64_t *keys, void **data, size_t n)
{
	const void *key_list[RTE_HASH_LOOKUP_BULK_MAX];
	uint64_t hits = 0;
	size_t i;

	for (i = 0; i < n; i++)
		key_list[i] = &keys[2 * i];
	rte_hash_lookup_bulk_data(table, key_list, (uint32_t)n, &hits, data);
	return hits;
}

struct rte_efd_table *fibula_efd_new(const char *name, uint32_t n_max)
{
	unsigned socket = rte_socket_id();
	uint16_t simd_bits = rte_vect_get_max_simd_bitwidth();
	struct rte_efd_table *table;

	/* Where the library was compiled for a processor without AVX2, as distributions do, its AVX2 lookup is an
	 * empty function that answers 0, and yet is chosen at run time. The scalar one is right everywhere. */
	(void)rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_128);
	table = rte_efd_create(name, n_max, sizeof(uint64_t), UINT64_C(1) << socket, (uint8_t)socket);
	(void)rte_vect_set_max_simd_bitwidth(simd_bits);
	return table;
}

void fibula_efd_free(struct rte_efd_table *table)
{
	rte_efd_free(table);
}

int fibula_efd_add(struct rte_efd_table *table, const uint64_t *keys, const uint64_t *values, size_t n)
{
	unsigned socket = rte_socket_id();
	size_t i;

	for (i = 0; i < n; i++)
		if (rte_efd_update(table, socket, &keys[i], (efd_value_t)values[i]) == RTE_EFD_UPDATE_FAILED)
			return -ENOSPC;
	return 0;
}

void fibula_efd_lookup(const struct rte_efd_table *table, const uint64_t *keys, uint64_t *values, size_t n)
{
	const void *key_list[RTE_EFD_BURST_MAX];
	efd_value_t answers[RTE_EFD_BURST_MAX];
	/* Thread-local in DPDK: a thread that it does not know gets SOCKET_ID_ANY. */
	unsigned socket = rte_socket_id();
	size_t done = 0;

	if (socket == (unsigned)SOCKET_ID_ANY)
		socket = 0;
	while (done < n) {
		size_t burst = RTE_MIN(n - done, (size_t)RTE_EFD_BURST_MAX);
		size_t i;

		for (i = 0; i < burst; i++)
			key_list[i] = &keys[done + i];
		rte_efd_lookup_bulk(table, socket, (int)burst, key_list, answers);
		for (i = 0; i < burst; i++)
			values[done + i] = answers[i];
		done += burst;
	}
}

struct rte_lpm *fibula_lpm_new(const char *name, uint32_t max_rules, uint32_t n_tbl8)
{
	struct rte_lpm_config config = { .max_rules = max_rules, .number_tbl8s = n_tbl8 };

	return rte_lpm_create(name, SOCKET_ID_ANY, &config);
}

void fibula_lpm_free(struct rte_lpm *table)
{
	rte_lpm_free(table);
}

int fibula_lpm_add(struct rte_lpm *table, const uint32_t *ips, const uint8_t *lens, const uint32_t *hops, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int rc = rte_lpm_add(table, ips[i], lens[i], hops[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void fibula_lpm_lookup(const struct rte_lpm *table, const uint32_t *ips, uint32_t *hops, size_t n)
{
	(void)rte_lpm_lookup_bulk(table, ips, hops, (unsigned)n);
}

struct rte_fib *fibula_fib_new(const char *name, uint32_t max_routes, uint32_t n_tbl8)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = (int)max_routes,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = n_tbl8 },
	};

	return rte_fib_create(name, SOCKET_ID_ANY, &config);
}

void fibula_fib_free(struct rte_fib *table)
{
	rte_fib_free(table);
}

int fibula_fib_add(struct rte_fib *table, const uint32_t *ips, const uint8_t *lens, const uint32_t *hops, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int rc = rte_fib_add(table, ips[i], lens[i], hops[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void fibula_fib_lookup(struct rte_fib *table, const uint32_t *ips, uint64_t *hops, size_t n)
{
	(void)rte_fib_lookup_bulk(table, (uint32_t *)(uintptr_t)ips, hops, (int)n);
}

/* The fields of struct fibula_acl_flow: the first has one byte, all others come in groups of four. */
static const struct rte_acl_field_def acl_fields[] = {
	{ RTE_ACL_FIELD_TYPE_BITMASK, sizeof(uint8_t), 0, 0, offsetof(struct fibula_acl_flow, protocol) },
	{ RTE_ACL_FIELD_TYPE_MASK, sizeof(uint32_t), 1, 1, offsetof(struct fibula_acl_flow, addresses) },
	{ RTE_ACL_FIELD_TYPE_MASK, sizeof(uint32_t), 2, 2, offsetof(struct fibula_acl_flow, addresses[1]) },
	{ RTE_ACL_FIELD_TYPE_RANGE, sizeof(uint16_t), 3, 3, offsetof(struct fibula_acl_flow, ports) },
	{ RTE_ACL_FIELD_TYPE_RANGE, sizeof(uint16_t), 4, 3, offsetof(struct fibula_acl_flow, ports[1]) },
};

RTE_ACL_RULE_DEF(acl_rule, RTE_DIM(acl_fields));

/* The widest code first. */
static const struct {
	enum rte_acl_classify_alg alg;
	const char *name;
} acl_codes[] = {
	{ RTE_ACL_CLASSIFY_AVX512X32, "avx512x32" }, { RTE_ACL_CLASSIFY_AVX512X16, "avx512x16" },
	{ RTE_ACL_CLASSIFY_AVX2, "avx2" },           { RTE_ACL_CLASSIFY_NEON, "neon" },
	{ RTE_ACL_CLASSIFY_SSE, "sse" },             { RTE_ACL_CLASSIFY_SCALAR, "scalar" },
};

static const char *acl_code;

int fibula_acl_new(const char *name, const struct fibula_acl_rule *rules, uint32_t n, struct rte_acl_ctx **table)
{
	struct rte_acl_param param = {
		.name = name,
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(RTE_DIM(acl_fields)),
		.max_rule_num = n,
	};
	struct rte_acl_config config = { .num_categories = 1, .num_fields = RTE_DIM(acl_fields) };
	uint32_t i;
	int rc = 0;

	memcpy(config.defs, acl_fields, sizeof(acl_fields));
	*table = rte_acl_create(&param);
	if (*table == NULL)
		return -(rte_errno != 0 ? rte_errno : ENOMEM);
	for (i = 0; i < n && rc == 0; i++) {
		const struct fibula_acl_rule *from = &rules[i];
		struct acl_rule rule;

		memset(&rule, 0, sizeof(rule));
		rule.data.category_mask = 1;
		rule.data.priority = (int32_t)from->priority + RTE_ACL_MIN_PRIORITY;
		rule.data.userdata = from->value;
		rule.field[0].value.u8 = from->protocol[0];
		rule.field[0].mask_range.u8 = from->protocol[1];
		rule.field[1].value.u32 = from->addresses[0];
		rule.field[1].mask_range.u32 = from->lens[0];
		rule.field[2].value.u32 = from->addresses[1];
		rule.field[2].mask_range.u32 = from->lens[1];
		rule.field[3].value.u16 = from->ports[0];
		rule.field[3].mask_range.u16 = from->ports[1];
		rule.field[4].value.u16 = from->ports[2];
		rule.field[4].mask_range.u16 = from->ports[3];
		rc = rte_acl_add_rules(*table, (const struct rte_acl_rule *)&rule, 1);
	}
	if (rc == 0)
		rc = rte_acl_build(*table, &config);
	if (rc != 0) {
		rte_acl_free(*table);
		*table = NULL;
		return rc;
	}
	for (i = 0; i < RTE_DIM(acl_codes); i++) {
		acl_code = acl_codes[i].name;
		if (rte_acl_set_ctx_classify(*table, acl_codes[i].alg) == 0)
			break;
	}
	return 0;
}

void fibula_acl_free(struct rte_acl_ctx *table)
{
	rte_acl_free(table);
}

const char *fibula_acl_code(struct rte_acl_ctx *table)
{
	(void)table;
	return acl_code;
}

void fibula_acl_lookup(const struct rte_acl_ctx *table, const struct fibula_acl_flow *flows, uint32_t *values, size_t n)
{
	const uint8_t *data[256];
	size_t i, done, burst;

	for (done = 0; done < n; done += burst) {
		burst = RTE_MIN(n - done, RTE_DIM(data));
		for (i = 0; i < burst; i++)
			data[i] = (const uint8_t *)&flows[done + i];
		if (rte_acl_classify(table, data, values + done, (uint32_t)burst, 1) != 0)
			memset(values + done, 0xff, burst * sizeof(*values));
	}
}
