/* Forwards frames between interfaces by a FIB file, in the kernel:
 *
 *     forward forward.bpf.o names.fib 1=eth1 2=eth2        port 1 of the file's actions is eth1, and so on
 *     forward --generic forward.bpf.o ...                  where the drivers have no XDP of their own
 *     forward --answer forward.bpf.o names.fib <digests    only looks digests up, 16 hexadecimal digits each
 *
 * Frames whose name has no port here go to the machine's own stack. Prints every second what was forwarded and what was not;
 * ends with Ctrl-C, and the programs end with it, also by kill -9.
 * Build: examples/xdp/build DIR. Needs root, and libbpf to build and run. */
#include "fibula.h"
#include "fibula_bpf.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>

static int fails(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	return 1;
}

static void *map_memory(struct bpf_object *object, const char *name, size_t bytes)
{
	struct bpf_map *map = bpf_object__find_map_by_name(object, name);
	return map ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0) : MAP_FAILED;
}

static int answer(struct bpf_object *object)
{
	int program = bpf_program__fd(bpf_object__find_program_by_name(object, "answer"));
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		uint64_t in[8] = {strtoull(line, NULL, 16)}, out[8] = {0};
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = in, .data_out = out, .data_size_in = sizeof in,
			.data_size_out = sizeof out, .repeat = 1);
		if (bpf_prog_test_run_opts(program, &run) || run.retval != 2)
			return fails("the test run", strerror(errno));
		printf("%02llx\n", (unsigned long long)out[1]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int is_answer = argc > 1 && !strcmp(argv[1], "--answer"), is_generic = argc > 1 && !strcmp(argv[1], "--generic");
	char **at = argv + 1 + (is_answer || is_generic), why[FIBULA_WHY];
	if (argv + argc - at < (is_answer ? 2 : 3))
		return fails("usage", "forward [--generic] OBJECT FIB PORT=INTERFACE..., or forward --answer OBJECT FIB <digests");
	struct fibula_fib *fib = fibula_open(at[1], why);
	if (!fib)
		return fails(at[1], why);
	struct bpf_object *object = bpf_object__open_file(at[0], NULL);
	if (!object || bpf_object__load(object))
		return fails(at[0], "cannot be loaded: run as root, on Linux 5.9 or later");
	struct fibula_bpf_table *table = (struct fibula_bpf_table *)map_memory(object, "table", sizeof *table);
	uint64_t *ports_of_values = (uint64_t *)map_memory(object, "ports_of_values", 65536 * sizeof *ports_of_values);
	if (table == MAP_FAILED || ports_of_values == MAP_FAILED)
		return fails("the maps", strerror(errno));
	const char *wrong = fibula_bpf_fill(table, fib, 6);
	if (wrong)
		return fails(at[1], wrong);
	for (uint32_t value = 0; value < 65536; value++) {
		struct fibula_action action = fibula_action(fib, (uint16_t)value);
		ports_of_values[value] = action.verb == FIBULA_PORT && action.port < 1024 ? action.port : 0;
	}
	fibula_free(fib);
	if (is_answer)
		return answer(object);
	int ports = bpf_map__fd(bpf_object__find_map_by_name(object, "ports"));
	int program = bpf_program__fd(bpf_object__find_program_by_name(object, "forward"));
	for (at += 2; at < argv + argc; at++) {
		char *name = strchr(*at, '=');
		uint32_t port = (uint32_t)strtoul(*at, NULL, 10), interface = name ? if_nametoindex(name + 1) : 0;
		if (!interface || port == 0 || port >= 1024)
			return fails(*at, "write a port of 1 to 1023, = and an interface of `ip link`");
		LIBBPF_OPTS(bpf_link_create_opts, options, .flags = is_generic ? XDP_FLAGS_SKB_MODE : 0);
		if (bpf_map_update_elem(ports, &port, &interface, 0) || bpf_link_create(program, (int)interface, BPF_XDP, &options) < 0)
			return fails(*at, errno == EBUSY ? "another XDP program is attached to it" : strerror(errno));
	}
	int counts = bpf_map__fd(bpf_object__find_map_by_name(object, "counts")), n_cpus = libbpf_num_possible_cpus();
	uint64_t *by_cpu = (uint64_t *)calloc((size_t)n_cpus, sizeof *by_cpu);
	for (;;) {
		uint64_t sums[2] = {0, 0};
		for (uint32_t which = 0; by_cpu && which < 2; which++) {
			bpf_map_lookup_elem(counts, &which, by_cpu);
			for (int cpu = 0; cpu < n_cpus; cpu++)
				sums[which] += by_cpu[cpu];
		}
		printf("%llu forwarded, %llu left to the stack\n", (unsigned long long)sums[0], (unsigned long long)sums[1]);
		fflush(stdout);
		sleep(1);
	}
}
