#include "ports.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Descriptors of a queue, where the device can. */
#define N_DESCRIPTORS 512
/* Buffers that a thread keeps for itself. */
#define CACHE 128
/* Buffers of a queue that may be lent: what the rings of two other ports hold, and a few bursts of a worker. */
#define N_LENT 1280

/* The end of what was said, for error messages. */
static char said[4096];
static size_t n_said;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t keep(void *unused, const char *text, size_t n)
{
	size_t given = n;
	(void)unused;
	pthread_mutex_lock(&said_lock);
	if (n > sizeof said) {
		text += n - sizeof said;
		n = sizeof said;
	}
	if (n_said + n > sizeof said) {
		size_t over = n_said + n - sizeof said;
		memmove(said, said + over, n_said - over);
		n_said -= over;
	}
	memcpy(said + n_said, text, n);
	n_said += n;
	pthread_mutex_unlock(&said_lock);
	return (ssize_t)given;
}

static ssize_t drop(void *unused, const char *text, size_t n)
{
	(void)unused;
	(void)text;
	return (ssize_t)n;
}

static FILE *stream(cookie_write_function_t *write)
{
	cookie_io_functions_t functions = { .write = write };
	FILE *file = fopencookie(NULL, "w", functions);
	if (file)
		setvbuf(file, NULL, _IONBF, 0);
	return file;
}

int fibula_dpdk_start(int argc, char **argv)
{
	FILE *log = stream(keep), *usage = stream(drop);
	if (!log || !usage)
		return -ENOMEM;
	rte_openlog_stream(log);
	/* EAL prints its usage after a wrong argument, between whatever our output is. These two are variables in glibc. */
	FILE *out = stdout, *err = stderr;
	stdout = usage;
	stderr = log;
	int status = rte_eal_init(argc, argv);
	int error = rte_errno;
	stdout = out;
	stderr = err;
	fclose(usage);
	if (status < 0)
		return error > 0 ? -error : -EINVAL;
	/* Without files to share there is nothing in it, and a process that is killed cannot remove it. */
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

size_t fibula_dpdk_said(char *out, size_t room)
{
	pthread_mutex_lock(&said_lock);
	size_t n = n_said < room ? n_said : room;
	memcpy(out, said + n_said - n, n);
	n_said = 0;
	pthread_mutex_unlock(&said_lock);
	return n;
}

int fibula_dpdk_register(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void fibula_dpdk_unregister(void)
{
	rte_thread_unregister();
}

static int failed(struct fibula_dpdk_port *port, const char *step, int status)
{
	port->failed = step;
	return status;
}

/* Finds the port of a device that EAL knows. */
static int find(struct fibula_dpdk_port *port)
{
	struct rte_dev_iterator iterator;
	uint16_t id;
	if (rte_eth_dev_get_port_by_name(port->name, &port->port) == 0)
		return 0;
	RTE_ETH_FOREACH_MATCHING_DEV(id, port->device, &iterator) {
		port->port = id;
		rte_eth_iterator_cleanup(&iterator);
		return 0;
	}
	return -ENODEV;
}

static int configure(struct fibula_dpdk_port *port, const struct rte_eth_dev_info *info)
{
	struct rte_eth_conf conf = { .rxmode.mtu = port->mtu };
	uint16_t rx = N_DESCRIPTORS, tx = N_DESCRIPTORS;
	char name[RTE_MEMPOOL_NAMESIZE];
	int socket = rte_eth_dev_socket_id(port->port);
	int status;
	uint64_t by = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
	if (port->n_queues > 1 && (info->flow_type_rss_offloads & by)) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & by;
	}
	status = rte_eth_dev_configure(port->port, port->n_queues, port->n_queues, &conf);
	if (status)
		return failed(port, "be configured", status);
	status = rte_eth_dev_adjust_nb_rx_tx_desc(port->port, &rx, &tx);
	if (status)
		return failed(port, "have queues", status);
	/* All that rings to send, threads' caches and bursts can hold of copies; then what can be received or lent. */
	port->reserve = port->n_queues * (tx + 2u * FIBULA_DPDK_BURST + port->n_kept) + (port->n_queues + 1u) * CACHE * 3 / 2;
	uint32_t n = port->reserve + port->n_queues * (rx + N_LENT);
	/* A name of a pool that stays, because others hold its buffers, is taken. */
	static unsigned n_pools;
	snprintf(name, sizeof name, "fibula_%u", n_pools++);
	port->pool = rte_pktmbuf_pool_create(name, n, CACHE, 0, (uint16_t)(RTE_PKTMBUF_HEADROOM + port->buffer_bytes),
					     socket < 0 ? SOCKET_ID_ANY : socket);
	if (!port->pool)
		return failed(port, "have buffers: its memory (-m) is too small", rte_errno ? -rte_errno : -ENOMEM);
	for (uint16_t queue = 0; queue < port->n_queues; queue++) {
		status = rte_eth_rx_queue_setup(port->port, queue, rx, (unsigned)socket, NULL, port->pool);
		if (status == 0)
			status = rte_eth_tx_queue_setup(port->port, queue, tx, (unsigned)socket, NULL);
		if (status)
			return failed(port, "have queues", status);
	}
	status = rte_eth_dev_start(port->port);
	if (status)
		return failed(port, "be started", status);
	/* A device without the mode has no filter either. */
	if (port->promiscuous) {
		status = rte_eth_promiscuous_enable(port->port);
		if (status && status != -ENOTSUP)
			return failed(port, "receive frames for any address", status);
	}
	rte_eth_stats_reset(port->port);
	return 0;
}

int fibula_dpdk_open(struct fibula_dpdk_port *port)
{
	struct rte_eth_dev_info info;
	int status = rte_dev_probe(port->device);
	/* A device of an allow list is there already. */
	if (status && status != -EEXIST)
		return failed(port, "be used", status);
	status = find(port);
	if (status)
		return failed(port, "be used: it is not a network device", status);
	status = rte_eth_dev_info_get(port->port, &info);
	if (status)
		return failed(port, "describe itself", status);
	port->of = info.device;
	/* Some drivers have no MTU of their own, but a longest frame. */
	uint32_t of_frame = info.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
	port->max_mtu = (uint16_t)RTE_MIN((uint32_t)info.max_mtu, of_frame);
	port->mtu = RTE_MIN(port->mtu, port->max_mtu);
	port->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	if (port->n_queues > port->max_queues)
		status = failed(port, "have so many queues", -ERANGE);
	else if (port->mtu < port->least_mtu)
		status = failed(port, "have this MTU", -ERANGE);
	else
		status = configure(port, &info);
	if (status) {
		const char *step = port->failed;
		fibula_dpdk_close(port);
		port->failed = step;
	}
	return status;
}

void fibula_dpdk_close(struct fibula_dpdk_port *port)
{
	rte_eth_dev_stop(port->port);
	rte_eth_dev_close(port->port);
	rte_dev_remove(port->of);
	/* Buffers may be in another port's queue (net_ring): then the memory stays. */
	if (port->pool && rte_mempool_full(port->pool))
		rte_mempool_free(port->pool);
	port->pool = NULL;
}

int fibula_dpdk_link(uint16_t port)
{
	struct rte_eth_link link;
	int status = rte_eth_link_get_nowait(port, &link);
	return status < 0 ? status : link.link_status == RTE_ETH_LINK_UP;
}

void fibula_dpdk_losses(uint16_t port, uint64_t *lost, uint64_t *damaged)
{
	struct rte_eth_stats stats;
	*lost = *damaged = 0;
	if (rte_eth_stats_get(port, &stats) == 0) {
		*lost = stats.imissed + stats.rx_nombuf;
		*damaged = stats.ierrors;
	}
}

void fibula_dpdk_give_back(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

uint16_t fibula_dpdk_receive(struct fibula_dpdk_queue *queue, struct fibula_dpdk_frame *frames, uint16_t n)
{
	struct rte_mbuf *mbufs[FIBULA_DPDK_BURST];
	uint16_t got = rte_eth_rx_burst(queue->port, queue->queue, mbufs, RTE_MIN(n, FIBULA_DPDK_BURST));
	/* Rings of ports to which nothing is sent keep what they were given: then frames are copied, and none has to wait. What
	 * threads keep for themselves does not count here. */
	int may_lend = got && rte_mempool_get_ops(queue->pool->ops_index)->get_count(queue->pool) > queue->reserve;
	for (uint16_t i = 0; i < got; i++) {
		/* A tag that the device took off is put back. */
		int whole = !(mbufs[i]->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) || rte_vlan_insert(&mbufs[i]) == 0;
		struct rte_mbuf *mbuf = mbufs[i];
		frames[i].mbuf = mbuf;
		frames[i].is_lent = may_lend && RTE_MBUF_DIRECT(mbuf) && rte_mbuf_refcnt_read(mbuf) == 1;
		frames[i].bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
		frames[i].len = whole && mbuf->nb_segs == 1 ? mbuf->data_len : 0;
		frames[i].start = mbuf->data_off;
		frames[i].room = mbuf->buf_len;
	}
	return got;
}

uint16_t fibula_dpdk_send(struct fibula_dpdk_queue *queue, const struct fibula_dpdk_frame *frames, uint16_t n)
{
	struct rte_mbuf *mbufs[FIBULA_DPDK_BURST], *copies[FIBULA_DPDK_BURST];
	uint16_t n_copies = 0, next = 0;
	n = RTE_MIN(n, FIBULA_DPDK_BURST);
	for (uint16_t i = 0; i < n; i++)
		n_copies += frames[i].mbuf == NULL;
	if (n_copies && rte_pktmbuf_alloc_bulk(queue->pool, copies, n_copies))
		return 0;
	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = frames[i].mbuf;
		if (mbuf) {
			mbuf->data_off = frames[i].start;
			/* What the device that received it found out. */
			mbuf->ol_flags = 0;
		} else {
			mbuf = copies[next++];
			memcpy(rte_pktmbuf_mtod(mbuf, void *), frames[i].bytes, frames[i].len);
		}
		mbuf->data_len = (uint16_t)frames[i].len;
		mbuf->pkt_len = frames[i].len;
		mbufs[i] = mbuf;
	}
	uint16_t sent = rte_eth_tx_burst(queue->port, queue->queue, mbufs, n);
	for (uint16_t i = sent; i < n; i++)
		if (frames[i].mbuf == NULL)
			rte_pktmbuf_free(mbufs[i]);
	return sent;
}
