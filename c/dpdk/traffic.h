/* Traffic of the bench over two nodes (`repro::bench::nodes`): makes frames for the ports of a switch, and checks what comes
 * back. Ports are opened elsewhere (ports.h); here their first queues are used, by one thread, a burst at a time.
 *
 *   0     the name      6     02:00:00:00:00:01   12   88 b5   14   hops   15   0   16   the run, 16 bits
 *   18    its place in the list, 32 bits          22   the line that it was sent by         23   its place, 8 bits, to the end
 * A frame of a line may come out of any line: the list says of which. */
#ifndef FIBULA_DPDK_TRAFFIC_H
#define FIBULA_DPDK_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#define FIBULA_TRAFFIC_BURST 32

struct rte_mbuf;
struct rte_mempool;

/* A port of the traffic, and the names whose frames enter the switch by it. */
struct fibula_traffic_line {
	/* Names of 48 bits; above them the number of the line that the frame comes out of, from 1. */
	const uint64_t *words;
	uint32_t n_words;
	uint32_t next;
	/* How often the frame of each word has come out, if frames are checked one by one. */
	uint8_t *seen;
	uint16_t port;
	/* Made and not sent yet. */
	uint16_t n_ready;
	struct rte_mbuf *ready[FIBULA_TRAFFIC_BURST];
};

/* How it goes on, and what is expected. */
struct fibula_traffic_plan {
	/* Bytes of a frame, at least 24. */
	uint16_t frame_bytes;
	/* The number of the run, one more than the last one's: what earlier ones left in the wires is not counted. */
	uint16_t run;
	/* Hops that a frame has when it is sent, and when it comes out. */
	uint8_t hops_in;
	uint8_t hops_out;
	/* Whether addresses are exchanged on the way. */
	uint8_t is_swapped;
	/* Whether each word is sent once, and each byte of its frame is checked; else they are sent again and again, and the
	 * fields above are. */
	uint8_t is_once;
	/* The most frames under way; 0: as many as the wires take. */
	uint32_t n_under_way;
	/* The longest that it goes on, and after how long without a frame it stops; in microseconds. */
	uint64_t longest_us;
	uint64_t quiet_us;
};

struct fibula_traffic_counts {
	uint64_t sent;
	uint64_t received;
	uint64_t wrong;
	/* The lines out of which right ones came, a bit each. */
	uint64_t heard;
	/* Of the first wrong frame: the line that it came out of, its bytes, as far as they have room. */
	uint32_t wrong_line;
	uint32_t wrong_bytes;
	uint8_t wrong_frame[64];
	uint64_t ns;
};

/* Buffers for so many lines. NULL: no memory. */
struct rte_mempool *fibula_traffic_pool(uint32_t n_lines);

/* The port of a device of this name; 0, or a negative errno. */
int fibula_traffic_port(const char *name, uint16_t *port);

/* Sends and receives as planned. */
void fibula_traffic_run(struct rte_mempool *pool, struct fibula_traffic_line *lines, uint32_t n_lines,
			const struct fibula_traffic_plan *plan, struct fibula_traffic_counts *counts);

/* Takes frames out of the lines and drops them until none has come for so long. */
void fibula_traffic_drain(struct fibula_traffic_line *lines, uint32_t n_lines, uint64_t quiet_us);

#endif
