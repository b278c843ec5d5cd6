/* fibula.h as a contestant of the lookup bench: the loop of crates/repro/src/contestants/mod.rs in C, as a C program would
 * have it. Compiled like a user's program, -O3 and no -march. */
#include "fibula.h"

/* How far ahead names are fetched, as by fetch_ahead of the other contestants. */
#define AHEAD 2048

/* The sum of the values of `n` names, each the first `len` bytes of a word, looked up `passes` times, `batch` at a time. */
uint64_t fibula_header_sum(const struct fibula_fib *fib, const uint64_t *names, size_t n, size_t len, size_t batch,
	uint64_t passes);
/* The values of names. */
void fibula_header_values(const struct fibula_fib *fib, const uint64_t *names, size_t n, size_t len, uint64_t *values);
struct fibula_fib *fibula_header_load(const void *bytes, size_t len, char why[FIBULA_WHY]);
void fibula_header_free(struct fibula_fib *fib);
/* Bytes of the table that lookups read. */
uint64_t fibula_header_bytes(const struct fibula_fib *fib);
const char *fibula_header_compiler(void);

uint64_t fibula_header_sum(const struct fibula_fib *fib, const uint64_t *names, size_t n, size_t len, size_t batch,
	uint64_t passes)
{
	uint16_t values[FIBULA_BURST];
	uint64_t sum = 0;
	batch = batch < FIBULA_BURST ? batch : FIBULA_BURST;
	for (; passes; passes--)
		for (size_t i = 0; i < n; i += batch) {
			size_t burst = n - i < batch ? n - i : batch;
			for (size_t word = 0; word < burst; word += 8)
				__builtin_prefetch((const void *)((uintptr_t)(names + i + word) + AHEAD));
			fibula_lookup_burst(fib, names + i, len, sizeof *names, burst, values);
			for (size_t j = 0; j < burst; j++)
				sum += values[j];
		}
	return sum;
}

void fibula_header_values(const struct fibula_fib *fib, const uint64_t *names, size_t n, size_t len, uint64_t *values)
{
	uint16_t found[FIBULA_BURST];
	for (size_t i = 0; i < n; i += FIBULA_BURST) {
		size_t burst = n - i < FIBULA_BURST ? n - i : FIBULA_BURST;
		fibula_lookup_burst(fib, names + i, len, sizeof *names, burst, found);
		for (size_t j = 0; j < burst; j++)
			values[i + j] = found[j];
	}
}

struct fibula_fib *fibula_header_load(const void *bytes, size_t len, char why[FIBULA_WHY])
{
	return fibula_load(bytes, len, why);
}

void fibula_header_free(struct fibula_fib *fib) { fibula_free(fib); }

uint64_t fibula_header_bytes(const struct fibula_fib *fib) { return 8 * (fib->n_words - FIBULA_ROOT_WORDS_); }

const char *fibula_header_compiler(void)
{
#ifdef __clang__
	return "clang " __clang_version__;
#else
	return "gcc " __VERSION__;
#endif
}
