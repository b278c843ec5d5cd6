#ifndef CLICK_FIBULASOURCE_HH
#define CLICK_FIBULASOURCE_HH
#include <click/element.hh>
#include <click/task.hh>
#include <vector>
CLICK_DECLS

/* FibulaSource(NAMES [, LIMIT, SEED, BURST, LENGTH, OFFSET, STOP])
 *
 * Makes frames of LENGTH (64) bytes whose names, from OFFSET (0) on, are those of the file NAMES: in an order drawn with
 * SEED (1), and in this order again and again, so that every name is as frequent as any other. A line of NAMES has a name
 * in hexadecimal, with or without colons, up to its end or a comma: a list for `fibula fib build` will do. LIMIT frames
 * (-1: no end) are pushed, BURST (32) in a run of its task; then STOP (true) stops the driver.
 *
 * Handlers: count (frames), seconds (from the first to the last of them), rate (frames a second).
 * Cost: a packet of Click, and a name from memory that the processor fetches ahead. */
class FibulaSource : public Element { public:
	FibulaSource() CLICK_COLD;
	const char *class_name() const { return "FibulaSource"; }
	const char *port_count() const { return "0/1"; }
	const char *processing() const { return PUSH; }
	int configure(Vector<String> &, ErrorHandler *) CLICK_COLD;
	int initialize(ErrorHandler *) CLICK_COLD;
	void add_handlers() CLICK_COLD;
	bool run_task(Task *);

private:
	int read_names(const String &file, ErrorHandler *) CLICK_COLD;
	void shuffle(uint64_t seed) CLICK_COLD;
	double seconds() const;
	static String read_handler(Element *, void *) CLICK_COLD;
	Task _task;
	std::vector<uint8_t> _names;
	uint32_t _name_bytes, _n_names, _next;
	uint32_t _burst, _length, _offset;
	int64_t _limit;
	uint64_t _count;
	Timestamp _first, _last;
	bool _stop;
};

CLICK_ENDDECLS
#endif
