/* place DESIGN SEED: a table in memory of the program's, which another process reads while it changes. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define N_NAMES 20000
/* Names from here on keep their values. */
#define N_CHANGED 10000
#define N_ROUNDS 60

static void *memory_of(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static uint32_t value_of(uint64_t i) { return 1 + (uint32_t)(i % 200); }

/* In every round each changed name gets one more, up to 50. */
static void change(struct fibula_table *table, uint64_t seed, int round)
{
	for (uint64_t i = 0; i < N_CHANGED; i += 7) {
		struct name name = name_of(seed, i);
		CHECK(fibula_table_set(table, name.bytes, 8, value_of(i) + (uint32_t)(round % 50)) == FIBULA_OK);
	}
}

/* What the other process does until a byte comes through the pipe: every value is one that its name had. */
static int watch(const void *memory, size_t bytes, uint64_t seed, int end)
{
	char why[FIBULA_WHY], byte;
	struct fibula_fib *fib = fibula_attach_memory(memory, bytes, why);
	if (!fib) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	uint64_t n_wrong = 0;
	for (int is_last = 0; !is_last;) {
		is_last = read(end, &byte, 1) == 1;
		for (uint64_t i = 0; i < N_NAMES; i += FIBULA_BURST) {
			struct name names[FIBULA_BURST];
			uint16_t values[FIBULA_BURST];
			uint64_t n = N_NAMES - i < FIBULA_BURST ? N_NAMES - i : FIBULA_BURST;
			for (uint64_t j = 0; j < n; j++)
				names[j] = name_of(seed, i + j);
			fibula_lookup_burst(fib, names, 8, sizeof names[0], n, values);
			for (uint64_t j = 0; j < n; j++) {
				uint32_t first = value_of(i + j), most = i + j < N_CHANGED && (i + j) % 7 == 0 ? first + 49 : first;
				n_wrong += values[j] < first || values[j] > most;
			}
		}
	}
	if (!fibula_is_written(fib))
		n_wrong++;
	fibula_free(fib);
	if (n_wrong)
		fprintf(stderr, "%llu wrong values\n", (unsigned long long)n_wrong);
	return n_wrong != 0;
}

static void fill(struct fibula_table *table, uint64_t seed, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		struct name name = name_of(seed, i);
		CHECK(fibula_table_set(table, name.bytes, 8, value_of(i)) == FIBULA_OK);
	}
}

static void has(struct fibula_reader *reader, uint64_t seed)
{
	static uint32_t values[N_NAMES];
	look_up(reader, seed, 0, N_NAMES, values);
	for (uint64_t i = 0; i < N_NAMES; i++)
		CHECK(values[i] == value_of(i));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	uint64_t seed = strtoull(argv[2], NULL, 10);
	char why[FIBULA_WHY];
	int status, end[2];
	size_t most, small = 64 << 10;
	struct fibula_table *table = table_of(argv[1], "fixed:8", 8, 50 * N_NAMES, KEY);
	struct fibula_reader *reader;
	fill(table, seed, 0, N_NAMES);
	CHECK(fibula_reader_new(table, &reader) == FIBULA_OK);
	CHECK(fibula_table_most_bytes(table, &most) == FIBULA_OK && most > N_NAMES);

	/* What cannot be is refused, and the table stays. */
	uint8_t *memory = (uint8_t *)memory_of(most), *less = (uint8_t *)memory_of(most);
	REFUSED(fibula_table_place(table, NULL, most), FIBULA_EINVAL, "NULL");
	REFUSED(fibula_table_place(table, memory + 8, most - 8), FIBULA_EINVAL, "multiple of 64");
	REFUSED(fibula_table_place(table, memory, 0), FIBULA_ENOMEM, "");
	REFUSED(fibula_table_place(table, memory, 100), FIBULA_ENOMEM, "");
	REFUSED(fibula_table_place(table, memory, 8192), FIBULA_ENOMEM, "");
	REFUSED(fibula_table_most_bytes(table, NULL), FIBULA_EINVAL, "");
	has(reader, seed);
	CHECK(!fibula_attach_memory(memory, most, why) && strstr(why, "was it placed there?"));
	CHECK(!fibula_attach_memory(NULL, most, why) && !fibula_attach_memory(memory + 8, most - 8, why));

	/* It grows in small memory until that is full. Then it stays as it is, and moves to more. */
	while (fibula_table_place(table, less, small) == FIBULA_ENOMEM)
		small *= 2;
	CHECK(small <= most);
	has(reader, seed);
	REFUSED(fibula_table_place(table, less, small), FIBULA_EINVAL, "in this memory already");
	REFUSED(fibula_table_place(table, less + small - 64, 64), FIBULA_EINVAL, "in this memory already");
	has(reader, seed);
	int code = FIBULA_OK;
	uint64_t more = N_NAMES;
	for (; code == FIBULA_OK && more < 49 * N_NAMES; more++) {
		struct name name = name_of(seed, more);
		code = fibula_table_set(table, name.bytes, 8, value_of(more));
	}
	CHECK(code == FIBULA_OK || code == FIBULA_ENOMEM || code == FIBULA_EAGAIN);
	has(reader, seed);
	if (code == FIBULA_OK)
		CHECK(small == most);
	for (uint64_t i = N_NAMES; i < more; i++) {
		struct name name = name_of(seed, i);
		code = fibula_table_remove(table, name.bytes, 8);
		CHECK(code == FIBULA_OK || code == FIBULA_ENOENT || code == FIBULA_ENOMEM || code == FIBULA_EAGAIN);
	}
	CHECK(fibula_table_place(table, memory, most) == FIBULA_OK);
	has(reader, seed);
	/* The reader has looked up since, so the memory before is the program's again. */
	munmap(less, most);
	for (size_t cut = 0; cut < 8192; cut += 64)
		CHECK(!fibula_attach_memory(memory, cut, why));

	/* Another process reads it while it changes. */
	CHECK(pipe(end) == 0);
	pid_t other = fork();
	CHECK(other >= 0);
	if (other == 0) {
		close(end[1]);
		/* It must not wait for the byte. */
		int flags = fcntl(end[0], F_GETFL);
		if (flags < 0 || fcntl(end[0], F_SETFL, flags | O_NONBLOCK))
			_exit(1);
		_exit(watch(memory, most, seed, end[0]));
	}
	for (int round = 0; round < N_ROUNDS; round++)
		change(table, seed, round);
	CHECK(write(end[1], "x", 1) == 1);
	CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);

	CHECK(fibula_table_free(table) == FIBULA_OK && fibula_reader_free(reader) == FIBULA_OK);
	munmap(memory, most);
	return 0;
}
