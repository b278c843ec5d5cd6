#ifndef CLICK_FIBULAFIB_HH
#define CLICK_FIBULAFIB_HH
#include "fibulaforward.hh"
struct fibula_fib;
CLICK_DECLS

/* FibulaFib(FILE [, OFFSET, REST]): forwards by a FIB file of design concise, ofw, line, line-fast or line-small, which
 * fibula.h reads; or by the table that a running switch shows in FILE (`share` in switch.toml), update by update.
 * FibulaConcise and FibulaLine are the same element, and refuse files of other designs.
 * Limits: when a switch makes another table (another key, another size), the one before is used on. */
class FibulaFib : public FibulaForward { public:
	FibulaFib() CLICK_COLD;
	~FibulaFib() CLICK_COLD;
	const char *class_name() const { return "FibulaFib"; }
protected:
	int open(const String &file, ErrorHandler *) CLICK_COLD;
	int port_of(const uint8_t *name) const;
	fibula_fib *_fib;
private:
	/* NULL, or what the element takes instead of this design. */
	virtual const char *refuses() const { return 0; }
	/* The ports of all values; none for the table of a switch, whose actions change. */
	Vector<int> _ports;
};

class FibulaConcise : public FibulaFib { public:
	const char *class_name() const { return "FibulaConcise"; }
private:
	const char *refuses() const;
};

class FibulaLine : public FibulaFib { public:
	const char *class_name() const { return "FibulaLine"; }
private:
	const char *refuses() const;
};

CLICK_ENDDECLS
#endif
