/* bursts FILE LEN SEED: bursts of any size give what lookups one by one give, for names of LEN bytes at any distance, the last
 * of which ends where memory ends. Says how many names of bursts had a value. */
#include "fibula.h"

static uint64_t state;
static uint64_t below(uint64_t n)
{
	state += FIBULA_STEP;
	return fibula_mix_(state) % n;
}

int main(int argc, char **argv)
{
	char why[FIBULA_WHY];
	struct fibula_fib *fib = argc == 4 ? fibula_open(argv[1], why) : NULL;
	if (!fib) {
		fprintf(stderr, "%s\n", argc == 4 ? why : "usage: bursts FILE LEN SEED");
		return 3;
	}
	size_t len = (size_t)atoi(argv[2]), n_values = 0;
	state = strtoull(argv[3], NULL, 10);
	for (int round = 0; round < 4000; round++) {
		/* With and without fetches; by vectors and without. */
		fib->fetches = (uint8_t)below(2);
#ifdef FIBULA_HAS_AVX2_
		fib->has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && below(4);
#endif
		size_t n = below(3) ? below(FIBULA_BURST + 1) : FIBULA_BURST;
		size_t stride = below(2) ? (len + 7) / 8 * 8 : len + below(20), bytes = n ? (n - 1) * stride + len : 1;
		uint8_t *names = (uint8_t *)malloc(bytes);
		uint16_t *values = (uint16_t *)malloc(n ? n * sizeof *values : 1);
		if (!names || !values)
			return 4;
		for (size_t i = 0; i < bytes; i++)
			names[i] = (uint8_t)below(256);
		fibula_lookup_burst(fib, names, len, stride, n, values);
		for (size_t i = 0; i < n; i++) {
			uint16_t one = fibula_lookup(fib, names + i * stride, len);
			if (values[i] != one) {
				fprintf(stderr, "round %d: name %zu of %zu, stride %zu: %u in a burst, %u alone\n", round, i, n, stride,
					values[i], one);
				return 1;
			}
			n_values += values[i] != 0;
		}
		free(names);
		free(values);
	}
	printf("%zu\n", n_values);
	fibula_free(fib);
	return 0;
}
