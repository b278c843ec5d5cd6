#ifndef CLICK_FIBULAFORWARD_HH
#define CLICK_FIBULAFORWARD_HH
#include <click/element.hh>
CLICK_DECLS

/* What the elements that forward by a name have in common; each says how it reads its file and looks a name up.
 *
 * FibulaX(FILE [, OFFSET, REST])
 *
 * The name is the bytes of a packet from OFFSET on (0: where an Ethernet frame has its destination), as many as the names
 * of FILE have. A name whose action is a port leaves by the output of that number. Other packets are killed: those whose
 * action is not a port, whose port has no output, and which are too short. With REST true they leave by the last output
 * instead, which is then not a port. FILE is read once: a new one takes effect by hot-swapping the configuration.
 *
 * Handlers: count (packets that came), drops (those of them that had no port), reset (write).
 * Cost beside the lookup: one virtual call, and one read of a small table of ports.
 * Limits: one name at a time, as Click passes packets; counters, as those of Counter, are exact with one thread only. */
class FibulaForward : public Element { public:
	FibulaForward() CLICK_COLD;
	const char *port_count() const { return "1/1-"; }
	const char *processing() const { return PUSH; }
	int configure(Vector<String> &, ErrorHandler *) CLICK_COLD;
	void add_handlers() CLICK_COLD;
	void push(int, Packet *);

protected:
	/* Reads the file; an error says what to do. */
	virtual int open(const String &file, ErrorHandler *) CLICK_COLD = 0;
	/* The port of a name; -1, or a number that no output has, if there is none. */
	virtual int port_of(const uint8_t *name) const = 0;
	/* Bytes of a name, set by open. */
	uint32_t _name_bytes;

private:
	static String read_handler(Element *, void *) CLICK_COLD;
	static int write_handler(const String &, Element *, void *, ErrorHandler *) CLICK_COLD;
	uint64_t _count, _drops;
	uint32_t _offset, _n_ports;
	bool _rest;
};

CLICK_ENDDECLS
#endif
