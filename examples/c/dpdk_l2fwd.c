/* Forwards frames between the ports of DPDK by their destination, with a table of libfibula's as the FIB:
 *     dpdk_l2fwd [EAL arguments] -- names.csv [FRAMES]
 * names.csv has lines as `02:00:00:00:00:01,port:3`; port 1 is DPDK's port 0. A frame is dropped if its name has no port, or
 * the one that it came by. It ends after FRAMES frames, or when none has come for a second.
 *     dpdk_l2fwd [EAL arguments, two ports] -- measure NAMES [DESIGN [FRAMES]]
 * measures frames a second from port 0 to port 1 with NAMES names: without a look-up, with libfibula's, and with that of
 * fibula.h, which is compiled into this program and reads the same table in a memzone, as a secondary process could. Every value is
 * checked.
 * Build: cc -O2 examples/c/dpdk_l2fwd.c -o dpdk_l2fwd $(pkg-config --cflags --libs fibula) $(pkg-config --cflags libdpdk) \
 *     -lrte_ethdev -lrte_mbuf -lrte_mempool -lrte_eal
 * As virtual ports without privileges: dpdk_l2fwd --no-huge -m 256 --no-pci --vdev=net_null0 --vdev=net_null1 -- measure 1000000 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>

#include "fibula.h"
#include "libfibula.h"

#define BURST 32
#define N_DESCRIPTORS 512
#define N_BUFFERS 8191
#define CACHE 256

/* Of a measurement: destinations of frames, in the order in which they are used; runs of each kind. */
#define N_DESTINATIONS (1 << 20)
#define N_RUNS 7
#define N_KINDS 3

struct name {
	uint8_t bytes[6];
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "dpdk_l2fwd: %s: %s\n", what, why);
	exit(1);
}

static struct fibula_table *new_table(const char *design, uint64_t n_names)
{
	struct fibula_options options = FIBULA_OPTIONS;
	struct fibula_table *table;
	options.design = design;
	options.names = "mac";
	options.value_bits = 8;
	options.max_names = n_names;
	if (fibula_table_new(&options, &table))
		fail("the table", fibula_last_error());
	return table;
}

static struct fibula_table *load(const char *path)
{
	struct fibula_table *table = new_table("ofw", 1 << 20);
	char line[256];
	FILE *file = fopen(path, "r");
	if (!file)
		fail(path, "cannot be read");
	while (fgets(line, sizeof line, file)) {
		unsigned mac[6], port;
		uint8_t name[6];
		if (line[0] == '#' || line[0] == '\n' || !strncmp(line, "name,", 5))
			continue;
		if (sscanf(line, "%2x:%2x:%2x:%2x:%2x:%2x,port:%u", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5],
			    &port) != 7 || port == 0 || port > 255)
			fail(line, "is no line like 02:00:00:00:00:01,port:3 with a port of 1 to 255");
		for (int i = 0; i < 6; i++)
			name[i] = (uint8_t)mac[i];
		if (fibula_table_set(table, name, 6, port))
			fail(line, fibula_last_error());
	}
	fclose(file);
	return table;
}

/* One queue each way at every port. */
static uint16_t open_ports(void)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", N_BUFFERS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
							   SOCKET_ID_ANY);
	uint16_t n = rte_eth_dev_count_avail(), port;
	if (!pool)
		fail("buffers", rte_strerror(rte_errno));
	if (n == 0)
		fail("ports", "there are none; give --vdev=net_null0 or the like");
	RTE_ETH_FOREACH_DEV(port) {
		struct rte_eth_conf conf;
		memset(&conf, 0, sizeof conf);
		if (rte_eth_dev_configure(port, 1, 1, &conf) ||
		    rte_eth_rx_queue_setup(port, 0, N_DESCRIPTORS, rte_eth_dev_socket_id(port), NULL, pool) ||
		    rte_eth_tx_queue_setup(port, 0, N_DESCRIPTORS, rte_eth_dev_socket_id(port), NULL) ||
		    rte_eth_dev_start(port))
			fail("a port", "cannot be set up");
		rte_eth_promiscuous_enable(port);
	}
	return n;
}

/* Looks the destinations of a burst up where they are, in the frames. */
static void look_up(struct fibula_reader *fib, struct rte_mbuf **frames, uint16_t n, uint32_t *ports)
{
	const void *destinations[BURST];
	for (uint16_t i = 0; i < n; i++)
		destinations[i] = rte_pktmbuf_mtod(frames[i], const void *);
	if (fibula_reader_lookup_burst(fib, destinations, 6, n, ports))
		fail("a lookup", fibula_last_error());
}

/* Sends what the port takes, and frees the rest; how many were sent. */
static uint16_t send_by(uint16_t port, struct rte_mbuf **frames, uint16_t n)
{
	uint16_t sent = rte_eth_tx_burst(port, 0, frames, n);
	rte_pktmbuf_free_bulk(frames + sent, n - sent);
	return sent;
}

static void forward(struct fibula_reader *fib, uint16_t n_ports, uint64_t n_frames)
{
	uint64_t n_received = 0, n_sent = 0, second = rte_get_tsc_hz(), last = rte_get_tsc_cycles();
	while (n_received < n_frames && rte_get_tsc_cycles() - last < second) {
		for (uint16_t port = 0; port < n_ports; port++) {
			struct rte_mbuf *frames[BURST];
			uint32_t ports[BURST];
			uint16_t n = rte_eth_rx_burst(port, 0, frames, BURST);
			if (n == 0)
				continue;
			last = rte_get_tsc_cycles();
			n_received += n;
			look_up(fib, frames, n, ports);
			for (uint16_t i = 0; i < n; i++) {
				uint32_t to = ports[i];
				if (to == 0 || to > n_ports || to - 1 == port)
					rte_pktmbuf_free(frames[i]);
				else
					n_sent += send_by((uint16_t)(to - 1), &frames[i], 1);
			}
		}
	}
	printf("%" PRIu64 " frames sent, %" PRIu64 " dropped\n", n_sent, n_received - n_sent);
}

/* What looks names up: nothing, libfibula, or fibula.h. */
struct look_up {
	struct fibula_reader *reader;
	const struct fibula_fib *fib;
	uint64_t n_wrong, sum;
};

static uint32_t port_of(const struct name *name)
{
	return 1u + name->bytes[5] % 250u;
}

/* Looks a burst up in place of a forwarder; without a reader, the destinations are read all the same. */
static void decide(struct look_up *by, struct rte_mbuf **frames, uint16_t n)
{
	const struct name *destinations[BURST];
	uint32_t ports[BURST];
	for (uint16_t i = 0; i < n; i++)
		destinations[i] = rte_pktmbuf_mtod(frames[i], const struct name *);
	if (by->reader) {
		look_up(by->reader, frames, n, ports);
		for (uint16_t i = 0; i < n; i++)
			by->n_wrong += ports[i] != port_of(destinations[i]);
	} else if (by->fib) {
		struct name names[BURST];
		uint16_t values[BURST];
		for (uint16_t i = 0; i < n; i++)
			names[i] = *destinations[i];
		fibula_lookup_burst(by->fib, names, 6, sizeof names[0], n, values);
		for (uint16_t i = 0; i < n; i++)
			by->n_wrong += fibula_action(by->fib, values[i]).port != port_of(destinations[i]);
	} else {
		for (uint16_t i = 0; i < n; i++)
			by->sum += port_of(destinations[i]);
	}
}

/* Frames in a microsecond, from port 0 to port 1. Their destinations are written into them, because net_null makes empty
 * frames. */
static double run(struct look_up *by, const struct name *names, uint64_t n_frames)
{
	uint64_t done = 0, began = rte_get_tsc_cycles();
	while (done < n_frames) {
		struct rte_mbuf *frames[BURST];
		uint16_t n = rte_eth_rx_burst(0, 0, frames, BURST);
		for (uint16_t i = 0; i < n; i++)
			*rte_pktmbuf_mtod(frames[i], struct name *) = names[(done + i) % N_DESTINATIONS];
		decide(by, frames, n);
		send_by(1, frames, n);
		done += n;
	}
	return (double)done / ((double)(rte_get_tsc_cycles() - began) / (double)rte_get_tsc_hz()) / 1e6;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static struct name name_of(uint64_t i)
{
	struct name name;
	uint64_t x = mix(i + 1);
	memcpy(name.bytes, &x, 6);
	name.bytes[0] = (uint8_t)((name.bytes[0] & 0xfc) | 2);
	return name;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *values)
{
	qsort(values, N_RUNS, sizeof *values, ascending);
	return values[N_RUNS / 2];
}

static void measure(uint64_t n_names, const char *design, uint64_t n_frames)
{
	static const char *const what[N_KINDS] = { "no look-up", "libfibula", "fibula.h" };
	struct fibula_table *table = new_table(design, n_names);
	struct name *all = (struct name *)malloc(n_names * sizeof *all);
	struct name *names = (struct name *)malloc(N_DESTINATIONS * sizeof *names);
	uint32_t *values = (uint32_t *)malloc(n_names * sizeof *values);
	struct look_up by[N_KINDS];
	double rates[N_KINDS][N_RUNS], ratios[N_KINDS][N_RUNS];
	char why[FIBULA_WHY];
	size_t bytes;
	if (!all || !names || !values || rte_eth_dev_count_avail() < 2)
		fail("a measurement", "needs two ports, and memory");
	for (uint64_t i = 0; i < n_names; i++) {
		all[i] = name_of(i);
		values[i] = port_of(&all[i]);
	}
	for (uint64_t i = 0; i < N_DESTINATIONS; i++)
		names[i] = all[mix(~i) % n_names];
	if (fibula_table_set_batch(table, all, 6, sizeof *all, values, n_names))
		fail("names", fibula_last_error());
	free(all);
	free(values);
	memset(by, 0, sizeof by);
	/* A quarter is enough for a table that does not grow any more. */
	if (fibula_table_most_bytes(table, &bytes))
		fail("the table's size", fibula_last_error());
	const struct rte_memzone *zone = rte_memzone_reserve_aligned("fibula", bytes / 4, SOCKET_ID_ANY, 0, 64);
	if (!zone)
		fail("a memzone; give EAL more memory by -m", rte_strerror(rte_errno));
	if (fibula_table_place(table, zone->addr, zone->len))
		fail("the memzone", fibula_last_error());
	struct fibula_fib *fib = fibula_attach_memory(zone->addr, zone->len, why);
	if (!fib)
		fail("the table in the memzone", why);
	if (fibula_reader_new(table, &by[1].reader))
		fail("a reader", fibula_last_error());
	by[2].fib = fib;
	/* In turn, so that what else the machine does concerns all of them. */
	for (int i = 0; i < N_RUNS; i++)
		for (int kind = 0; kind < N_KINDS; kind++) {
			rates[kind][i] = run(&by[kind], names, n_frames);
			ratios[kind][i] = rates[kind][i] / rates[0][i];
		}
	for (int kind = 0; kind < N_KINDS; kind++) {
		if (by[kind].n_wrong)
			fail(what[kind], "gave other values than were set");
		double rate = median(rates[kind]);
		printf("%s, %" PRIu64 " names, %s: %.1f million frames a second, %.1f ns a frame, ratio %.2f\n", design, n_names,
		       what[kind], rate, 1e3 / rate, median(ratios[kind]));
	}
	free(names);
	fibula_free(fib);
	fibula_reader_free(by[1].reader);
	fibula_table_free(table);
	rte_memzone_free(zone);
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0)
		fail("EAL", rte_strerror(rte_errno));
	argc -= used;
	argv += used;
	if (argc < 2 || (!strcmp(argv[1], "measure") && argc < 3)) {
		fprintf(stderr, "usage: dpdk_l2fwd [EAL arguments] -- names.csv [FRAMES], or measure NAMES [DESIGN [FRAMES]]\n");
		return 2;
	}
	uint16_t n_ports = open_ports();
	if (!strcmp(argv[1], "measure")) {
		measure(strtoull(argv[2], NULL, 10), argc > 3 ? argv[3] : "concise",
			argc > 4 ? strtoull(argv[4], NULL, 10) : 6000000);
	} else {
		struct fibula_table *table = load(argv[1]);
		struct fibula_reader *reader;
		if (fibula_reader_new(table, &reader))
			fail("a reader", fibula_last_error());
		forward(reader, n_ports, argc > 2 ? strtoull(argv[2], NULL, 10) : UINT64_MAX);
		fibula_reader_free(reader);
		fibula_table_free(table);
	}
	for (uint16_t port = 0; port < n_ports; port++) {
		rte_eth_dev_stop(port);
		rte_eth_dev_close(port);
	}
	rte_eal_cleanup();
	return 0;
}
