/* refusals DIR: what is refused, and what the table is then. */
#include "check.h"

static const uint8_t A[6] = {2, 0, 0, 0, 0, 1}, B[6] = {2, 0, 0, 0, 0, 2}, C[6] = {2, 0, 0, 0, 0, 3};

static void options_are_checked(void)
{
	struct fibula_table *table = (struct fibula_table *)1;
	struct fibula_options good = FIBULA_OPTIONS, bad;
	good.names = "mac";
	good.value_bits = 8;
	good.max_names = 2;
	REFUSED(fibula_table_new(NULL, &table), FIBULA_EINVAL, "options is NULL");
	REFUSED(fibula_table_new(&good, NULL), FIBULA_EINVAL, "the table's address is NULL");
	bad = good; bad.bytes = 8;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "FIBULA_OPTIONS");
	CHECK(!table);
	bad = good; bad.design = "cuckoo";
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "use concise, ofw, line, line-fast, line-small");
	bad = good; bad.design = "\xff";
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "UTF-8");
	bad = good; bad.names = NULL;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "set names");
	bad = good; bad.names = "fixed:65";
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "fixed:65");
	bad = good; bad.hash = "md5";
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "use muladd, wy, siphash13 or crc32c");
	bad = good; bad.value_bits = 0;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "1 to 32");
	bad = good; bad.value_bits = 33;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "1 to 32");
	bad = good; bad.design = "ofw"; bad.value_bits = 25;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "1 to 24");
	bad = good; bad.max_names = 0;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "max_names is 0");
	bad = good; bad.max_names = UINT64_MAX;
	REFUSED(fibula_table_new(&bad, &table), FIBULA_EINVAL, "max_names is");
}

static void names_and_handles_are_checked(void)
{
	struct fibula_table *table = table_of("line", "mac", 4, 2, KEY), *text = table_of("concise", "text", 8, 10, KEY);
	struct fibula_reader *reader = NULL, *none = NULL;
	uint64_t n = 99, words[64] = {0};
	uint32_t value = 0, values[2] = {1, 2};
	const void *names[2] = {A, NULL};

	REFUSED(fibula_table_set(NULL, A, 6, 1), FIBULA_EINVAL, "the table is NULL");
	REFUSED(fibula_table_set((struct fibula_table *)((char *)words + 1), A, 6, 1), FIBULA_EINVAL, "not aligned");
	REFUSED(fibula_table_set((struct fibula_table *)words, A, 6, 1), FIBULA_EINVAL, "not a table");
	REFUSED(fibula_reader_lookup((struct fibula_reader *)words, A, 6, &value), FIBULA_EINVAL, "not a reader");
	REFUSED(fibula_table_free((struct fibula_table *)words), FIBULA_EINVAL, "not a table");
	REFUSED(fibula_table_set(table, NULL, 6, 1), FIBULA_EINVAL, "the name is NULL");
	REFUSED(fibula_table_set(table, A, 5, 1), FIBULA_EINVAL, "mac names have 6");
	REFUSED(fibula_table_set(table, A, 0, 1), FIBULA_EINVAL, "mac names have 6");
	REFUSED(fibula_table_set(table, A, SIZE_MAX, 1), FIBULA_EINVAL, "more than memory");
	REFUSED(fibula_table_set(table, A, 6, 16), FIBULA_EINVAL, "4 bits");
	REFUSED(fibula_table_set(text, "\xff", 1, 1), FIBULA_EINVAL, "UTF-8");
	REFUSED(fibula_table_set(text, "a\n", 2, 1), FIBULA_EINVAL, "control");
	CHECK(fibula_table_set(text, "/a", 2, 1) == FIBULA_OK && fibula_table_get(text, "/a", 2, &value) == FIBULA_OK && value == 1);
	CHECK(fibula_table_count(table, &n) == FIBULA_OK && n == 0);

	CHECK(fibula_table_set(table, A, 6, 15) == FIBULA_OK && fibula_table_set(table, B, 6, 3) == FIBULA_OK);
	REFUSED(fibula_table_set(table, C, 6, 1), FIBULA_EFULL, "max_names");
	REFUSED(fibula_table_get(table, C, 6, &value), FIBULA_ENOENT, "does not have");
	REFUSED(fibula_table_get(table, A, 6, NULL), FIBULA_EINVAL, "address is NULL");
	CHECK(fibula_table_get(table, A, 6, &value) == FIBULA_OK && value == 15);
	REFUSED(fibula_table_remove(table, C, 6), FIBULA_ENOENT, "does not have");
	REFUSED(fibula_table_count(table, NULL), FIBULA_EINVAL, "NULL");
	REFUSED(fibula_table_set_batch(table, A, 6, 5, values, 2), FIBULA_EINVAL, "stride");
	REFUSED(fibula_table_set_batch(table, A, 6, 6, NULL, 2), FIBULA_EINVAL, "values is NULL");
	REFUSED(fibula_table_set_batch(table, NULL, 6, 6, values, 2), FIBULA_EINVAL, "names is NULL");
	REFUSED(fibula_table_set_batch(table, A, 6, SIZE_MAX / 2, values, 2), FIBULA_EINVAL, "more than memory");
	CHECK(fibula_table_set_batch(table, NULL, 6, 6, NULL, 0) == FIBULA_OK);

	REFUSED(fibula_reader_new(table, NULL), FIBULA_EINVAL, "NULL");
	REFUSED(fibula_reader_new(NULL, &none), FIBULA_EINVAL, "the table is NULL");
	CHECK(fibula_reader_new(table, &reader) == FIBULA_OK);
	REFUSED(fibula_reader_lookup(NULL, A, 6, &value), FIBULA_EINVAL, "the reader is NULL");
	REFUSED(fibula_reader_lookup(reader, A, 7, &value), FIBULA_EINVAL, "mac names have 6");
	REFUSED(fibula_reader_lookup(reader, A, 6, NULL), FIBULA_EINVAL, "NULL");
	REFUSED(fibula_reader_lookup_burst(reader, names, 6, 2, values), FIBULA_EINVAL, "a name is NULL");
	REFUSED(fibula_reader_lookup_burst(reader, NULL, 6, 2, values), FIBULA_EINVAL, "names is NULL");
	REFUSED(fibula_reader_lookup_burst(reader, names, 6, 2, NULL), FIBULA_EINVAL, "values is NULL");
	REFUSED(fibula_reader_lookup_burst(reader, names, 6, SIZE_MAX, values), FIBULA_EINVAL, "more than memory");
	CHECK(fibula_reader_lookup_burst(reader, NULL, 6, 0, NULL) == FIBULA_OK);
	CHECK(fibula_reader_offline(reader) == FIBULA_OK);
	CHECK(fibula_reader_lookup(reader, B, 6, &value) == FIBULA_OK && value == 3);
	CHECK(fibula_reader_free(reader) == FIBULA_OK && fibula_reader_free(NULL) == FIBULA_OK);
	CHECK(fibula_table_free(table) == FIBULA_OK && fibula_table_free(NULL) == FIBULA_OK);
	CHECK(fibula_table_free(text) == FIBULA_OK && fibula_bytes_free(NULL, 0) == FIBULA_OK);
}

static void sharing_and_wide_values_are_checked(const char *dir)
{
	struct fibula_table *table = table_of("concise", "mac", 16, 100, KEY), *wide = table_of("line", "mac", 32, 100, KEY);
	struct fibula_reader *reader;
	uint8_t *bytes;
	size_t len;
	uint32_t value;
	char path[4096], why[FIBULA_WHY] = "";
	snprintf(path, sizeof path, "%s/table", dir);

	CHECK(fibula_table_set(wide, A, 6, UINT32_MAX) == FIBULA_OK && fibula_reader_new(wide, &reader) == FIBULA_OK);
	CHECK(fibula_reader_lookup(reader, A, 6, &value) == FIBULA_OK && value == UINT32_MAX);
	CHECK(fibula_reader_free(reader) == FIBULA_OK);
	REFUSED(fibula_table_export(wide, &bytes, &len), FIBULA_EUNSUPPORTED, "at most 16 bits");
	REFUSED(fibula_table_share(wide, path), FIBULA_EUNSUPPORTED, "at most 16 bits");
	REFUSED(fibula_table_record(wide), FIBULA_EUNSUPPORTED, "at most 16 bits");
	CHECK(fibula_table_free(wide) == FIBULA_OK);

	REFUSED(fibula_table_export(table, NULL, &len), FIBULA_EINVAL, "NULL");
	REFUSED(fibula_table_export(table, &bytes, NULL), FIBULA_EINVAL, "len is NULL");
	REFUSED(fibula_table_share(table, NULL), FIBULA_EINVAL, "no path");
	REFUSED(fibula_table_share(table, ""), FIBULA_EINVAL, "no path");
	REFUSED(fibula_table_share(table, "/proc/nowhere/table"), FIBULA_EIO, "no memory for a table");
	CHECK(fibula_table_set(table, A, 6, 65535) == FIBULA_OK && fibula_reader_new(table, &reader) == FIBULA_OK);
	CHECK(fibula_table_share(table, path) == FIBULA_OK);
	struct fibula_fib *fib = fibula_attach(path, why);
	CHECK(fib && fibula_is_written(fib));
	struct fibula_action action = fibula_action(fib, fibula_lookup(fib, A, 6));
	CHECK(action.verb == FIBULA_PORT && action.port == 65535);
	CHECK(fibula_table_set(table, A, 6, 1) == FIBULA_OK && fibula_lookup(fib, A, 6) == 1);
	/* A reader that was made before the table moved has the change, too. */
	CHECK(fibula_reader_lookup(reader, A, 6, &value) == FIBULA_OK && value == 1);
	CHECK(fibula_reader_free(reader) == FIBULA_OK);
	CHECK(fibula_table_remove(table, A, 6) == FIBULA_OK && fibula_lookup(fib, A, 6) == 0);
	fibula_free(fib);
	CHECK(fibula_table_free(table) == FIBULA_OK);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && *fibula_last_error() == 0 && *fibula_version());
	options_are_checked();
	names_and_handles_are_checked();
	sharing_and_wide_values_are_checked(argv[1]);
	return 0;
}
