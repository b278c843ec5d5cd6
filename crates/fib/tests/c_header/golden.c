/* Answers for digests in a table in memory: golden TABLE <digests. A line is a digest, 16 digits in hexadecimal. */
#include "fibula.h"

int main(int argc, char **argv)
{
	char why[FIBULA_WHY], line[64];
	struct fibula_fib *fib = argc == 2 ? fibula_attach(argv[1], why) : NULL;
	if (!fib) {
		fprintf(stderr, "%s\n", argc == 2 ? why : "usage: golden TABLE <digests");
		return 3;
	}
	while (fgets(line, sizeof line, stdin))
		printf("%02x\n", fibula_lookup_digest(fib, strtoull(line, NULL, 16)));
	fibula_free(fib);
	return 0;
}
