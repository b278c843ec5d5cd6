/* Ports of DPDK for the backend `dpdk` of netio: what Rust cannot call, because DPDK has it as inline functions and macros,
 * and what is shorter here. One call a burst. No call is made for two queues of one port but with locks of the caller, except
 * fibula_dpdk_receive and fibula_dpdk_send. */
#ifndef FIBULA_DPDK_PORTS_H
#define FIBULA_DPDK_PORTS_H

#include <stddef.h>
#include <stdint.h>

#define FIBULA_DPDK_BURST 32

struct rte_device;
struct rte_mbuf;
struct rte_mempool;

/* Starts EAL, and keeps to itself what it prints; 0, or a negative errno. Once in a process. */
int fibula_dpdk_start(int argc, char **argv);

/* Takes what EAL and the drivers have said since the last call, at most its end; the bytes written. */
size_t fibula_dpdk_said(char *out, size_t room);

/* Makes the calling thread one of EAL's, which gives it a cache of buffers of its own; and ends that. */
int fibula_dpdk_register(void);
void fibula_dpdk_unregister(void);

struct fibula_dpdk_port {
	/* What is asked for: the device as EAL writes it, its name, the queues each way, bytes of a buffer, and
	 * buffers for each queue that the driver keeps besides. Its MTU is to be at least `least_mtu` and at best `mtu`, which
	 * says afterwards what it is; 0: as it is. */
	const char *device;
	const char *name;
	uint16_t n_queues;
	uint16_t least_mtu;
	uint16_t mtu;
	uint32_t buffer_bytes;
	uint32_t n_kept;
	/* Whether to receive frames for any address. */
	int promiscuous;
	/* What there is. `failed` says which step failed, if one did. */
	const char *failed;
	uint16_t max_queues;
	uint16_t max_mtu;
	uint16_t port;
	struct rte_mempool *pool;
	/* Buffers that must stay in the pool for copies that are sent. */
	uint32_t reserve;
	struct rte_device *of;
};

/* Opens a port; 0, or a negative errno, and then nothing is left open. */
int fibula_dpdk_open(struct fibula_dpdk_port *port);
void fibula_dpdk_close(struct fibula_dpdk_port *port);

/* 1 with a link, 0 without, or a negative errno. */
int fibula_dpdk_link(uint16_t port);

/* Frames lost for want of a buffer or of room in the device's queue, and frames that arrived damaged, since it was opened. */
void fibula_dpdk_losses(uint16_t port, uint64_t *lost, uint64_t *damaged);

/* One queue of a port. */
struct fibula_dpdk_queue {
	struct rte_mempool *pool;
	/* Buffers in the pool below which none is lent. */
	uint32_t reserve;
	uint16_t port;
	uint16_t queue;
};

/* A frame in one of DPDK's buffers, or elsewhere. */
struct fibula_dpdk_frame {
	/* The buffer that holds it; null if it is elsewhere. */
	struct rte_mbuf *mbuf;
	/* Of a received frame: whether it may stay in its buffer, and be changed there. */
	int is_lent;
	/* Where its bytes are, and how many; 0 of a received frame in several buffers. */
	uint8_t *bytes;
	uint32_t len;
	/* Bytes of its buffer before the frame, and in all. */
	uint16_t start;
	uint16_t room;
};

/* Receives at most n frames. Each is the caller's, who gives it back or sends it. */
uint16_t fibula_dpdk_receive(struct fibula_dpdk_queue *queue, struct fibula_dpdk_frame *frames, uint16_t n);

/* Sends frames: those in buffers of DPDK's as they lie there, the others as copies. How many the device took, from the first
 * on; their buffers are the device's. */
uint16_t fibula_dpdk_send(struct fibula_dpdk_queue *queue, const struct fibula_dpdk_frame *frames, uint16_t n);

/* Gives a buffer back to where it came from. Any thread may do this. */
void fibula_dpdk_give_back(struct rte_mbuf *mbuf);

#endif
