/* Changes bytes of a FIB file at random, gives it the fingerprint that it needs then, and looks names up if it is accepted:
 * damage FILE ROUNDS SEED. Run it under sanitizers. Prints how many files were accepted. */
#include "fibula.h"

static uint64_t draw(uint64_t *state)
{
	*state += 1;
	return fibula_mix_(*state * FIBULA_STEP);
}

int main(int argc, char **argv)
{
	static uint8_t good[1 << 20], bytes[1 << 20];
	FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
	if (!file)
		return 2;
	size_t len = fread(good, 1, sizeof good, file);
	fclose(file);
	uint64_t state = strtoull(argv[3], NULL, 10), rounds = strtoull(argv[2], NULL, 10), n_accepted = 0, sum = 0;
	struct fibula_hash key;
	fibula_hash_(&key, 2, (const uint8_t *)"fibula southbound fingerprint 01");
	for (uint64_t round = 0; round < rounds; round++) {
		/* Half of the changes are in the head, where most fields are; some files are cut. */
		size_t kept = draw(&state) % 4 ? len : 8 + draw(&state) % (len - 8);
		memcpy(bytes, good, kept);
		for (uint64_t n = 1 + draw(&state) % 4; n && kept > 16; n--) {
			size_t most = draw(&state) % 2 ? 200 : kept;
			bytes[8 + draw(&state) % ((most < kept ? most : kept) - 8)] = (uint8_t)draw(&state);
		}
		uint64_t fingerprint = fibula_wy_(key.s, bytes, kept - 8);
		memcpy(bytes + kept - 8, &fingerprint, 8);
		/* A copy of its own, so that a read behind it is noticed. */
		uint8_t *copy = (uint8_t *)malloc(kept);
		memcpy(copy, bytes, kept);
		char why[FIBULA_WHY];
		struct fibula_fib *fib = fibula_load(copy, kept, why);
		free(copy);
		if (!fib)
			continue;
		n_accepted++;
		uint8_t names[FIBULA_BURST][FIBULA_MAX_NAME];
		uint16_t values[FIBULA_BURST];
		for (int burst = 0; burst < 8; burst++) {
			for (size_t i = 0; i < sizeof names; i++)
				((uint8_t *)names)[i] = (uint8_t)draw(&state);
			size_t name_bytes = 1 + draw(&state) % FIBULA_MAX_NAME;
			fibula_lookup_burst(fib, names, name_bytes, FIBULA_MAX_NAME, FIBULA_BURST, values);
			for (int i = 0; i < FIBULA_BURST; i++)
				sum += fibula_action(fib, values[i]).port;
		}
		fibula_free(fib);
	}
	printf("%llu %llu\n", (unsigned long long)n_accepted, (unsigned long long)(sum ? 1 : 0));
	return 0;
}
