/* Looks names up in a table that a switch changes meanwhile: watch TABLE LOOKUPS <names. A line is a name in hexadecimal and
 * the value that it always has modulo 100; all names have the same length. Prints lookups and wrong answers. */
#include "fibula.h"

int main(int argc, char **argv)
{
	char why[FIBULA_WHY], line[2 * FIBULA_MAX_NAME + 16];
	struct fibula_fib *fib = argc == 3 ? fibula_attach(argv[1], why) : NULL;
	if (!fib) {
		fprintf(stderr, "%s\n", argc == 3 ? why : "usage: watch TABLE LOOKUPS <names");
		return 3;
	}
	size_t n = 0, len = 0, room = 1 << 20;
	uint8_t *names = (uint8_t *)malloc(room * FIBULA_MAX_NAME);
	uint16_t *wanted = (uint16_t *)malloc(room * sizeof *wanted);
	while (names && wanted && n < room && fgets(line, sizeof line, stdin)) {
		len = strspn(line, "0123456789abcdef") / 2;
		for (size_t i = 0; i < len; i++) {
			unsigned byte;
			sscanf(line + 2 * i, "%2x", &byte);
			names[n * FIBULA_MAX_NAME + i] = (uint8_t)byte;
		}
		wanted[n++] = (uint16_t)strtoul(line + 2 * len, NULL, 10);
	}
	uint64_t lookups = 0, wrong = 0, most = strtoull(argv[2], NULL, 10);
	while (n && lookups < most) {
		for (size_t i = 0; i < n; i += FIBULA_BURST) {
			uint16_t values[FIBULA_BURST];
			size_t burst = n - i < FIBULA_BURST ? n - i : FIBULA_BURST;
			fibula_lookup_burst(fib, names + i * FIBULA_MAX_NAME, len, FIBULA_MAX_NAME, burst, values);
			for (size_t j = 0; j < burst; j++)
				wrong += values[j] % 100 != wanted[i + j];
			/* One by one, too, and what it means. */
			uint16_t value = fibula_lookup(fib, names + i * FIBULA_MAX_NAME, len);
			struct fibula_action action = fibula_action(fib, value);
			wrong += value % 100 != wanted[i] || action.verb != FIBULA_PORT || action.port % 100 != value % 100;
			lookups += burst + 1;
		}
	}
	printf("%llu %llu %d\n", (unsigned long long)lookups, (unsigned long long)wrong, fibula_is_written(fib));
	fibula_free(fib);
	free(names);
	free(wanted);
	return 0;
}
