/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "fibula.h"
#include "libfibula.h"

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, fibula_last_error()); \
			exit(1); \
		} \
	} while (0)

/* The call fails with this code, and says so by these words. */
#define REFUSED(call, code, words) \
	do { \
		int code_ = (call); \
		if (code_ != (code) || !strstr(fibula_last_error(), words)) { \
			fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, code_, fibula_last_error()); \
			exit(1); \
		} \
	} while (0)

/* A bijection of 64 bits; the Rust side has it, too. */
static inline uint64_t mixed(uint64_t x)
{
	x ^= x >> 33; x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* The i-th name: 8 bytes, little-endian. */
struct name { uint8_t bytes[8]; };
static inline struct name name_of(uint64_t seed, uint64_t i)
{
	struct name name;
	uint64_t word = mixed(seed + i);
	memcpy(name.bytes, &word, 8);
	return name;
}

/* Keys of 32 bytes. */
#define KEY ((const uint8_t *)"the hash key of the test program")
#define OTHER_KEY ((const uint8_t *)"another hash key of the programs")

static inline struct fibula_table *table_of(const char *design, const char *names, uint32_t value_bits, uint64_t max_names,
	const uint8_t *key)
{
	struct fibula_options options = FIBULA_OPTIONS;
	struct fibula_table *table = NULL;
	options.design = design;
	options.names = names;
	options.key = key;
	options.value_bits = value_bits;
	options.max_names = max_names;
	CHECK(fibula_table_new(&options, &table) == FIBULA_OK && table);
	return table;
}

/* The values of n names from the i-th. */
static inline void look_up(struct fibula_reader *reader, uint64_t seed, uint64_t i, uint64_t n, uint32_t *values)
{
	static struct name names[1000];
	static const void *list[1000];
	while (n) {
		uint64_t piece = n < 1000 ? n : 1000;
		for (uint64_t at = 0; at < piece; at++) {
			names[at] = name_of(seed, i + at);
			list[at] = names[at].bytes;
		}
		CHECK(fibula_reader_lookup_burst(reader, list, 8, piece, values) == FIBULA_OK);
		i += piece;
		n -= piece;
		values += piece;
	}
}

#endif
