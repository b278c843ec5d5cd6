/* Forwards frames by their destination, as DPDK's l2fwd does, from a pcap file to one pcap file a port:
 *     l2fwd names.csv frames.pcap OUT
 * names.csv has lines as `02:00:00:00:00:01,port:3`. Frames to port 3 are written to OUT3.pcap. Of frames to names that are
 * not in the list, one in some 300 gets a port (design ofw); the others are dropped.
 * Build: cc -O2 examples/c/l2fwd.c -o l2fwd $(pkg-config --cflags --libs fibula) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libfibula.h"

#define BURST 32
#define N_PORTS 256
#define MAX_FRAME 65536

/* A pcap file: 24 bytes of header, then frames behind 16 bytes each: seconds, fraction, bytes here, bytes on the wire. */
#define FILE_HEADER 24
#define FRAME_HEADER 16

struct frame {
	uint8_t header[FRAME_HEADER];
	uint32_t len;
	uint8_t bytes[MAX_FRAME];
};

struct forwarder {
	struct fibula_reader *fib;
	uint8_t header[FILE_HEADER];
	const char *out;
	FILE *ports[N_PORTS];
	uint64_t n_sent, n_dropped;
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "l2fwd: %s: %s\n", what, why);
	exit(1);
}

static uint32_t word(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static struct fibula_table *load(const char *path)
{
	struct fibula_options options = FIBULA_OPTIONS;
	struct fibula_table *table;
	char line[256];
	FILE *file = fopen(path, "r");
	if (!file)
		fail(path, "cannot be read");
	options.design = "ofw";
	options.names = "mac";
	options.value_bits = 8;
	options.max_names = 1 << 20;
	if (fibula_table_new(&options, &table))
		fail("the table", fibula_last_error());
	while (fgets(line, sizeof line, file)) {
		unsigned mac[6], port;
		uint8_t name[6];
		if (line[0] == '#' || line[0] == '\n' || !strncmp(line, "name,", 5))
			continue;
		if (sscanf(line, "%2x:%2x:%2x:%2x:%2x:%2x,port:%u", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5],
			    &port) != 7 || port == 0 || port >= N_PORTS)
			fail(line, "is no line like 02:00:00:00:00:01,port:3 with a port of 1 to 255");
		for (int i = 0; i < 6; i++)
			name[i] = (uint8_t)mac[i];
		if (fibula_table_set(table, name, 6, port))
			fail(line, fibula_last_error());
	}
	fclose(file);
	return table;
}

static void send_by(struct forwarder *forwarder, uint32_t port, const struct frame *frame)
{
	FILE **file = &forwarder->ports[port];
	if (!*file) {
		char path[4096];
		snprintf(path, sizeof path, "%s%u.pcap", forwarder->out, (unsigned)port);
		*file = fopen(path, "wb");
		if (!*file || fwrite(forwarder->header, FILE_HEADER, 1, *file) != 1)
			fail(path, "cannot be written");
	}
	if (fwrite(frame->header, FRAME_HEADER, 1, *file) != 1 || fwrite(frame->bytes, frame->len, 1, *file) != 1)
		fail("a frame", "cannot be written");
	forwarder->n_sent++;
}

/* The next frame that has a destination; 0 at the end of the file. */
static int receive(FILE *in, struct frame *frame)
{
	do {
		if (fread(frame->header, FRAME_HEADER, 1, in) != 1)
			return 0;
		frame->len = word(frame->header + 8);
		if (frame->len > MAX_FRAME || fread(frame->bytes, 1, frame->len, in) != frame->len)
			fail("the input", "ends within a frame, or has one of over 64 KiB");
	} while (frame->len < 6);
	return 1;
}

static void forward(struct forwarder *forwarder, FILE *in)
{
	struct frame *frames = (struct frame *)malloc(BURST * sizeof *frames);
	if (!frames)
		fail("frames", "no memory");
	for (;;) {
		const void *destinations[BURST];
		uint32_t ports[BURST];
		size_t n = 0;
		while (n < BURST && receive(in, &frames[n])) {
			destinations[n] = frames[n].bytes;
			n++;
		}
		if (n == 0)
			break;
		if (fibula_reader_lookup_burst(forwarder->fib, destinations, 6, n, ports))
			fail("a lookup", fibula_last_error());
		for (size_t i = 0; i < n; i++) {
			if (ports[i] == 0)
				forwarder->n_dropped++;
			else
				send_by(forwarder, ports[i], &frames[i]);
		}
	}
	free(frames);
}

int main(int argc, char **argv)
{
	static struct forwarder forwarder;
	if (argc != 4) {
		fprintf(stderr, "usage: l2fwd names.csv frames.pcap OUT\n");
		return 2;
	}
	struct fibula_table *table = load(argv[1]);
	FILE *in = fopen(argv[2], "rb");
	if (!in || fread(forwarder.header, FILE_HEADER, 1, in) != 1)
		fail(argv[2], "cannot be read");
	/* Microseconds or nanoseconds; little-endian; Ethernet. */
	uint32_t magic = word(forwarder.header);
	if ((magic != 0xa1b2c3d4 && magic != 0xa1b23c4d) || word(forwarder.header + 20) != 1)
		fail(argv[2], "is no little-endian pcap file of Ethernet frames");
	forwarder.out = argv[3];
	if (fibula_reader_new(table, &forwarder.fib))
		fail("a reader", fibula_last_error());
	forward(&forwarder, in);
	for (int port = 0; port < N_PORTS; port++)
		if (forwarder.ports[port] && fclose(forwarder.ports[port]))
			fail("a port", "cannot be written");
	printf("%llu frames sent, %llu dropped\n", (unsigned long long)forwarder.n_sent,
		(unsigned long long)forwarder.n_dropped);
	fclose(in);
	fibula_reader_free(forwarder.fib);
	fibula_table_free(table);
	return 0;
}
