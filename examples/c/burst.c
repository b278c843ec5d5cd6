/* How many names a second one thread looks up in a FIB file: burst FILE. Reads names of one length in hexadecimal, one a line,
 * shuffled, and looks all of them up, 32 at a time, in 15 rounds; prints the median in millions a second.
 * Build: cc -O3 -I c/include examples/c/burst.c -o burst */
#include "fibula.h"
#include <time.h>

#define ROUNDS 15

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	char why[FIBULA_WHY], line[2 * FIBULA_MAX_NAME + 2];
	struct fibula_fib *fib = argc == 2 ? fibula_open(argv[1], why) : NULL;
	if (!fib) {
		fprintf(stderr, "%s\n", argc == 2 ? why : "usage: burst FILE <names");
		return argc == 2 ? 3 : 2;
	}
	size_t n = 0, room = 1 << 16, len = 0, stride = 0;
	uint8_t *names = (uint8_t *)malloc(room);
	while (names && fgets(line, sizeof line, stdin)) {
		size_t bytes = strspn(line, "0123456789abcdef") / 2;
		if (!bytes || (len && bytes != len)) {
			fprintf(stderr, "line %zu has no name as long as the first: write its bytes in hexadecimal\n", n + 1);
			return 3;
		}
		len = bytes;
		stride = (len + 7) / 8 * 8;
		if ((n + 1) * stride > room)
			names = (uint8_t *)realloc(names, room *= 2);
		for (size_t i = 0; names && i < len; i++) {
			unsigned byte;
			sscanf(line + 2 * i, "%2x", &byte);
			names[n * stride + i] = (uint8_t)byte;
		}
		n++;
	}
	if (!names || !n) {
		fprintf(stderr, "there are no names to look up\n");
		return 3;
	}
	double rates[ROUNDS];
	uint64_t sum = 0;
	uint16_t *values = (uint16_t *)malloc(n * sizeof *values);
	for (int round = 0; values && round < ROUNDS; round++) {
		struct timespec start, end;
		timespec_get(&start, TIME_UTC);
		for (size_t i = 0; i < n; i += FIBULA_BURST) {
			size_t burst = n - i < FIBULA_BURST ? n - i : FIBULA_BURST;
			fibula_lookup_burst(fib, names + i * stride, len, stride, burst, values + i);
		}
		timespec_get(&end, TIME_UTC);
		rates[round] = n / 1e6 / ((double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
	}
	for (size_t i = 0; values && i < n; i++)
		sum += values[i];
	qsort(rates, ROUNDS, sizeof *rates, compare);
	printf("%zu names, %.1f M lookups/s, sum of values %llu\n", n, rates[ROUNDS / 2], (unsigned long long)sum);
	free(values);
	free(names);
	fibula_free(fib);
	return 0;
}
