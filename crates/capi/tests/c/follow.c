/* follow DESIGN SEED: followers have what the table has, from whenever they begin; messages that are lost, damaged, or of
 * another table are refused. */
#include "check.h"

#define MOST 6000

static uint64_t random_state;
static uint64_t below(uint64_t n)
{
	return mixed(++random_state * 0x9E3779B97F4A7C15ull) % n;
}

/* Names of the table, and aliens. */
static void same(struct fibula_table *one, struct fibula_table *other, uint64_t seed)
{
	static uint32_t values[2][2 * MOST];
	struct fibula_reader *readers[2];
	uint64_t n[2];
	CHECK(fibula_reader_new(one, &readers[0]) == FIBULA_OK && fibula_reader_new(other, &readers[1]) == FIBULA_OK);
	for (int i = 0; i < 2; i++) {
		look_up(readers[i], seed, 0, 2 * MOST, values[i]);
		CHECK(fibula_reader_free(readers[i]) == FIBULA_OK);
	}
	CHECK(!memcmp(values[0], values[1], sizeof values[0]));
	CHECK(fibula_table_count(one, &n[0]) == FIBULA_OK && fibula_table_count(other, &n[1]) == FIBULA_OK && n[0] == n[1]);
}

static void change(struct fibula_table *table, uint64_t seed, int n)
{
	for (int i = 0; i < n; i++) {
		struct name name = name_of(seed, below(MOST));
		int code = below(4) ? fibula_table_set(table, name.bytes, 8, (uint32_t)below(256)) :
			fibula_table_remove(table, name.bytes, 8);
		CHECK(code == FIBULA_OK || code == FIBULA_ENOENT);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	uint64_t seed = random_state = strtoull(argv[2], NULL, 10);
	struct fibula_table *table = table_of(argv[1], "fixed:8", 8, 2 * MOST, KEY);
	struct fibula_table *other = table_of(argv[1], "ipv4", 8, 10, KEY);
	struct fibula_table *early, *late, *none;
	uint8_t *bytes, *image;
	size_t len, image_len;

	REFUSED(fibula_table_updates(table, &bytes, &len), FIBULA_EINVAL, "fibula_table_record");
	change(table, seed, 3000);
	CHECK(fibula_table_record(table) == FIBULA_OK);
	CHECK(fibula_table_export(table, &bytes, &len) == FIBULA_OK);
	CHECK(fibula_table_follow(bytes, len, &early) == FIBULA_OK);
	for (size_t cut = 0; cut < len; cut += 1 + len / 50)
		CHECK(fibula_table_follow(bytes, cut, &none) == FIBULA_EDAMAGED && !none);
	fibula_bytes_free(bytes, len);
	same(table, early, seed);

	/* Each message, once or twice; in the middle another follower begins. */
	for (int round = 0; round < 20; round++) {
		change(table, seed, 1 + (int)below(200));
		if (round == 10) {
			CHECK(fibula_table_export(table, &image, &image_len) == FIBULA_OK);
			CHECK(fibula_table_follow(image, image_len, &late) == FIBULA_OK);
			fibula_bytes_free(image, image_len);
			same(table, late, seed);
			change(table, seed, 10);
		}
		CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK);
		for (uint64_t times = below(2); times < 2; times++)
			CHECK(fibula_table_apply(early, bytes, len) == FIBULA_OK);
		same(table, early, seed);
		if (round >= 10) {
			CHECK(fibula_table_apply(late, bytes, len) == FIBULA_OK);
			same(table, late, seed);
		}
		/* One bit is another. */
		bytes[below(len)] ^= (uint8_t)(1 << below(8));
		REFUSED(fibula_table_apply(early, bytes, len), FIBULA_EDAMAGED, "damaged");
		fibula_bytes_free(bytes, len);
	}

	/* A message that is lost is noticed by a later one that builds on it; an export is the remedy. */
	struct name name = name_of(seed, 1);
	CHECK(fibula_table_set(table, name.bytes, 8, 1) == FIBULA_OK && fibula_table_set(table, name.bytes, 8, 2) == FIBULA_OK);
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK);
	fibula_bytes_free(bytes, len);
	CHECK(fibula_table_set(table, name.bytes, 8, 3) == FIBULA_OK);
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK);
	REFUSED(fibula_table_apply(early, bytes, len), FIBULA_EGAP, "");
	fibula_bytes_free(bytes, len);
	CHECK(fibula_table_export(table, &image, &image_len) == FIBULA_OK);
	CHECK(fibula_table_apply(early, image, image_len) == FIBULA_OK);
	same(table, early, seed);

	/* What has more bytes than the table comes as the table. */
	change(table, seed, 20 * MOST);
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK && !memcmp(bytes, "FIBULAF2", 8));
	CHECK(fibula_table_apply(early, bytes, len) == FIBULA_OK && fibula_table_apply(late, bytes, len) == FIBULA_OK);
	fibula_bytes_free(bytes, len);
	same(table, early, seed);
	change(table, seed, 100);
	CHECK(fibula_table_updates(table, &bytes, &len) == FIBULA_OK && !memcmp(bytes, "FIBULAU1", 8));
	CHECK(fibula_table_apply(early, bytes, len) == FIBULA_OK && fibula_table_apply(late, bytes, len) == FIBULA_OK);
	same(table, early, seed);
	same(table, late, seed);

	/* Roles and tables are not mixed up. */
	uint32_t value;
	REFUSED(fibula_table_apply(table, bytes, len), FIBULA_EINVAL, "follows no other");
	REFUSED(fibula_table_set(early, name.bytes, 8, 1), FIBULA_EFOLLOWER, "follows another");
	REFUSED(fibula_table_remove(early, name.bytes, 8), FIBULA_EFOLLOWER, "follows another");
	REFUSED(fibula_table_get(early, name.bytes, 8, &value), FIBULA_EFOLLOWER, "reader");
	REFUSED(fibula_table_record(early), FIBULA_EFOLLOWER, "follows another");
	REFUSED(fibula_table_follow(NULL, 0, &none), FIBULA_EDAMAGED, "not a FIB file");
	REFUSED(fibula_table_follow(bytes, len, &none), FIBULA_EDAMAGED, "not a FIB file");
	REFUSED(fibula_table_apply(early, bytes, 3), FIBULA_EDAMAGED, "no updates");
	fibula_bytes_free(bytes, len);
	CHECK(fibula_table_export(other, &bytes, &len) == FIBULA_OK);
	REFUSED(fibula_table_apply(early, bytes, len), FIBULA_EGAP, "another table");
	fibula_bytes_free(bytes, len);
	/* Without a change, too, where no version of a part would tell. */
	struct fibula_table *rekeyed = table_of(argv[1], "fixed:8", 8, 2 * MOST, OTHER_KEY);
	CHECK(fibula_table_record(rekeyed) == FIBULA_OK);
	CHECK(fibula_table_updates(rekeyed, &bytes, &len) == FIBULA_OK);
	REFUSED(fibula_table_apply(early, bytes, len), FIBULA_EGAP, "another table");
	fibula_bytes_free(bytes, len);
	CHECK(fibula_table_free(rekeyed) == FIBULA_OK);
	fibula_bytes_free(image, image_len);
	CHECK(fibula_table_free(early) == FIBULA_OK && fibula_table_free(late) == FIBULA_OK);
	CHECK(fibula_table_free(table) == FIBULA_OK && fibula_table_free(other) == FIBULA_OK);
	return 0;
}
