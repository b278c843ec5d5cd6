/* hostile DIR DESIGN SEED: handles of the wrong sort, exports that are cut, and tables that are shared, changed and freed while
 * others read them. */
#include <pthread.h>

#include "check.h"

#define N_NAMES 2000
#define N_VERSIONS 40

static uint32_t is_over;

static void handles_are_not_mixed_up(const char *design, uint64_t seed)
{
	struct fibula_table *table = table_of(design, "fixed:8", 8, 100, KEY);
	struct fibula_reader *reader;
	struct name name = name_of(seed, 0);
	uint64_t n;
	uint32_t value;
	CHECK(fibula_reader_new(table, &reader) == FIBULA_OK);
	struct fibula_table *no_table = (struct fibula_table *)reader;
	struct fibula_reader *no_reader = (struct fibula_reader *)table;
	REFUSED(fibula_table_count(no_table, &n), FIBULA_EINVAL, "not a table");
	REFUSED(fibula_table_set(no_table, name.bytes, 8, 1), FIBULA_EINVAL, "not a table");
	REFUSED(fibula_table_free(no_table), FIBULA_EINVAL, "not a table");
	REFUSED(fibula_reader_new(no_table, &no_reader), FIBULA_EINVAL, "not a table");
	CHECK(!no_reader);
	no_reader = (struct fibula_reader *)table;
	REFUSED(fibula_reader_lookup(no_reader, name.bytes, 8, &value), FIBULA_EINVAL, "not a reader");
	REFUSED(fibula_reader_offline(no_reader), FIBULA_EINVAL, "not a reader");
	REFUSED(fibula_reader_free(no_reader), FIBULA_EINVAL, "not a reader");
	CHECK(fibula_reader_free(reader) == FIBULA_OK && fibula_table_free(table) == FIBULA_OK);
}

/* A cut export is refused, by this library and by fibula.h, and a follower that gets one stays what it was. */
static void exports_that_are_cut_are_refused(const char *design, uint64_t seed)
{
	static uint32_t before[N_NAMES], after[N_NAMES];
	struct fibula_table *table = table_of(design, "fixed:8", 8, N_NAMES, KEY), *follower, *none;
	struct fibula_reader *reader;
	uint8_t *bytes;
	size_t len;
	for (uint64_t i = 0; i < N_NAMES; i++) {
		struct name name = name_of(seed, i);
		CHECK(fibula_table_set(table, name.bytes, 8, (uint32_t)(i % 256)) == FIBULA_OK);
	}
	CHECK(fibula_table_record(table) == FIBULA_OK && fibula_table_export(table, &bytes, &len) == FIBULA_OK);
	CHECK(fibula_table_follow(bytes, len, &follower) == FIBULA_OK && fibula_reader_new(follower, &reader) == FIBULA_OK);
	look_up(reader, seed, 0, N_NAMES, before);
	for (size_t cut = 0; cut < len; cut += 1 + len / 97) {
		/* Of its own length, so that a read behind its end is found. */
		uint8_t *piece = (uint8_t *)malloc(cut ? cut : 1);
		char why[FIBULA_WHY] = "";
		CHECK(piece);
		memcpy(piece, bytes, cut);
		REFUSED(fibula_table_follow(piece, cut, &none), FIBULA_EDAMAGED, "");
		CHECK(fibula_table_apply(follower, piece, cut) == FIBULA_EDAMAGED && *fibula_last_error());
		CHECK(!fibula_load(piece, cut, why) && *why);
		free(piece);
	}
	fibula_bytes_free(bytes, len);
	for (uint64_t i = 0; i < 50; i++) {
		struct name name = name_of(seed, i);
		CHECK(fibula_table_set(table, name.bytes, 8, 1) == FIBULA_OK);
	}
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK);
	for (size_t cut = 0; cut < len; cut += 1 + len / 97)
		REFUSED(fibula_table_apply(follower, bytes, cut), FIBULA_EDAMAGED, "no updates, or damaged");
	look_up(reader, seed, 0, N_NAMES, after);
	CHECK(!memcmp(before, after, sizeof before));
	CHECK(fibula_table_apply(follower, bytes, len) == FIBULA_OK);
	look_up(reader, seed, 0, 50, after);
	for (int i = 0; i < 50; i++)
		CHECK(after[i] == 1);
	fibula_bytes_free(bytes, len);
	CHECK(fibula_reader_free(reader) == FIBULA_OK && fibula_table_free(follower) == FIBULA_OK &&
		fibula_table_free(table) == FIBULA_OK);
}

struct watch {
	struct fibula_reader *reader;
	const char *path;
	uint64_t seed;
};

/* Names get one version after the other: none ever goes back. */
static void *watch_by_reader(void *argument)
{
	struct watch *watch = (struct watch *)argument;
	static const int piece = 20;
	uint32_t seen[N_NAMES] = {0};
	for (uint64_t i = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i = (i + piece) % N_NAMES)
		for (int j = 0; j < piece; j++) {
			struct name name = name_of(watch->seed, i + (uint64_t)j);
			uint32_t value;
			CHECK(fibula_reader_lookup(watch->reader, name.bytes, 8, &value) == FIBULA_OK);
			CHECK(value >= seen[i + (uint64_t)j] && value <= N_VERSIONS);
			seen[i + (uint64_t)j] = value;
		}
	return NULL;
}

static void *watch_by_attaching(void *argument)
{
	const struct watch *watch = (const struct watch *)argument;
	uint32_t seen[N_NAMES] = {0};
	char why[FIBULA_WHY];
	struct fibula_fib *fib = fibula_attach(watch->path, why);
	CHECK(fib);
	for (uint64_t i = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i = (i + 1) % N_NAMES) {
		struct name name = name_of(watch->seed, i);
		uint32_t value = fibula_lookup(fib, name.bytes, 8);
		CHECK(value >= seen[i] && value <= N_VERSIONS);
		seen[i] = value;
		if (i % 100 == 0)
			CHECK(fibula_refresh(&fib, watch->path, why) >= 0);
	}
	fibula_free(fib);
	return NULL;
}

static void a_table_is_shared_changed_and_freed_under_its_readers(const char *dir, const char *design, uint64_t seed)
{
	static uint32_t values[N_NAMES];
	struct fibula_table *table = table_of(design, "fixed:8", 8, N_NAMES, KEY);
	char path[4096], why[FIBULA_WHY];
	pthread_t threads[3];
	struct watch watches[3];
	struct fibula_reader *sleeper;
	struct name names[N_NAMES];
	snprintf(path, sizeof path, "%s/%s", dir, design);
	for (uint64_t i = 0; i < N_NAMES; i++)
		names[i] = name_of(seed, i);
	CHECK(fibula_table_set_batch(table, names, 8, 8, values, N_NAMES) == FIBULA_OK);
	/* It looks up once before everything, and once after. */
	CHECK(fibula_reader_new(table, &sleeper) == FIBULA_OK);
	look_up(sleeper, seed, 0, 1, values);
	CHECK(fibula_reader_offline(sleeper) == FIBULA_OK);
	CHECK(fibula_table_share(table, path) == FIBULA_OK);
	__atomic_store_n(&is_over, 0, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++) {
		struct watch watch = {NULL, path, seed};
		watches[i] = watch;
		if (i < 2)
			CHECK(fibula_reader_new(table, &watches[i].reader) == FIBULA_OK);
		CHECK(!pthread_create(&threads[i], NULL, i < 2 ? watch_by_reader : watch_by_attaching, &watches[i]));
	}
	for (uint32_t version = 1; version <= N_VERSIONS; version++) {
		for (uint64_t i = 0; i < N_NAMES; i++)
			values[i] = version;
		CHECK(fibula_table_set_batch(table, names, 8, 8, values, N_NAMES) == FIBULA_OK);
		/* In the same place: who has it attached finds the new one. */
		if (version % 4 == 0)
			CHECK(fibula_table_share(table, path) == FIBULA_OK);
	}
	/* A reader that was made before has the last values, once the table is freed, too. */
	CHECK(fibula_table_free(table) == FIBULA_OK);
	look_up(sleeper, seed, 0, N_NAMES, values);
	for (uint64_t i = 0; i < N_NAMES; i++)
		CHECK(values[i] == N_VERSIONS);
	struct fibula_fib *fib = fibula_attach(path, why);
	CHECK(fib);
	for (uint64_t i = 0; i < N_NAMES; i++)
		CHECK(fibula_lookup(fib, names[i].bytes, 8) == N_VERSIONS);
	fibula_free(fib);
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK(fibula_reader_free(watches[0].reader) == FIBULA_OK && fibula_reader_free(watches[1].reader) == FIBULA_OK);
	CHECK(fibula_reader_free(sleeper) == FIBULA_OK);
}

static int is_tunnel(struct fibula_action action, uint32_t node, const uint8_t address[4])
{
	return action.verb == FIBULA_TUNNEL && action.node == node && action.address_bytes == 4 &&
		!memcmp(action.address, address, 4);
}

static void values_mean_what_they_are_said_to(const char *dir, const char *design, uint64_t seed)
{
	struct fibula_table *table = table_of(design, "fixed:8", 8, 100, KEY), *follower;
	struct fibula_table *wide = table_of("line", "fixed:8", 17, 100, KEY);
	struct fibula_meaning tunnel = {7, 3, 70000, 4, {10, 0, 0, 9}}, punt = {8, 4, 0, 0, {0}}, wrong;
	struct fibula_meaning both[2] = {tunnel, punt};
	struct name name = name_of(seed, 0);
	uint8_t *bytes;
	size_t len;
	char path[4096], why[FIBULA_WHY];
	snprintf(path, sizeof path, "%s/%s.meanings", dir, design);
	CHECK(fibula_table_set(table, name.bytes, 8, 7) == FIBULA_OK && fibula_table_record(table) == FIBULA_OK);
	CHECK(fibula_table_export(table, &bytes, &len) == FIBULA_OK);
	CHECK(fibula_table_follow(bytes, len, &follower) == FIBULA_OK);
	fibula_bytes_free(bytes, len);
	CHECK(fibula_table_share(table, path) == FIBULA_OK);
	struct fibula_fib *fib = fibula_attach(path, why);
	CHECK(fib && fibula_action(fib, 7).verb == FIBULA_PORT && fibula_action(fib, 7).port == 7);

	wrong = tunnel; wrong.value = 0;
	REFUSED(fibula_table_set_actions(table, &wrong, 1), FIBULA_EINVAL, "0 is drop");
	wrong.value = 256;
	REFUSED(fibula_table_set_actions(table, &wrong, 1), FIBULA_EINVAL, "1 to 255");
	wrong = tunnel; wrong.address_bytes = 5;
	REFUSED(fibula_table_set_actions(table, &wrong, 1), FIBULA_EINVAL, "4 or 16");
	wrong = punt; wrong.address_bytes = 4;
	REFUSED(fibula_table_set_actions(table, &wrong, 1), FIBULA_EINVAL, "only a tunnel");
	wrong = punt; wrong.verb = 5;
	REFUSED(fibula_table_set_actions(table, &wrong, 1), FIBULA_EINVAL, "verbs are 0 to 4");
	wrong.verb = 1; wrong.number = 65536;
	both[1] = wrong;
	REFUSED(fibula_table_set_actions(table, both, 2), FIBULA_EINVAL, "ports are 0 to 65535");
	REFUSED(fibula_table_set_actions(table, NULL, 2), FIBULA_EINVAL, "meanings is NULL");
	REFUSED(fibula_table_set_actions(follower, &tunnel, 1), FIBULA_EFOLLOWER, "follows another");
	REFUSED(fibula_table_set_actions(wide, &tunnel, 1), FIBULA_EUNSUPPORTED, "at most 16 bits");
	CHECK(fibula_action(fib, 7).verb == FIBULA_PORT);

	/* Who has the table attached sees it, and so does who reads an export, of the table or of a follower. */
	both[1] = punt;
	CHECK(fibula_table_set_actions(table, both, 2) == FIBULA_OK);
	CHECK(is_tunnel(fibula_action(fib, fibula_lookup(fib, name.bytes, 8)), 70000, tunnel.address));
	CHECK(fibula_action(fib, 8).verb == FIBULA_PUNT && fibula_action(fib, 9).port == 9 && fibula_action(fib, 0).verb == FIBULA_DROP);
	fibula_free(fib);
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK && fibula_table_apply(follower, bytes, len) == FIBULA_OK);
	fibula_bytes_free(bytes, len);
	for (int i = 0; i < 2; i++) {
		CHECK(fibula_table_export(i ? follower : table, &bytes, &len) == FIBULA_OK);
		fib = fibula_load(bytes, len, why);
		CHECK(fib && is_tunnel(fibula_action(fib, fibula_lookup(fib, name.bytes, 8)), 70000, tunnel.address));
		CHECK(fibula_action(fib, 8).verb == FIBULA_PUNT && fibula_action(fib, 255).port == 255);
		fibula_free(fib);
		fibula_bytes_free(bytes, len);
	}
	/* Back to a port. */
	tunnel.verb = 1; tunnel.number = 7; tunnel.address_bytes = 0;
	CHECK(fibula_table_set_actions(table, &tunnel, 1) == FIBULA_OK);
	fib = fibula_attach(path, why);
	CHECK(fib && fibula_action(fib, 7).verb == FIBULA_PORT && fibula_action(fib, 8).verb == FIBULA_PUNT);
	fibula_free(fib);
	CHECK(fibula_table_free(table) == FIBULA_OK && fibula_table_free(follower) == FIBULA_OK && fibula_table_free(wide) == FIBULA_OK);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	uint64_t seed = strtoull(argv[3], NULL, 10);
	handles_are_not_mixed_up(argv[2], seed);
	exports_that_are_cut_are_refused(argv[2], seed);
	a_table_is_shared_changed_and_freed_under_its_readers(argv[1], argv[2], seed);
	values_mean_what_they_are_said_to(argv[1], argv[2], seed);
	return 0;
}
