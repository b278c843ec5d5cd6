#include <click/config.h>
#include "fibulafib.hh"
#include <click/error.hh>
#include "fibula.h"
CLICK_DECLS

FibulaFib::FibulaFib() : _fib(0) {}
FibulaFib::~FibulaFib() { fibula_free(_fib); }

static int port_of_action(const fibula_fib *fib, uint16_t value)
{
	struct fibula_action action = fibula_action(fib, value);
	return action.verb == FIBULA_PORT ? action.port : -1;
}

int FibulaFib::open(const String &file, ErrorHandler *errh)
{
	char why[FIBULA_WHY];
	String path = file;
	fibula_free(_fib);
	_fib = fibula_open(path.c_str(), why);
	if (!_fib)
		return errh->error("%s: %s", path.c_str(), why);
	if (const char *other = refuses())
		return errh->error("%s has another design: build it by fibula fib build --design %s, or use FibulaFib",
			path.c_str(), other);
	_name_bytes = _fib->name_bytes;
	if (!_name_bytes)
		return errh->error("%s has names of several lengths: build it of MAC or IP addresses, or of fixed fields",
			path.c_str());
	_ports.clear();
	if (!_fib->inode)
		for (uint32_t value = 0; value < 1u << _fib->value_bits; value++)
			_ports.push_back(port_of_action(_fib, value));
	return 0;
}

int FibulaFib::port_of(const uint8_t *name) const
{
	uint16_t value = fibula_lookup(_fib, name, _name_bytes);
	/* A value has at most value_bits bits, so it is inside. */
	return likely(_ports.size()) ? _ports.unchecked_at(value) : port_of_action(_fib, value);
}

const char *FibulaConcise::refuses() const
{
	return _fib->design == FIBULA_OTHELLO && !_fib->fingerprint_bits ? 0 : "concise";
}

const char *FibulaLine::refuses() const { return _fib->design == FIBULA_LINE ? 0 : "line"; }

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel FibulaForward)
EXPORT_ELEMENT(FibulaFib FibulaConcise FibulaLine)
