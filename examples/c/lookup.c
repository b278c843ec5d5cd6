/* Looks names up in a FIB file: lookup FILE. Reads names in hexadecimal, one a line; prints what each leads to: port:N, drop,
 * local, tunnel or punt. Build: cc -O2 -I c/include examples/c/lookup.c -o lookup */
#include "fibula.h"

static int digit(int c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* The bytes of a line; 0 if it is no name. */
static size_t name_of(const char *line, uint8_t name[FIBULA_MAX_NAME])
{
	size_t n = 0;
	for (; digit(line[0]) >= 0 && digit(line[1]) >= 0; line += 2) {
		if (n == FIBULA_MAX_NAME)
			return 0;
		name[n++] = (uint8_t)(16 * digit(line[0]) + digit(line[1]));
	}
	return *line == '\n' || !*line ? n : 0;
}

int main(int argc, char **argv)
{
	static const char *const verbs[] = {"drop", "port", "local", "tunnel", "punt"};
	char why[FIBULA_WHY], line[2 * FIBULA_MAX_NAME + 2];
	struct fibula_fib *fib = argc == 2 ? fibula_open(argv[1], why) : NULL;
	if (!fib) {
		fprintf(stderr, "%s\n", argc == 2 ? why : "usage: lookup FILE <names");
		return argc == 2 ? 3 : 2;
	}
	for (uint64_t number = 1; fgets(line, sizeof line, stdin); number++) {
		uint8_t name[FIBULA_MAX_NAME];
		size_t len = name_of(line, name);
		if (!len || (fib->name_bytes && len != fib->name_bytes)) {
			fprintf(stderr, "line %llu is not a name of this table: write its bytes in hexadecimal\n",
				(unsigned long long)number);
			fibula_free(fib);
			return 3;
		}
		struct fibula_action action = fibula_action(fib, fibula_lookup(fib, name, len));
		if (action.verb == FIBULA_PORT)
			printf("port:%u\n", action.port);
		else
			printf("%s\n", verbs[action.verb]);
	}
	fibula_free(fib);
	return 0;
}
