/* agree DESIGN N SEED OUT: makes a table of N names, and writes it to OUT.fib and the values of its names, and of as many that
 * it does not have, to OUT.values. fibula.h must say the same of the file. */
#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 5);
	uint64_t n = strtoull(argv[2], NULL, 10), seed = strtoull(argv[3], NULL, 10), count;
	struct fibula_table *table = table_of(argv[1], "fixed:8", 12, 2 * n, KEY);
	struct name *names = (struct name *)malloc(n * sizeof *names);
	uint32_t *values = (uint32_t *)malloc(2 * n * sizeof *values);
	CHECK(names && values);
	for (uint64_t i = 0; i < n; i++) {
		names[i] = name_of(seed, i);
		values[i] = (uint32_t)(i % 4096);
	}
	/* Most as a batch, some one by one. Some change, and some leave and come again. */
	uint64_t n_batch = n - n / 10;
	CHECK(fibula_table_set_batch(table, names, 8, sizeof *names, values, n_batch) == FIBULA_OK);
	for (uint64_t i = n_batch; i < n; i++)
		CHECK(fibula_table_set(table, names[i].bytes, 8, (uint32_t)(i % 4096)) == FIBULA_OK);
	for (uint64_t i = 0; i < n; i += 17)
		CHECK(fibula_table_set(table, names[i].bytes, 8, (uint32_t)(i * 5 % 4096)) == FIBULA_OK);
	for (uint64_t i = 3; i < n; i += 19) {
		CHECK(fibula_table_remove(table, names[i].bytes, 8) == FIBULA_OK);
		if (i % 2)
			CHECK(fibula_table_set(table, names[i].bytes, 8, 7) == FIBULA_OK);
	}
	free(names);

	struct fibula_reader *reader;
	CHECK(fibula_reader_new(table, &reader) == FIBULA_OK);
	look_up(reader, seed, 0, 2 * n, values);
	uint8_t *bytes;
	size_t len;
	CHECK(fibula_table_export(table, &bytes, &len) == FIBULA_OK);
	CHECK(fibula_table_count(table, &count) == FIBULA_OK);

	char why[FIBULA_WHY] = "", path[4096];
	struct fibula_fib *fib = fibula_load(bytes, len, why);
	CHECK(fib && fib->n_names == count);
	for (uint64_t i = 0; i < 2 * n; i++) {
		struct name name = name_of(seed, i);
		CHECK(fibula_lookup(fib, name.bytes, 8) == values[i]);
	}
	fibula_free(fib);

	snprintf(path, sizeof path, "%s.fib", argv[4]);
	FILE *file = fopen(path, "wb");
	CHECK(file && fwrite(bytes, len, 1, file) == 1 && !fclose(file));
	snprintf(path, sizeof path, "%s.values", argv[4]);
	file = fopen(path, "wb");
	CHECK(file && fwrite(values, sizeof *values, 2 * n, file) == 2 * n && !fclose(file));
	CHECK(fibula_bytes_free(bytes, len) == FIBULA_OK);
	CHECK(fibula_table_free(table) == FIBULA_OK);
	/* A reader outlives its table. */
	uint32_t value;
	struct name first = name_of(seed, 0);
	CHECK(fibula_reader_lookup(reader, first.bytes, 8, &value) == FIBULA_OK && value == values[0]);
	CHECK(fibula_reader_free(reader) == FIBULA_OK);
	free(values);
	return 0;
}
