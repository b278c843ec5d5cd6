/* See traffic.h. Written against DPDK 22.11. */
#include "traffic.h"

#include <errno.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#define HEADER 23
#define NAME UINT64_C(0xffffffffffff)
/* What the rings of a line hold, and bursts. */
#define BUFFERS_PER_LINE 2560
#define CACHE 256

static const uint8_t source[6] = { 2, 0, 0, 0, 0, 1 };

struct rte_mempool *fibula_traffic_pool(uint32_t n_lines)
{
	return rte_pktmbuf_pool_create("fibula_traffic", n_lines * BUFFERS_PER_LINE + 4 * CACHE, CACHE, 0,
				       RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
}

int fibula_traffic_port(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

static void put_header(uint8_t *frame, uint64_t word, uint32_t place, uint8_t line, uint8_t hops, uint16_t run)
{
	uint64_t name = word & NAME;
	const uint8_t rest[4] = { 0x88, 0xb5, hops, 0 };
	memcpy(frame, &name, 6);
	memcpy(frame + 6, source, 6);
	memcpy(frame + 12, rest, 4);
	memcpy(frame + 16, &run, 2);
	memcpy(frame + 18, &place, 4);
	frame[22] = line;
}

/* Makes frames for the next words of a line, at most n. */
static void make(struct rte_mempool *pool, struct fibula_traffic_line *line, uint8_t number,
		 const struct fibula_traffic_plan *plan, uint32_t n)
{
	n = RTE_MIN(n, (uint32_t)FIBULA_TRAFFIC_BURST);
	if (plan->is_once)
		n = RTE_MIN(n, line->n_words - line->next);
	if (n == 0 || line->n_words == 0 || rte_pktmbuf_alloc_bulk(pool, line->ready, n))
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = line->ready[i];
		uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
		put_header(frame, line->words[line->next], line->next, number, plan->hops_in, plan->run);
		if (plan->is_once)
			memset(frame + HEADER, (uint8_t)line->next, plan->frame_bytes - HEADER);
		mbuf->data_len = plan->frame_bytes;
		mbuf->pkt_len = plan->frame_bytes;
		line->next++;
		if (line->next == line->n_words && !plan->is_once)
			line->next = 0;
	}
	line->n_ready = (uint16_t)n;
}

/* Sends what the wire takes; the rest stays ready. */
static uint32_t send_ready(struct fibula_traffic_line *line)
{
	uint16_t sent = rte_eth_tx_burst(line->port, 0, line->ready, line->n_ready);
	line->n_ready -= sent;
	if (line->n_ready && sent)
		memmove(line->ready, line->ready + sent, line->n_ready * sizeof line->ready[0]);
	return sent;
}

static int is_right(const struct rte_mbuf *mbuf, struct fibula_traffic_line *lines, uint32_t n_lines, uint32_t out,
		    const struct fibula_traffic_plan *plan)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint32_t place;
	uint8_t expected[HEADER];
	if (mbuf->nb_segs != 1 || mbuf->data_len != plan->frame_bytes)
		return 0;
	memcpy(&place, frame + 18, 4);
	if (frame[22] >= n_lines || place >= lines[frame[22]].n_words)
		return 0;
	struct fibula_traffic_line *in = &lines[frame[22]];
	put_header(expected, in->words[place], place, frame[22], plan->hops_out, plan->run);
	if (plan->is_swapped) {
		uint8_t name[6];
		memcpy(name, expected, 6);
		memcpy(expected, source, 6);
		memcpy(expected + 6, name, 6);
	}
	if (in->words[place] >> 48 != out + 1 || memcmp(frame, expected, HEADER))
		return 0;
	if (!plan->is_once)
		return 1;
	for (uint32_t i = HEADER; i < plan->frame_bytes; i++)
		if (frame[i] != (uint8_t)place)
			return 0;
	return in->seen[place]++ == 0;
}

/* Whether a frame is of one of the 1,000 runs before. */
static int is_late(const struct rte_mbuf *mbuf, const struct fibula_traffic_plan *plan)
{
	uint16_t run;
	if (mbuf->data_len < HEADER)
		return 0;
	memcpy(&run, rte_pktmbuf_mtod(mbuf, const uint8_t *) + 16, 2);
	return (uint16_t)(plan->run - 1 - run) < 1000;
}

static uint32_t receive_from(struct fibula_traffic_line *lines, uint32_t n_lines, uint32_t out,
			const struct fibula_traffic_plan *plan, struct fibula_traffic_counts *counts)
{
	struct rte_mbuf *mbufs[FIBULA_TRAFFIC_BURST];
	uint16_t n = rte_eth_rx_burst(lines[out].port, 0, mbufs, FIBULA_TRAFFIC_BURST), late = 0;
	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], const void *));
	for (uint16_t i = 0; i < n; i++) {
		if (is_right(mbufs[i], lines, n_lines, out, plan)) {
			counts->heard |= UINT64_C(1) << out;
			continue;
		}
		if (is_late(mbufs[i], plan)) {
			late++;
			continue;
		}
		if (counts->wrong++ == 0) {
			counts->wrong_line = out + 1;
			counts->wrong_bytes = RTE_MIN(mbufs[i]->data_len, (uint16_t)sizeof counts->wrong_frame);
			memcpy(counts->wrong_frame, rte_pktmbuf_mtod(mbufs[i], const void *), counts->wrong_bytes);
		}
	}
	if (n)
		rte_pktmbuf_free_bulk(mbufs, n);
	counts->received += n - late;
	return n;
}

/* Whether the frame of each word has been sent, and so many have come out. */
static int is_done(const struct fibula_traffic_line *lines, uint32_t n_lines, const struct fibula_traffic_counts *counts)
{
	for (uint32_t i = 0; i < n_lines; i++)
		if (lines[i].next < lines[i].n_words || lines[i].n_ready)
			return 0;
	return counts->received >= counts->sent;
}

void fibula_traffic_run(struct rte_mempool *pool, struct fibula_traffic_line *lines, uint32_t n_lines,
			const struct fibula_traffic_plan *plan, struct fibula_traffic_counts *counts)
{
	uint64_t hz = rte_get_tsc_hz(), began = rte_get_tsc_cycles(), now = began, last = began;
	uint64_t longest = plan->longest_us * hz / 1000000, quiet = plan->quiet_us * hz / 1000000;
	memset(counts, 0, sizeof *counts);
	while (now - began < longest && now - last < quiet && !(plan->is_once && is_done(lines, n_lines, counts))) {
		for (uint32_t i = 0; i < n_lines; i++) {
			uint64_t under_way = counts->sent - RTE_MIN(counts->sent, counts->received);
			uint64_t room = plan->n_under_way ? plan->n_under_way - RTE_MIN(plan->n_under_way, under_way) :
							    FIBULA_TRAFFIC_BURST;
			if (lines[i].n_ready == 0)
				make(pool, &lines[i], (uint8_t)i, plan, (uint32_t)room);
			if (lines[i].n_ready)
				counts->sent += send_ready(&lines[i]);
		}
		for (uint32_t i = 0; i < n_lines; i++)
			if (receive_from(lines, n_lines, i, plan, counts))
				last = now;
		now = rte_get_tsc_cycles();
	}
	counts->ns = (uint64_t)((double)(now - began) * 1e9 / (double)hz);
}

void fibula_traffic_drain(struct fibula_traffic_line *lines, uint32_t n_lines, uint64_t quiet_us)
{
	uint64_t quiet = quiet_us * rte_get_tsc_hz() / 1000000, last = rte_get_tsc_cycles();
	for (uint32_t i = 0; i < n_lines; i++) {
		rte_pktmbuf_free_bulk(lines[i].ready, lines[i].n_ready);
		lines[i].n_ready = 0;
	}
	while (rte_get_tsc_cycles() - last < quiet)
		for (uint32_t i = 0; i < n_lines; i++) {
			struct rte_mbuf *mbufs[FIBULA_TRAFFIC_BURST];
			uint16_t n = rte_eth_rx_burst(lines[i].port, 0, mbufs, FIBULA_TRAFFIC_BURST);
			if (n == 0)
				continue;
			last = rte_get_tsc_cycles();
			rte_pktmbuf_free_bulk(mbufs, n);
		}
}
