/* threads DESIGN SEED: two threads write one table; and readers that sleep, or end, keep no memory from being used again. */
#include <pthread.h>

#include "check.h"

#define N_WRITTEN 5000
#define N_LARGE 200000

struct writer {
	struct fibula_table *table;
	uint64_t seed, first;
};

static void *write_names(void *argument)
{
	const struct writer *writer = (const struct writer *)argument;
	for (uint64_t i = 0; i < N_WRITTEN; i++) {
		struct name name = name_of(writer->seed, writer->first + i);
		CHECK(fibula_table_set(writer->table, name.bytes, 8, (uint32_t)(i % 200)) == FIBULA_OK);
	}
	return NULL;
}

static void two_threads_write(const char *design, uint64_t seed)
{
	static uint32_t values[2 * N_WRITTEN];
	struct fibula_table *table = table_of(design, "fixed:8", 8, 2 * N_WRITTEN, KEY);
	struct writer writers[2] = {{table, seed, 0}, {table, seed, N_WRITTEN}};
	struct fibula_reader *reader;
	pthread_t threads[2];
	uint64_t n;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, write_names, &writers[i]));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(fibula_table_count(table, &n) == FIBULA_OK && n == 2 * N_WRITTEN);
	CHECK(fibula_reader_new(table, &reader) == FIBULA_OK);
	look_up(reader, seed, 0, n, values);
	for (uint64_t i = 0; i < n; i++)
		CHECK(values[i] == i % N_WRITTEN % 200);
	CHECK(fibula_reader_free(reader) == FIBULA_OK && fibula_table_free(table) == FIBULA_OK);
}

struct ending {
	struct fibula_table *table;
	struct fibula_reader *reader;
	uint64_t seed;
};

/* Looks up and ends, without a word to the table. */
static void *look_up_and_end(void *argument)
{
	struct ending *ending = (struct ending *)argument;
	uint32_t found;
	CHECK(fibula_reader_new(ending->table, &ending->reader) == FIBULA_OK);
	look_up(ending->reader, ending->seed, 0, 1, &found);
	return NULL;
}

static void readers_that_sleep_or_end_keep_no_change_waiting(const char *design, uint64_t seed)
{
	static struct name names[N_LARGE];
	static uint32_t values[N_LARGE], found[N_LARGE];
	struct fibula_table *table = table_of(design, "fixed:8", 16, N_LARGE, KEY);
	struct ending ending = {table, NULL, seed};
	struct fibula_reader *sleeper;
	pthread_t thread;
	for (uint64_t i = 0; i < N_LARGE; i++)
		names[i] = name_of(seed, i);
	CHECK(fibula_table_set_batch(table, names, 8, 8, values, N_LARGE) == FIBULA_OK);
	CHECK(!pthread_create(&thread, NULL, look_up_and_end, &ending) && !pthread_join(thread, NULL));
	CHECK(fibula_reader_new(table, &sleeper) == FIBULA_OK);
	look_up(sleeper, seed, 0, 1, found);
	for (uint32_t version = 1; version < 300; version++) {
		for (uint64_t i = 0; i < N_LARGE; i++)
			values[i] = (uint32_t)((i + version) % 65536);
		CHECK(fibula_table_set_batch(table, names, 8, 8, values, N_LARGE) == FIBULA_OK);
	}
	CHECK(fibula_table_sync(table) == FIBULA_OK);
	look_up(sleeper, seed, 0, N_LARGE, found);
	CHECK(!memcmp(found, values, sizeof values));
	CHECK(fibula_reader_free(sleeper) == FIBULA_OK && fibula_reader_free(ending.reader) == FIBULA_OK);
	CHECK(fibula_table_free(table) == FIBULA_OK);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	uint64_t seed = strtoull(argv[2], NULL, 10);
	two_threads_write(argv[1], seed);
	readers_that_sleep_or_end_keep_no_change_waiting(argv[1], seed);
	return 0;
}
